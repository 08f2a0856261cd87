"""Two recordings with known differences, and odd ones."""

import dataclasses
import itertools
import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from heap_strategies import operations
from heaps import new_heap
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import ROOT, SHARED, needs_shared, sample_trace, snapshot_trace
from unit.analysis.built import MIB, state
from unit.analysis.programs import LEAK, Training, common, sides
from unit.figures.odd_traces import ODD, empty, odd_labels, pools_without_events
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace
from unit.model.plain_holders import trace_of_heap

import bfcviz
from bfcviz.allocator.replay import Operations, Replay
from bfcviz.analysis.recording_alignment import AlignedBy, PairedStep
from bfcviz.analysis.recording_comparison import (
    BYTES,
    COUNT,
    POINTS,
    SECONDS,
    SHARE,
    GrowthVerdict,
    HolderVerdict,
    changes_table,
    compared_value_text,
    comparison_json,
    comparison_lines,
    growth_changes,
    holder_changes,
    main_parts,
    notes,
    paired_heaps,
    recording_totals,
    same,
    spread_parts,
    totals_table,
)
from bfcviz.errors import TraceError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model, find_steps
from bfcviz.model.grouping import UNNAMED
from bfcviz.model.timelines import highest_between
from bfcviz.units import format_bytes, signed_bytes

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
        step = find_steps.peak(trace)
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


# ------------------------------------------------------------------------------
# Totals of a recording, against the model at its peak and its end, and plain counts.


def totals_of(trace, moments=()):
    side, _ = sides(trace, trace)
    return recording_totals(side, moments)


@pytest.mark.parametrize(
    "trace", [busy_trace(300), busy_trace(4 * POINTS, seed=1), Training(leak=True).trace()]
)
def test_every_measure_is_that_of_the_model(trace):
    found = totals_of(trace)
    model = Model(trace)
    model.seek(len(trace))
    end = model.stats()
    assert found.peak == find_steps.peak(trace)
    model.seek(found.peak)
    peak = model.stats()
    counts = np.bincount(trace.read(0, len(trace))["kind"], minlength=9).tolist()
    worst = find_steps.worst_fragmentation(trace)
    model.seek(worst)
    at_worst = model.stats()
    times = trace.read(0, len(trace))["time"]
    assert found.values == {
        "peak_bytes_in_use": end.peak_bytes_in_use,
        "peak_pool_bytes": end.peak_pool_bytes,
        "requested_at_peak": peak.requested_bytes_in_use,
        "bytes_in_use_at_end": end.bytes_in_use,
        "pool_bytes_at_end": end.pool_bytes,
        "external_fragmentation": pytest.approx(1 - peak.largest_free_chunk / peak.free_bytes),
        "worst_external_fragmentation": pytest.approx(1 - at_worst.largest_free_chunk / at_worst.free_bytes),
        "peak_reserved_not_in_use": pytest.approx(1 - end.peak_bytes_in_use / end.peak_pool_bytes),
        "internal_fragmentation": pytest.approx(1 - peak.requested_bytes_in_use / peak.bytes_in_use),
        "failures": counts[Kind.OOM],
        "allocations": counts[Kind.ALLOCATE],
        "splits": counts[Kind.SPLIT],
        "merges": counts[Kind.MERGE],
        "extends": counts[Kind.EXTEND],
        "releases": counts[Kind.RELEASE],
        "seconds": (int(times[-1]) - int(times[0])) / 1e9,
    }


def test_the_highest_use_between_moments_is_found_whatever_the_rows():
    trace = busy_trace(4 * POINTS, seed=3)
    moments = [17, 18, 1000, 4321]
    found = totals_of(trace, moments)
    assert len(found.series) <= POINTS + len(moments)
    steps = np.array([0, *moments, len(trace)])
    model, values = Model(trace), [0]
    for step in range(1, len(trace) + 1):
        model.seek(step)
        values.append(model.table.bytes_in_use)
    plain = [max(values[start + 1 : stop + 1], default=0) for start, stop in itertools.pairwise(steps)]
    assert highest_between(found.series, steps).tolist() == plain


def test_what_a_file_does_not_say_is_unknown():
    dump = totals_of(sample_trace("oom_dump"))
    log = totals_of(sample_trace("oom_log"))
    assert (len(dump.series), dump.values["splits"], dump.values["seconds"]) == (0, None, None)
    assert (log.values["requested_at_peak"], log.values["failures"]) == (None, 1)
    rows = {row["measure"]: row for row in totals_table(dump, log).to_pylist()}
    # The dump states its exact peak; the log prints it with four digits, so that of its state counts.
    assert (rows["peak_bytes_in_use"]["a"], rows["peak_bytes_in_use"]["b"]) == (10721280, 10613248)
    assert rows["requested_at_peak"]["change"] is None
    assert {row["unit"] for row in rows.values()} == {"bytes", "share", "count", "seconds"}


# ------------------------------------------------------------------------------
# Holder changes at pairs of steps, against plain sums over the chunks.


def plain(trace, step):
    """Holder -> size, slot and offset of each of its chunks."""
    model = Model(trace)
    model.seek(step)
    bases = {int(region["slot"]): int(region["address"]) for region in model.regions()}
    found = defaultdict(set)
    for chunk in model.in_use():
        slot = int(chunk["region"])
        place = (int(chunk["size"]), slot, int(chunk["address"]) - bases[slot])
        found[trace.labels.name(int(chunk["label"]))].add(place)
    return found


def verdict(mine, theirs):
    sums = [sum(size for size, *_ in places) for places in (mine, theirs)]
    moved = min(sums) - sum(size for size, *_ in mine & theirs)
    return sums[1] - sums[0], moved


@settings(max_examples=30)
@given(operations(), operations())
def test_every_holder_has_its_chunks(first, second):
    a, b, holders = common(trace_of_heap(first), trace_of_heap(second))
    pairs = [PairedStep(str(part), len(a.trace) * part // 3, len(b.trace) * part // 3) for part in range(4)]
    rows = changes_table(holder_changes(a, b, holders, pairs), holders, pairs).to_pylist()
    for pair in pairs:
        mine, theirs = plain(a.trace, pair.a), plain(b.trace, pair.b)
        found = [
            (row["holder"], row["bytes_change"], row["moved_bytes"])
            for row in rows
            if row["moment"] == pair.name
        ]
        names = mine.keys() | theirs.keys()
        assert sorted(found) == sorted(
            (name or "no label", *verdict(mine[name], theirs[name])) for name in names
        )


def heap_with(*labels):
    heap = PlainHeap(MiB)
    for label in labels:
        heap.allocate(4 * KiB, label)
    return heap.trace()


def test_a_place_is_relative_to_its_region():
    a, b = heap_with("x", "y"), heap_with("y", "x")
    events = b.read(0, len(b)).copy()
    events["address"] += 1 << 30  # the region lies elsewhere
    shifted = type(b).from_events(events, b.labels, b.origin)
    for other, moved in ((b, 4 * KiB), (shifted, 4 * KiB)):
        *found, holders = common(a, other)
        changes = holder_changes(*found, holders, [PairedStep("end", len(a), len(b))])
        assert set(changes["moved_bytes"].tolist()) == {moved}
    *found, holders = common(b, shifted)
    changes = holder_changes(*found, holders, [PairedStep("end", len(b), len(b))])
    assert set(changes["moved_bytes"].tolist()) == {0}


def test_moments_of_empty_heaps_have_no_rows():
    trace = heap_with("x")
    a, b, holders = common(trace, trace)
    pairs = [PairedStep("begin", 0, 0), PairedStep("late", 0, len(trace))]
    found = holder_changes(a, b, holders, pairs)
    assert found["moment"].tolist() == [1]
    table = changes_table(found, holders, pairs)
    assert table.to_pylist() == [
        {
            "moment": "late",
            "holder": "x",
            "change": "grew",
            "bytes_change": 4 * KiB,
            "a_bytes": 0,
            "b_bytes": 4 * KiB,
            "a_chunks": 0,
            "b_chunks": 1,
            "moved_bytes": 0,
        }
    ]


# ------------------------------------------------------------------------------
# Growth that is new, gone, faster or slower.


def growing(rate):
    """Twelve steps, after each of which `rate` more chunks of 4 KiB stay."""
    heap = PlainHeap(8 * MiB)
    for step in range(12):
        heap.free(heap.allocate(KiB, "op"))
        for _ in range(rate):
            heap.allocate(LEAK, "cache")
        heap.mark("step", step)
    return heap.trace()


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((0, 2), GrowthVerdict.ONLY_B),
        ((2, 0), GrowthVerdict.ONLY_A),
        ((1, 3), GrowthVerdict.FASTER),
        ((3, 1), GrowthVerdict.SLOWER),
        ((2, 2), GrowthVerdict.SAME),
    ],
)
def test_rates_are_compared(rates, verdict):
    found = growth_changes(*common(*map(growing, rates)))
    assert [(row.holder, row.verdict, row.a, row.b) for row in found.rows] == [
        ("cache", verdict, float(rates[0] * LEAK), float(rates[1] * LEAK))
    ]
    assert found.to_arrow()["b_bytes_a_step"].to_pylist() == [rates[1] * LEAK]


def test_growth_in_both_is_the_same_and_no_growth_is_no_row():
    one, other = Training(leak=True).trace(), Training(leak=True, steps=30).trace()
    assert [row.verdict for row in growth_changes(*common(one, other)).rows] == [GrowthVerdict.SAME]
    calm = Training().trace()
    found = growth_changes(*common(calm, calm))
    assert (len(found.rows), found.reasons) == (0, ("", ""))
    assert min(found.steps) >= 4


def test_steps_without_marks_are_compared_where_both_programs_repeat_the_same():
    found = growth_changes(*common(Training(mark=None).trace(), Training(mark=None, leak=True).trace()))
    assert found.reasons == ("", "")
    assert [(row.holder, row.verdict, row.a) for row in found.rows] == [
        ("history/append", GrowthVerdict.ONLY_B, 0.0)
    ]
    assert found.allocation == "forward/layer_0"
    assert growth_changes(*common(Training().trace(), Training().trace())).allocation == ""


def test_the_answer_says_one_thing_of_steps_without_marks():
    found = compared(Training(mark=None), Training(mark=None, leak=True))
    steps = comparison_json(found)["growth"]
    assert (steps["a_reason"], steps["b_reason"], steps["steps_begin_with"]) == ("", "", "forward/layer_0")
    assert min(steps["a_steps"], steps["b_steps"]) >= 4


def test_without_steps_in_a_growth_of_b_is_listed_and_not_called_new():
    found = growth_changes(*common(Training(mark=None).trace(), Training(leak=True).trace()))
    assert [(row.holder, row.verdict, row.a) for row in found.rows] == [
        ("history/append", GrowthVerdict.UNKNOWN, None)
    ]
    assert (bool(found.reasons[0]), found.reasons[1]) == (True, "")


# ------------------------------------------------------------------------------
# Which heaps of two recordings are compared, and the peak that a log states.


def heaps(*names, failed=None):
    """A trace with an empty heap of each name; the heap `failed` has a failed request."""
    one = state([[1, -2]], 3, 4)
    events = one.read(0, len(one)).copy()
    if failed is None:
        events = events[:-1]
    events["pool"] = names.index(failed) if failed else 0
    pools = tuple(Pool(name.split("!")[0], None, {"allocator_name": name.split("!")[-1]}) for name in names)
    details = {key: value for key, value in one.origin.details.items() if key != "failures"}
    return Trace.from_events(events, one.labels, replace(one.origin, pools=pools, details=details))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((["host", "cuda:0"], None), (["cuda:0", "host"], "cuda:0"), (1, 0)),
        ((["host", "cuda:0"], "host"), (["cuda:0", "host"], None), (0, 1)),
        ((["host", "cuda:0"], "host"), (["cuda:0", "host"], "cuda:0"), (1, 0)),
        ((["host", "cuda:0"], None), (["cuda:0", "host"], None), (0, 1)),
        ((["x", "cuda:0"], None), (["cuda:3"], "cuda:3"), (1, 0)),
        ((["GPU_0_bfc dump 1!GPU_0_bfc"], None), (["cpu", "GPU_0_bfc dump 2!GPU_0_bfc"], None), (0, 1)),
        ((["x", "y"], "y"), (["z"], None), (1, 0)),
        ((["x"], None), (["y", "z"], None), (0, 0)),
    ],
)
def test_heaps_of_one_name_are_compared(a, b, expected):
    first, second = (heaps(*names, failed=failed) for names, failed in (a, b))
    assert paired_heaps(first, second) == expected
    found = bfcviz.compare_recordings(first, second)
    assert (found.a.pool, found.b.pool) == expected


def test_the_peak_of_a_state_is_what_the_file_states():
    before = state([[4, -4]], facts={"peak_bytes_in_use": 6 * MIB})
    after = state([[5, -3]], facts={"peak_bytes_in_use": 7 * MIB})
    found = bfcviz.compare_recordings(before, after)
    assert found.total("peak_bytes_in_use") == (6 * MIB, 7 * MIB)
    assert found.total("bytes_in_use_at_end") == (4 * MIB, 5 * MIB)
    assert sum("6.0 MiB" in note and "4.0 MiB" in note for note in found.notes) == 1
    unknown = bfcviz.compare_recordings(before, state([[5]], facts={"peak_bytes_in_use": None}))
    assert unknown.total("peak_bytes_in_use") == (6 * MIB, 5 * MIB)
    assert sum("peak of B is not known" in note for note in unknown.notes) == 1
    assert not any(
        "states a peak" in note for note in bfcviz.compare_recordings(state([[1]]), state([[2]])).notes
    )


@needs_shared
def test_the_peak_of_a_real_log_is_its_max_in_use():
    logs = [
        SHARED / "real/logs" / name
        for name in ("tf1.4_2017-11_alexnet_k40c.log", "tf2.14_2023-10_cifar10.log")
    ]
    found = bfcviz.compare_recordings(*logs)
    assert found.total("peak_bytes_in_use") == (208404480, 3288551168)
    assert np.isclose(found.totals["change"][0].as_py(), 3288551168 - 208404480)


# ------------------------------------------------------------------------------
# The holders that explain a difference.


paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)


def parts(changes, most=3):
    found, left = main_parts(list(changes), list(changes.values()), "/".join, most)
    return {part.holder: part.bytes for part in found}, left


def test_one_leaf_is_named_whole_and_siblings_by_what_is_around_them():
    most_of_it = {("model", "attention", "scores"): 90, ("model", "mlp"): 5}
    assert parts(most_of_it) == ({"model/attention/scores": 90}, 5)
    assert parts({("model", str(number)): 10 for number in range(8)}) == ({"model": 80}, 0)


def test_parts_that_cancel_out_are_named_apart():
    assert parts({("model", "old"): -100, ("model", "new"): 110, ("model", "rest"): 1}) == (
        {"model/new": 110, "model/old": -100, "model/rest": 1},
        0,
    )


def test_what_is_not_named_is_left():
    changes = {(str(number),): 10 * number for number in range(1, 6)}
    assert parts(changes, most=2) == ({"5": 50, "4": 40}, 60)
    assert parts({("a",): 0, ("b",): 0}) == ({}, 0)
    assert parts({}) == ({}, 0)


@given(st.dictionaries(paths, st.integers(-100, 100), max_size=12), st.integers(1, 4))
def test_named_parts_and_the_rest_are_the_whole_difference(changes, most):
    found, left = main_parts(list(changes), list(changes.values()), "/".join, most)
    assert sum(part.bytes for part in found) + left == sum(changes.values())
    assert len(found) <= most


def spread(changes, most):
    found, left = spread_parts(list(changes), list(changes.values()), "/".join, most)
    return {part.holder: (part.bytes, part.holders) for part in found}, left


def test_a_picture_has_as_many_parts_as_fit():
    changes = {(f"layer_{number}", name): 10 for number in range(3) for name in ("MatMul", "Relu")}
    assert spread(changes, 2) == ({"layer_0": (20, 2), "layer_1": (20, 2)}, 20)
    assert spread(changes, 3)[0].keys() == {"layer_0", "layer_1", "layer_2"}
    assert spread(changes, 6)[0] == {"/".join(path): (10, 1) for path in changes}


def test_small_parts_and_those_of_many_small_ones_are_not_taken_apart():
    changes = {("large",): 1000, ("many", "first"): 30, ("tiny",): 5}
    changes |= {("many", str(number)): 1 for number in range(200)}
    found, left = spread(changes, 10)
    assert found == {"large": (1000, 1), "many": (230, 201)}
    assert left == 5


def test_memory_of_a_holder_itself_stays_beside_that_below_it():
    assert spread({("layer",): 60, ("layer", "Relu"): 40}, 5) == (
        {"layer": (60, 1), "layer/Relu": (40, 1)},
        0,
    )


@given(st.dictionaries(paths, st.integers(-100, 100), max_size=12), st.integers(1, 6))
def test_drawn_parts_and_the_rest_are_the_whole_difference(changes, most):
    found, left = spread_parts(list(changes), list(changes.values()), "/".join, most)
    assert sum(part.bytes for part in found) + left == sum(changes.values())
    assert len(found) <= most


# ------------------------------------------------------------------------------
# What a reader has to know: settings, missing parts, several heaps, lines that moved.


def with_origin(trace, **changes):
    return type(trace).from_events(
        trace.read(0, len(trace)), trace.labels, dataclasses.replace(trace.origin, **changes)
    )


def noted(a, b):
    return list(notes(*common(a, b)))


def test_ordinary_recordings_need_no_note():
    trace = Training().trace()
    assert noted(trace, trace) == []


def test_settings_that_both_say_and_that_differ_are_listed():
    trace = Training().trace()
    pools = [
        (Pool("pool 0", limit, {"allow_growth": grows, f"only_{limit}": 1}),)
        for limit, grows in (("1GiB", True), ("2GiB", False))
    ]  # fmt: skip
    (note,) = noted(*(with_origin(trace, pools=pool) for pool in pools))
    assert "limit 1.0 GiB -> 2.0 GiB" in note
    assert "allow_growth True -> False" in note
    assert "only_" not in note
    unknown = with_origin(trace, pools=(Pool("pool 0"),))
    assert noted(unknown, with_origin(trace, pools=pools[0])) == []


@pytest.mark.parametrize("status", [Status.RECORDING, Status.TRUNCATED, Status.DEGRADED])
def test_what_is_not_complete_is_said_with_its_reasons(status):
    trace = Training().trace()
    reasons = tuple(f"reason {number}" for number in range(5))
    (note,) = noted(trace, with_origin(trace, status=status, reasons=reasons))
    assert note.startswith("B is ")
    assert all(reason in note for reason in reasons[:3])
    assert "2 more" in note


def test_several_heaps_and_other_names_are_said():
    trace = pools_without_events()
    starts = [note[:13] for note in noted(trace, trace)]
    assert starts == ["A has no allo", "A has 3 heaps", "B has no allo", "B has 3 heaps"]
    other = with_origin(Training().trace(), pools=(Pool("gpu"),))
    assert "'gpu'" in noted(Training().trace(), other)[0]


def test_lines_that_moved_are_counted():
    (note,) = noted(Training(line=10).trace(), Training(line=20).trace())
    assert note.endswith("4")
    assert Origin().status is Status.COMPLETE


# ------------------------------------------------------------------------------
# The text of a comparison: the answer first, and nothing that a terminal acts on.


def compared(a, b, **options):
    return bfcviz.compare_recordings(a.trace(), b.trace(), **options)


def test_the_headline_is_the_first_line_and_names_sizes_and_holders():
    found = compared(Training(), Training(more={"forward/attention/scores": 4 * MiB}, leak=True))
    before, after = found.total("peak_bytes_in_use")
    lines = str(found).splitlines()
    assert lines[0] == found.headline
    for fact in (f"{(after - before) / MiB:.1f} MiB more", "forward/attention/scores", "4.0 KiB every step"):
        assert fact in found.headline
    # The other way round it is less, and the leak is gone.
    back = compared(Training(more={"forward/attention/scores": 4 * MiB}, leak=True), Training())
    assert f"{(after - before) / MiB:.1f} MiB less" in back.headline
    assert "every step" not in back.headline


def test_no_change_is_said():
    found = compared(Training(), Training())
    assert found.headline.startswith("no change")
    assert found.parts == ((), 0)


def test_failures_of_one_recording_are_in_the_headline():
    calm, failed = Training().trace(), busy_trace(100)
    found = bfcviz.compare_recordings(calm, failed)
    assert "0 in A, 1 in B" in found.headline
    assert "failed" not in bfcviz.compare_recordings(failed, failed).headline


def test_every_measure_has_a_line():
    found = compared(Training(), Training(leak=True))
    lines = str(found).splitlines()
    start = next(number for number, line in enumerate(lines) if line.split() == ["A", "B", "B", "-", "A"])
    assert lines[start + 1 + found.totals.num_rows] == ""
    allocations = next(line for line in lines if line.startswith("allocations"))
    assert allocations.split() == ["allocations", "49", "61", "+12"]


@pytest.mark.parametrize(
    ("value", "unit", "change", "text"),
    [
        (None, BYTES, False, "unknown"),
        (1536, BYTES, True, "+1.5 KiB"),
        (-0.25, SHARE, True, "-25.0 points"),
        (0.25, SHARE, False, "25.0 %"),
        (-1200, COUNT, True, "-1,200"),
        (-0.0021, SECONDS, True, "-2.1 ms"),
        (2.5, SECONDS, True, "+2.5 s"),
    ],
)
def test_values_have_their_units(value, unit, change, text):
    assert compared_value_text(value, unit, change=change) == text


def test_signs():
    assert [signed_bytes(size) for size in (-256, 0, 256)] == ["-256 B", "0 B", "+256 B"]


def test_hostile_labels_stay_on_their_line():
    found = bfcviz.compare_recordings(busy_trace(50), odd_labels())
    lines = str(found).split("\n")
    assert len(lines) == len(comparison_lines(found)) >= 30
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 2000
