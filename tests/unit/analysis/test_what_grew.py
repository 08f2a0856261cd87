"""What grew between two steps, against plain sums over a random heap, and in a heap with known phases."""

import numpy as np
import pytest
from heap_strategies import operations
from hypothesis import given
from hypothesis import strategies as st
from unit.figures.synthetic import KiB, MiB, PlainHeap
from unit.model.plain_holders import trace_of_heap

import bfcviz
from bfcviz.analysis.what_grew import first_moment, moments_of, what_grew
from bfcviz.errors import TraceError
from bfcviz.events.origin import HISTORY_BEGINS
from bfcviz.figures.colouring import FREED_LATER, NEVER_FREED
from bfcviz.model import Model
from bfcviz.model.grouping import UNNAMED, grouping


@given(operations(), st.sampled_from(sorted(UNNAMED)), st.data())
def test_it_is_the_difference_of_what_is_in_use(steps, by, data):
    trace = trace_of_heap(steps)
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(trace))] * 2)))
    for pool in (0, 1):
        model, how = Model(trace, pool), grouping(trace, pool, by)
        used = []
        for step in (first, last, len(trace)):
            model.seek(step)
            used.append({int(each["born"]): each for each in model.in_use()})
        model.seek(last)
        found = what_grew(model, first, how)
        assert model.step == last
        before, after, end = used
        expected = {}
        for born in before.keys() ^ after.keys():
            chunk = (before | after)[born]
            path = how.path(int(how.codes(np.array([chunk]))[0]))
            row = expected.setdefault(how.text(path), [0, 0, 0])
            row[born in before] += int(chunk["size"])
            row[2] += int(chunk["size"]) if born in after and born in end else 0
        rows = found.to_arrow().to_pylist()
        assert {row["holder"]: [row["new"], row["gone"], row["never_freed"]] for row in rows} == expected
        assert all(row["grew"] == row["new"] - row["gone"] for row in rows)
        assert [row["grew"] for row in rows] == sorted((row["grew"] for row in rows), reverse=True)


@pytest.fixture(scope="module")
def program():
    """Weights; then the phase `forward` keeps 2 MiB to the end and 1 MiB for a while, and frees a buffer of before."""
    heap = PlainHeap(64 * MiB)
    heap.allocate(8 * MiB, "weights")
    buffer = heap.allocate(512 * KiB, "buffer")
    heap.mark(HISTORY_BEGINS)
    heap.mark("step", 1)
    heap.mark("forward begins", 1, begins="forward")
    heap.allocate(2 * MiB, "cache")
    activation = heap.allocate(MiB, "activation")
    heap.free(heap.allocate(4 * MiB, "workspace"))
    heap.free(buffer)
    heap.mark("forward ends", 1, ends="forward")
    heap.free(activation)
    heap.mark("step", 2)
    return heap.trace()


def test_a_phase_a_mark_and_steps_name_the_moments(program):
    found = bfcviz.what_grew(program, "forward")
    rows = {row["holder"]: row for row in found.to_pandas().to_dict("records")}
    assert (rows["cache"]["new"], rows["cache"]["never_freed"]) == (2 * MiB, 2 * MiB)
    assert (rows["activation"]["new"], rows["activation"]["never_freed"]) == (MiB, 0)
    assert (rows["buffer"]["grew"], rows["buffer"]["gone"]) == (-512 * KiB, 512 * KiB)
    assert rows.keys() == {"cache", "activation", "buffer"}
    assert bfcviz.what_grew(program, "step", "step").total("grew") == 2 * MiB - 512 * KiB
    assert bfcviz.what_grew(program, "step", "peak").last == bfcviz.peak(program)
    assert bfcviz.what_grew(program, 0).total("new") == bfcviz.holders(program, "last").bytes_in_use
    moments = {each.name: (each.first, each.last) for each in moments_of(program)}
    assert moments == {"forward": (found.first, found.last), "step → step": moments["step → step"]}
    assert [each.text for each in moments_of(program)] == ["step 1 → step 2", "forward"]
    assert first_moment(program) == bfcviz.what_grew(program).first == moments["step → step"][0] - 1
    assert "+2.5 MiB" in found.headline
    assert "cache, +2.0 MiB" in found.headline
    for same in (bfcviz.what_grew(program, 3, 3), bfcviz.what_grew(program, found.last, len(program))):
        assert "most:" not in same.headline  # nothing, or only freed
    assert max(map(len, str(bfcviz.what_grew(program, 0)).splitlines()[1:])) <= 80


def test_the_map_shows_what_is_new_and_shades_what_is_gone(program):
    found = bfcviz.what_grew(program, "forward")
    drawn = {
        each.name: each for each in bfcviz.draw("region_map", program, found.last, since=found.first).data
    }

    def boxes(name):
        return np.isfinite(np.asarray(drawn[name].x, float)).sum()

    assert boxes(NEVER_FREED) == boxes(FREED_LATER) == 4  # corners of one chunk each
    assert boxes("gone") >= 4
    plain = bfcviz.draw("region_map", program, 3).data
    assert not any(each.showlegend for each in plain if each.name == "gone")


def test_what_cannot_be_compared_is_refused(program):
    with pytest.raises(TraceError, match=r"'backward'.*'forward'"):
        bfcviz.what_grew(program, "backward")
    with pytest.raises(TraceError, match="5"):
        bfcviz.what_grew(program, 5, 2)
    with pytest.raises(TraceError, match="no history"):
        bfcviz.what_grew(bfcviz.sample("oom_dump"), 0)
