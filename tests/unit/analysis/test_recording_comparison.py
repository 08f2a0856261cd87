"""Two recordings with known differences, and odd ones."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from heaps import new_heap
from shared import ROOT, SHARED, sample_trace, snapshot_trace
from unit.analysis.programs import LEAK, Training
from unit.figures.odd_traces import ODD, empty
from unit.figures.synthetic import KiB, MiB, busy_trace

import bfcviz
from bfcviz.allocator.replay import Operations, Replay
from bfcviz.analysis.alignment import AlignedBy
from bfcviz.analysis.comparison import HolderVerdict, comparison_json, same
from bfcviz.errors import TraceError
from bfcviz.events.log import EventLog
from bfcviz.model import navigation
from bfcviz.model.grouping import UNNAMED
from bfcviz.units import format_bytes

BEFORE = Training()


def verdicts(found, moment="peak"):
    rows = found.holders_at(moment).to_pylist()
    return {row["holder"]: (row["change"], row["bytes_change"]) for row in rows}


def test_a_label_that_grows_one_that_vanishes_one_that_appears_and_a_leak():
    after = Training(
        more={"forward/layer_1": 2 * MiB, "forward/attention": MiB}, without=("forward/layer_2",), leak=True
    )
    traces = BEFORE.trace(), after.trace()
    found = bfcviz.compare_recordings(*traces)
    assert {name: verdict for name, (verdict, _) in verdicts(found).items()} == {
        "forward/layer_1": HolderVerdict.GREW,
        "forward/attention": HolderVerdict.APPEARED,
        "forward/layer_2": HolderVerdict.VANISHED,
        "history/append": HolderVerdict.APPEARED,
        "forward/layer_3": HolderVerdict.MOVED,
        "forward/layer_0": HolderVerdict.MOVED,
        "weights": HolderVerdict.SAME,
    }
    held = [bfcviz.holders(trace, "peak") for trace in traces]
    sizes = [dict(zip(each.paths(), each.rows["bytes"].tolist(), strict=True)) for each in held]
    for name, (_, change) in verdicts(found).items():
        assert change == sizes[1].get(name, 0) - sizes[0].get(name, 0)
    before, now = found.total("peak_bytes_in_use")
    assert now - before == sum(change for _, change in verdicts(found).values())
    assert verdicts(found, "end") == {
        "history/append": (HolderVerdict.APPEARED, 12 * LEAK),
        "weights": (HolderVerdict.SAME, 0),
    }
    assert [(row.holder, row.a, row.b) for row in found.growth.rows] == [("history/append", 0.0, float(LEAK))]
    assert found.parts.named[0] == ("forward", sizes[1]["forward"] - sizes[0]["forward"], 3)
    for fact in (format_bytes(now - before), "forward", "history/append", "4.0 KiB"):
        assert fact in found.headline


def test_each_aligned_step_is_compared():
    found = bfcviz.compare_recordings(BEFORE.trace(), Training(leak=True).trace())
    steps = found.moments.to_pylist()[1:-1]
    assert [row["moment"] for row in steps] == [f"step {number}" for number in range(12)]
    assert [row["bytes_change"] for row in steps] == [LEAK * number for number in range(1, 13)]
    high = 2 * MiB + 4 * 256 * KiB
    assert {row["a_highest_since"] for row in steps} == {high}
    assert [row["b_highest_since"] for row in steps] == [high + LEAK * number for number in range(1, 13)]


@pytest.mark.parametrize("name", ["lstm", "oom_log", "oom_dump"])
def test_a_recording_and_itself_differ_in_nothing(name):
    trace = sample_trace(name)
    found = bfcviz.compare_recordings(trace, trace)
    assert same(found)
    assert set(found.holders["change"].to_pylist()) == {HolderVerdict.SAME}
    assert not any(found.moments["bytes_change"].to_pylist())
    assert set(found.totals["change"].to_pylist()) <= {0.0, None}
    assert found.parts == ((), 0)


def test_two_samples_are_compared_at_their_peaks():
    a, b = (sample_trace(name) for name in ("lstm", "transformer"))
    found = bfcviz.compare_recordings(a, b)
    for letter, trace in (("a", a), ("b", b)):
        row = found.moments.to_pylist()[0]
        step = navigation.peak(trace)
        held = bfcviz.holders(trace, step)
        assert (row[f"{letter}_step"], row[f"{letter}_bytes"]) == (step, held.bytes_in_use)
        at_peak = found.holders_at("peak")
        assert sum(at_peak[f"{letter}_chunks"].to_pylist()) == held.chunks_in_use
    assert sum(part.bytes for part in found.parts.named) + found.parts.left == row["bytes_change"]
    back = bfcviz.compare_recordings(b, a)
    opposite = {HolderVerdict.APPEARED: HolderVerdict.VANISHED, HolderVerdict.GREW: HolderVerdict.SHRANK}
    opposite |= {new: old for old, new in opposite.items()}
    assert verdicts(back) == {
        name: (opposite.get(verdict, verdict), -change) for name, (verdict, change) in verdicts(found).items()
    }


def test_every_grouping_gives_the_same_sums():
    a, b = BEFORE.trace(), Training(leak=True).trace()
    sums = set()
    for by in UNNAMED:
        found = bfcviz.compare_recordings(a, b, by=by)
        sums.add(sum(found.holders_at("peak")["bytes_change"].to_pylist()))
    assert sums == {12 * LEAK}


def test_a_window_that_begins_later_is_compared_with_a_note():
    heaps = []
    for count in (4, 7):
        heap = new_heap(64 * MiB, log=EventLog(64))
        for _ in range(count):
            heap.allocate(MiB, label="kept")
        for _ in range(40):
            heap.free(heap.allocate(KiB, label="loop"))
        heaps.append(heap)
    found = bfcviz.compare_recordings(*heaps)
    assert (found.a.first > 0, found.b.first > 0) == (True, True)
    assert verdicts(found, "end") == {"kept": (HolderVerdict.GREW, 3 * MiB)}
    assert [note[0] for note in found.notes if "begins at step" in note] == ["A", "B"]


@pytest.mark.parametrize("name", ODD)
def test_odd_traces_are_compared_with_themselves_and_with_an_ordinary_one(name):
    trace, ordinary = ODD[name](), busy_trace(100)
    itself = bfcviz.compare_recordings(trace, trace)
    assert (same(itself), bool(str(itself))) == (True, True)
    for pair in ((trace, ordinary), (ordinary, trace)):
        found = bfcviz.compare_recordings(*pair)
        assert str(found).splitlines()[0] == found.headline
        assert comparison_json(found)["headline"] == found.headline


def test_an_empty_trace_and_a_trace_without_labels_are_named():
    found = bfcviz.compare_recordings(empty(), Training(labelled=False, mark=None).trace())
    notes = " ".join(found.notes)
    assert "A has no events" in notes
    assert "B: no label" in notes
    assert found.total("peak_bytes_in_use") == (0, 2 * MiB + 4 * 256 * KiB)


def test_heaps_are_chosen_by_number():
    trace = ODD["pools_without_events"]()
    found = bfcviz.compare_recordings(trace, trace, pool=(0, 1))
    assert found.total("peak_bytes_in_use") == (0, KiB)
    assert (found.a.pool, found.b.pool) == (0, 1)
    with pytest.raises(TraceError, match="heap 7 of recording B"):
        bfcviz.compare_recordings(trace, trace, pool=(0, 7))


def test_truncated_recordings_say_so(tmp_path):
    with bfcviz.Recording(tmp_path / "run") as recording:
        heap = bfcviz.BFCAllocator(
            bfcviz.SimulatedSubAllocator(), "64MiB", log=recording.log, labels=recording.labels
        )
        for number in range(50):
            heap.allocate(KiB, label=f"op_{number % 5}")
    whole = bfcviz.open(tmp_path / "run")
    events = np.array(whole.read(0, len(whole)))
    with (tmp_path / "run" / "events.bin").open("r+b") as file:
        file.truncate(64 * 60 + 17)
    cut = bfcviz.open(tmp_path / "run")
    assert len(events) > len(cut)
    found = bfcviz.compare_recordings(whole.from_events(events, whole.labels, whole.origin), cut)
    assert any(note.startswith("B is truncated") for note in found.notes)


def replayed(path, **changed):
    """A golden trace of TensorFlow's heap, served again under other options; and the heap."""
    golden = np.load(path)
    options = json.loads(bytes(golden["meta_json"]))["options"]
    heap = new_heap(options["total_memory"], log=EventLog(1 << 18), honour_alignment=False, **changed)
    columns = (golden[name] for name in ("op", "id", "size"))
    operations = Operations(*columns, options["alignment"], golden["aux"])
    Replay(heap.heap, operations).run(len(golden["op"]))
    return heap


@pytest.mark.parametrize("name", ["10_gc_growth", "14_gc_coalesce"])
def test_a_golden_trace_under_two_settings(name):
    path = ROOT / "tests" / "data" / "golden" / f"{name}.npz"
    heaps = [replayed(path, allow_growth=grows) for grows in (True, False)]
    found = bfcviz.compare_recordings(*heaps)
    assert found.alignment.by is AlignedBy.SHARE
    stats = [heap.stats() for heap in heaps]
    for measure in ("peak_bytes_in_use", "peak_pool_bytes"):
        assert found.total(measure) == tuple(getattr(each, measure) for each in stats)
    assert found.total("allocations") == tuple(each.num_allocs for each in stats)
    assert found.total("extends")[1] == 1
    assert any("allow_growth True -> False" in note for note in found.notes)


SNAPSHOTS = sorted((SHARED / "real" / "snapshots").glob("*.pickle"))


@pytest.mark.skipif(not SNAPSHOTS, reason="no real snapshots beside this checkout")
def test_real_snapshots_are_compared_with_each_other():
    traces = [snapshot_trace(path.stem) for path in SNAPSHOTS]
    for a, b in itertools.pairwise(traces):
        found = bfcviz.compare_recordings(a, b)
        change = found.moments["bytes_change"][0].as_py()
        assert found.total("peak_bytes_in_use")[1] - found.total("peak_bytes_in_use")[0] == change
        assert isinstance(found.holders, pa.Table)
        assert str(found)
