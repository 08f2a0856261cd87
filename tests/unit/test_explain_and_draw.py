"""`bfcviz.explain`, `peak`, `worst_fragmentation` and `draw` take any source."""

import pytest
from heaps import new_heap
from shared import sample_trace

import bfcviz
from bfcviz.errors import BfcvizError, TraceError
from bfcviz.model import find_steps

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path):
    """A recording: 40 MiB at its peak, at step 4, and a request that fails in the end."""
    with bfcviz.Recording(tmp_path / "run") as recording:
        heap = bfcviz.BFCAllocator(
            bfcviz.SimulatedSubAllocator(), "64MiB", log=recording.log, labels=recording.labels
        )
        first, _ = heap.allocate("20MiB", label="a"), heap.allocate(20 * MIB, label="b")
        heap.free(first)
        assert heap.try_allocate("40MiB", label="late") is None
        return tmp_path / "run"


def sources(folder):
    """The same heap as every kind of source."""
    trace = bfcviz.open(folder)
    return [folder, str(folder), trace, bfcviz.Model(trace), trace.save(folder.with_suffix(".parquet"))]


def test_a_path_a_trace_and_a_model_give_the_same(folder):
    given = sources(folder)
    trace = given[2]
    assert {bfcviz.explain(each) for each in given} == {bfcviz.explain(trace, len(trace) - 1)}
    assert "late" in bfcviz.explain(trace)
    assert {bfcviz.explain(each, event=0) for each in given} == {bfcviz.explain(trace, 0)}
    assert {bfcviz.peak(each) for each in given} == {find_steps.peak(trace)}
    assert {bfcviz.worst_fragmentation(each) for each in given} == {find_steps.worst_fragmentation(trace)}
    pictures = [bfcviz.draw("region_map", each, 3).table for each in given]
    assert all(picture.equals(pictures[0]) for picture in pictures)


def test_a_profile_is_read_too():
    path = bfcviz.sample("lstm")
    assert bfcviz.peak(path) == find_steps.peak(sample_trace("lstm"))


def test_a_live_heap_is_a_source():
    heap = new_heap(4 * MIB)
    heap.allocate(MIB, label="mine")
    assert "mine" in bfcviz.explain(heap)
    at = bfcviz.peak(heap)
    heap.allocate(MIB)
    assert bfcviz.peak(heap) > at > 0


def test_a_watch_and_a_served_framework_stand_for_their_first_heap():
    np = pytest.importorskip("numpy")
    with bfcviz.serve_numpy("64MiB") as served:
        held = np.ones(MIB, np.uint8)
        assert bfcviz.peak(served) > 0
    assert bfcviz.peak(served) == bfcviz.peak(served.allocator)
    with bfcviz.watch(numpy=True, limit="64MiB", dashboard=False) as w:
        held = np.ones(2 * MIB, np.uint8)
    assert bfcviz.peak(w) == bfcviz.peak(w.trace) > 0
    assert held.size == 2 * MIB


def test_other_sources_are_refused(folder):
    with pytest.raises(BfcvizError, match="int"):
        bfcviz.explain(3)
    with pytest.raises(TraceError):
        bfcviz.explain(folder, 1000)
    with pytest.raises(TraceError, match="no event"):
        bfcviz.explain(new_heap())
    with pytest.raises(ValueError, match="wanted"):
        bfcviz.draw("fragmentation_timeline", folder, wanted="much")


def test_a_picture_takes_the_size_of_a_request_as_text(folder):
    given = [bfcviz.draw("fragmentation_timeline", folder, wanted=each).table for each in ("32MiB", 32 * MIB)]
    assert given[0].equals(given[1])
    assert not given[0].equals(bfcviz.draw("fragmentation_timeline", folder).table)


def test_holders_and_leaks_of_any_source(folder):
    given = sources(folder)
    trees = [bfcviz.holders(each, "last") for each in given]
    assert {tuple(tree.names) for tree in trees} == {("in use", "b")}
    at_peak = bfcviz.holders(folder, "peak")
    assert (at_peak.step, at_peak.bytes_in_use, at_peak.names[1:]) == (
        bfcviz.peak(folder),
        40 * MIB,
        ["a", "b"],
    )
    assert {bfcviz.leaks(each).bytes for each in given} == {20 * MIB}
    assert bfcviz.leaks(folder, 0, 3).bytes == 0
    assert (
        bfcviz.holders(folder).step == bfcviz.holders(bfcviz.open(folder)).step == at_peak.step
    )  # as in the shell
    assert bfcviz.holders(folder, "worst").step == bfcviz.worst_fragmentation(folder)
    with pytest.raises(ValueError, match="'peak'"):
        bfcviz.holders(folder, "highest")
