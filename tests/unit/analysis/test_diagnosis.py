"""The verdict on built heaps, with numbers counted by hand."""

import time
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from conformance import compare
from heaps import new_heap
from shared import ROOT, SHARED, needs_shared
from unit.analysis.built import BASE, MIB, state
from unit.figures.synthetic import MiB, PlainHeap

import bfcviz
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.analysis.diagnosis import (
    AdviceKind,
    Verdict,
    failure_headline,
    failure_lines,
    without_failure,
)
from bfcviz.analysis.failures import all_failures, diagnose, diagnosis_json
from bfcviz.analysis.peak_headline import peak_headline
from bfcviz.analysis.would_fit import would_fit
from bfcviz.errors import OutOfMemory, TraceError
from bfcviz.events.origin import RecordedFailure, Status
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.failure import failure_table
from bfcviz.model.find_steps import MOST_FAILURES, failures_left_out
from bfcviz.model.model import Model
from bfcviz.model.trace_from_source import trace_of


def verdict(*args, **kwargs):
    trace = state(*args, **kwargs)
    return diagnose(trace, len(trace) - 1)


@pytest.mark.parametrize(
    ("expected", "regions", "asked", "limit"),
    [
        (Verdict.ABOVE_LIMIT, [[4, -4]], 9, 8),
        (Verdict.CAPACITY, [[4, -4]], 5, 8),
        (Verdict.CAPACITY, [[4, -4]], 5, None),
        (Verdict.CAPACITY, [[4, -4]], 6, 13),  # 5 MiB of room
        (Verdict.REFUSED, [[4, -4]], 5, 13),
        (Verdict.REFUSED, [[4, -4, 1, -4]], 5, 64),  # enough is free, too
        (Verdict.FRAGMENTATION, [[4, -4, 1, -4]], 5, 13),
        (Verdict.FRAGMENTATION, [[4, -4, 1, -4]], 5, None),
        (Verdict.FRAGMENTATION, [[-4], [8, -4]], 6, 16),
        (Verdict.REGIONS, [[1, -4], [-4]], 6, 9),  # none is that large
        (Verdict.REGIONS, [[-3], [-3], [6, -1]], 6, 13),  # both free ones together
        (Verdict.REGIONS, [[-3], [8, -3]], 5, 16),  # one of them, and 2 MiB of room
        (Verdict.UNKNOWN, [[4, -4]], 4, 8),  # one is large enough
    ],
)
def test_the_verdict(expected, regions, asked, limit):
    assert verdict(regions, asked, limit).verdict is expected


def test_the_chunks_of_that_moment_are_not_in_the_file():
    found = verdict([[4, -4]], 5, 8, has_heap=False)
    assert found.verdict is Verdict.UNKNOWN
    assert found.runs == ()
    assert verdict([[4, -4]], 9, 8, has_heap=False).verdict is Verdict.ABOVE_LIMIT


def test_fragmentation_names_the_best_runs_and_what_pins_them():
    found = verdict([[-2, 3, -2, 1, -2, 1, -2]], 5, 13)
    assert (found.free_bytes, found.largest_free_chunk, found.external_fragmentation) == (
        8 * MIB,
        2 * MIB,
        0.75,
    )
    assert [(run.bytes_in_use, run.size, run.address - BASE) for run in found.runs] == [
        (MIB, 5 * MIB, 5 * MIB),  # both places with 1 MiB in use overlap: the lower one counts
        (3 * MIB, 7 * MIB, 0),
    ]
    first = found.runs[0]
    assert [(pin.address - BASE, pin.size, pin.label) for pin in first.pins] == [(7 * MIB, MIB, "op3")]
    assert found.pinned_by == first.pins
    unnamed = replace(found, runs=(replace(first, pins=(replace(first.pins[0], label=""),)),))
    assert [each.tables[-2].rows[0][0] for each in (found, unnamed)] == ["op3", "no label"]
    assert [row[0] for row in found.tables[-1].rows] == [each.text for each in found.advice]
    assert (first.pins[0].age, first.pins[0].age_s, first.pins[0].freed) == (None, None, None)


def test_the_regions_that_are_wholly_free_are_named():
    found = verdict([[-3], [6, -1], [-4]], 5, 14)
    assert (found.regions.count, found.regions.largest) == (3, 7 * MIB)
    assert [(address - BASE, size // MIB) for address, size in found.regions.wholly_free] == [
        (0, 3),
        (12 * MIB, 4),
    ]
    assert found.regions.free_bytes == 7 * MIB


def test_waste_is_counted_from_chunks_unless_the_file_says_otherwise():
    pieces = [[(4, 1), -1, (2, 2)]]
    assert verdict(pieces, 3, 7).wasted == 3 * MIB
    assert verdict(pieces, 3, 7, facts={"requested_bytes_in_use": None}).wasted is None
    assert verdict(pieces, 3, 7, facts={"requested_bytes_in_use": 2 * MIB}).wasted == 4 * MIB
    assert (
        verdict(pieces, 3, 7, facts={"requested_bytes_in_use": None}, in_use_requested=MIB).wasted == 5 * MIB
    )


def test_the_four_sizes():
    found = verdict([[4, -4]], 5, 8, device_free=10 * MIB, device_total=30 * MIB)
    assert (found.bytes_limit, found.pool_bytes, found.bytes_in_use) == (8 * MIB, 8 * MIB, 4 * MIB)
    assert found.device_used == 20 * MIB
    assert verdict([[4, -4]], 5, 8).device_used is None


@pytest.mark.parametrize(
    ("framework", "recorded", "rounded"),
    [
        ("tensorflow", {}, 5 * MIB + 256),
        ("torch", {}, 5 * MIB + 512),
        ("tensorflow", {"rounded": 6 * MIB}, 6 * MIB),
    ],
)
def test_rounding_follows_the_framework(framework, recorded, rounded):
    assert verdict([[4, -4]], 5 + 1 / MIB, 8, framework=framework, **recorded).rounded == rounded


def test_would_it_fit_with_the_divisions_of_pytorch():
    """5 MiB and 1 byte are rounded up to 6 MiB by 4 divisions, to 5 MiB and 512 bytes by none."""
    by_size = {str(1 << place): 4 * (place > 1) for place in range(16)}
    for divisions, expected in ((0, Verdict.NO_FAILURE), (4, Verdict.UNKNOWN), (by_size, Verdict.UNKNOWN)):
        trace = state([[4, -5.5]], framework="torch", options={"roundup_power2_divisions": divisions})
        assert would_fit(trace, len(trace), 5 * MIB + 1).verdict is expected


def test_a_limit_as_large_as_the_device_is_no_limit_of_pytorch():
    found = verdict([[4, -4, 4, -4]], 5, 64, framework="torch", device_free=2 * MIB, device_total=64 * MIB)
    assert (found.verdict, found.bytes_limit) == (Verdict.FRAGMENTATION, None)
    row = next(line for line in str(found).split("\n") if line.strip().startswith("limit"))
    assert "64.0 MiB" in row


@pytest.mark.parametrize(
    ("size", "limit", "expected"),
    [
        (4, 13, Verdict.NO_FAILURE),
        (5, 13, Verdict.FRAGMENTATION),
        (5, 18, Verdict.NO_FAILURE),
        (9, 13, Verdict.CAPACITY),
        (9, None, Verdict.UNKNOWN),  # the limit decides
        (14, 13, Verdict.ABOVE_LIMIT),
    ],
)
def test_would_it_fit_now(size, limit, expected):
    trace = state([[4, -4, 1, -4]], limit=limit)
    found = would_fit(trace, len(trace), size * MIB)
    assert (found.verdict, found.event, found.step) == (expected, None, len(trace))


def test_a_question_has_a_size_and_a_failure_an_oom():
    trace = state([[4, -4]], 5, 8)
    for size in (0, -1, 1 << 62):
        with pytest.raises(ValueError, match="give a number of bytes"):
            would_fit(trace, len(trace), size)
    with pytest.raises(TraceError, match="is not an OOM: it is EXTEND"):
        diagnose(trace, 0)


def test_a_recording_tells_how_old_a_pin_is_and_when_it_is_freed():
    heap = new_heap(8 * MIB)
    first, second, third = (
        heap.allocate(size * MIB, label=name) for size, name in ((3, "a"), (2, "b"), (3, "c"))
    )
    heap.free(first)
    heap.free(third)
    assert heap.try_allocate(4 * MIB, label="asker") is None
    heap.free(second)
    trace = trace_of(heap)
    (found,) = all_failures(trace)
    assert (found.verdict, found.label) == (Verdict.FRAGMENTATION, "asker")
    (pin,) = found.pinned_by
    assert (pin.label, pin.requested, pin.freed) == ("b", 2 * MIB, found.event + 1)
    born = next(
        int(each["seq"])
        for each in trace.read(0, len(trace))
        if each["kind"] == 3 and each["size"] == 2 * MIB
    )
    assert pin.age == found.event - 1 - born
    times = trace.read(0, len(trace))["time"]
    assert pin.age_s == pytest.approx((times[found.event - 1] - times[born]) / 1e9)


@pytest.mark.parametrize(
    ("facts", "framework", "numbers"),
    [
        ({}, "tensorflow", (2 * MIB, None)),
        ({"requested_bytes_in_use": None}, "tensorflow", (None, None)),
        ({"requested_bytes_in_use": None}, "torch", (None, 3)),
    ],
)
def test_numbers_of_a_pin_that_the_file_does_not_have_are_none(facts, framework, numbers):
    trace = state([[-3, 2, -3]], asked=4, limit=8, facts=facts, framework=framework, streams=(3,))
    model = Model(trace)
    found = diagnose(trace, len(trace) - 1, model)
    (pin,) = found.pinned_by
    assert (pin.requested, pin.stream) == numbers
    (told,) = diagnosis_json(found)["pinned_by"]
    assert (told["requested"], told["stream"]) == numbers
    column = failure_table(found, model)["requested"].to_pylist()
    assert any(each is not None for each in column) == ("requested_bytes_in_use" not in facts)


def test_a_sub_allocator_that_refuses():
    heap = new_heap(64 * MIB, SimulatedSubAllocator(capacity=4 * MIB), allow_growth=True)
    heap.allocate(2 * MIB)
    assert heap.try_allocate(8 * MIB) is None
    (found,) = all_failures(trace_of(heap))
    assert (found.verdict, found.room) == (Verdict.REFUSED, 62 * MIB)


def test_a_retry_that_succeeds_is_no_failure():
    heap = new_heap(8 * MIB, allow_growth=True, garbage_collection=True)
    held = heap.allocate(2 * MIB)
    heap.free(held)
    heap.allocate(8 * MIB)
    assert all_failures(trace_of(heap)) == []


SHAPE = ("pool_bytes", "free_bytes", "largest_free_chunk", "external_fragmentation", "regions", "chunks_free")


def test_without_known_free_memory_there_is_no_verdict_and_no_number():
    trace = state([[4, -2, 1]], 3, facts=dict.fromkeys(SHAPE))
    failed, asked, quiet = diagnose(trace, len(trace) - 1), would_fit(trace, 5, MIB), without_failure(trace)
    assert [each.verdict for each in (failed, asked)] == [Verdict.UNKNOWN] * 2
    assert [each.kind for each in failed.advice] == [AdviceKind.RERUN] * 2
    assert "The file does not say what was free" in failed.advice[0].text
    found = diagnosis_json(quiet)
    assert {found[name] for name in (*SHAPE[:5], "free_chunks", "largest_region")} == {None}
    assert (found["bytes_in_use"], found["chunks_in_use"]) == (5 * MIB, 2)
    for each in (failed, asked, quiet):
        text = str(each)
        assert [line.split("  ")[-1].strip() for line in text.splitlines() if "free" in line[:22]] == [
            "unknown",
            "unknown",
        ]
        assert "5.0 MiB in 2 chunks" in text
        assert "0.000" not in text
    assert "may fit or not" in str(asked)


def test_capacity_needs_only_the_free_bytes():
    unknown = dict.fromkeys(("regions", "chunks_free", "largest_free_chunk", "external_fragmentation"))
    found = verdict([[4, -2, 1]], 3, 8, facts=unknown)
    assert found.verdict is Verdict.CAPACITY
    assert {each.kind for each in found.advice} == {AdviceKind.OTHER_USERS, AdviceKind.LARGER_LIMIT}
    assert "free in the pool        2.0 MiB\n" in str(found)
    assert verdict([[4, -2, 1, -2]], 3, facts=unknown).verdict is Verdict.UNKNOWN


def test_a_report_in_a_notebook_breaks_lines_between_words():
    found = verdict([[1, -4], [-4]], 6, 9)
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 110
    assert [*map(str.split, failure_lines(found))] != [*map(str.split, lines)]
    assert " ".join(failure_lines(found)).split() == " ".join(lines).split()


def test_of_very_many_failures_the_first_are_diagnosed(monkeypatch):
    monkeypatch.setattr("bfcviz.model.find_steps.MOST_FAILURES", 3)
    heap = new_heap(MIB)
    for number in range(5):
        assert heap.try_allocate(2 * MIB, label=f"asker {number}") is None
    trace = trace_of(heap)
    assert [each.label for each in all_failures(trace)] == ["asker 0", "asker 1", "asker 2"]
    assert failures_left_out(trace) == 2
    assert diagnose(trace, len(trace) - 1).label == "asker 4"
    monkeypatch.setattr("bfcviz.model.find_steps.MOST_FAILURES", 5)
    assert failures_left_out(trace) == 0


def test_the_time_is_proportional_to_the_number_of_failures():
    """The file names 10,000 failures: each is looked up once, not in a list of all."""
    heap = new_heap(MIB)
    for _ in range(10_000):
        heap.try_allocate(2 * MIB)
    trace = trace_of(heap)
    events = trace.read(0, len(trace))
    named = [
        RecordedFailure(event).to_json() for event in np.flatnonzero(events["kind"] == Kind.OOM).tolist()
    ]
    many = Trace.from_events(events, trace.labels, replace(trace.origin, details={"failures": named}))
    begun = time.process_time()
    assert len(all_failures(many, runs=0)) == MOST_FAILURES
    assert time.process_time() - begun < 5  # it took a minute


# ------------------------------------------------------------------------------
# Who held the heap when a request failed: the holders of a diagnosis, and the advice that begins with the largest.


FILE = SHARED / "real/snapshots/torch_code_location_2.6M.pickle"


def failure_of(*sizes_of, request=8 * MIB):
    heap = new_heap(16 * MIB)
    for label, size in sizes_of:
        heap.allocate(size, label=label)
    with pytest.raises(OutOfMemory):
        heap.allocate(request, label="request")
    (found,) = all_failures(trace_of(heap))
    return found


def test_the_largest_are_named_and_the_others_counted_together():
    found = failure_of(*((name, size * MIB) for name, size in zip("aabcde", (3, 3, 4, 2, 1, 1), strict=True)))
    assert found.held_by == (
        ("a", 6 * MIB, 2),
        ("b", 4 * MIB, 1),
        ("c", 2 * MIB, 1),
        ("2 others", 2 * MIB, 2),
    )
    assert [each["name"] for each in diagnosis_json(found)["held_by"]] == ["a", "b", "c", "2 others"]
    assert found.verdict is Verdict.CAPACITY
    assert f" {6 / 14:.0%} of the bytes in use " in failure_headline(found)  # as the list of holders
    (advice,) = (each for each in found.advice if each.kind is AdviceKind.LARGEST_HOLDER)
    assert advice.numbers == {"bytes": 6 * MIB, "chunks": 2, "missing": 6 * MIB}


def test_one_that_is_left_is_named_as_the_others_are():
    found = failure_of(*((name, 4 * MIB) for name in "abcd"), request=4 * MIB)
    assert [each.name for each in found.held_by] == list("abcd")


def test_a_holder_of_less_than_is_missing_is_no_place_to_begin():
    found = failure_of(*((name, MIB) for name in "abcdefghijklmno"))
    assert found.verdict is Verdict.CAPACITY
    assert AdviceKind.LARGEST_HOLDER not in {each.kind for each in found.advice}


def test_without_names_there_is_no_holder():
    assert failure_of(("", 12 * MIB)).held_by == ()


@needs_shared
def test_a_real_failure_names_the_lines_that_hold_most():
    found = all_failures(trace := bfcviz.open(FILE))[0]
    model = Model(trace, found.pool)
    model.seek(found.step)
    sums = Counter()
    for chunk in model.in_use():
        sums[trace.labels.name(int(chunk["label"]))] += int(chunk["size"])
    assert [(each.name, each.bytes) for each in found.held_by[:3]] == sums.most_common(3)
    assert sum(each.bytes for each in found.held_by) == found.bytes_in_use
    assert sum(each.chunks for each in found.held_by) == found.chunks_in_use


# ------------------------------------------------------------------------------
# The headline of a failure, for each verdict; and of a peak.


def headline(regions, **options):
    trace = state(regions, **options)
    return failure_headline(diagnose(trace, len(trace) - 1))


@pytest.mark.parametrize(
    ("regions", "options", "facts"),
    [
        ([[4, -4, 1, -4, 4]], {"asked": 6, "limit": 17}, ["6.0 MiB", "4.0 MiB of 8.0 MiB free", "by op2"]),
        ([[10]], {"asked": 2, "limit": 10}, ["2.0 MiB", "0 B free", "10.0 MiB is full"]),
        ([[4]], {"asked": 32, "limit": 16}, ["32.0 MiB", "limit of 16.0 MiB"]),
        ([[4]], {"asked": 4, "limit": 16}, ["no region granted", "12.0 MiB"]),
        ([[-4], [-4]], {"asked": 6, "limit": 8}, ["4.0 MiB of 8.0 MiB", "2 regions", "4.0 MiB"]),
        ([[-4]], {"asked": 2, "limit": 4}, ["do not show why"]),
        ([[-4]], {"asked": 2, "limit": 4, "has_heap": False}, ["does not show the heap"]),
        ([[4, -4, 1, -4]], {"asked": 6, "limit": 13, "is_exact": False}, ["about 6.0 MiB"]),
        ([[4, -4, 1, -4]], {"asked": 6, "limit": 13, "names": False}, ["unnamed chunk of 1.0 MiB"]),
        (
            [[4, -4, 1, 1, -4]],
            {"asked": 7, "limit": 14, "names": False},
            ["fragmented by 2.0 MiB in 2 unnamed chunks"],
        ),
        ([[4, -4, 1, 1, -4]], {"asked": 7, "limit": 14}, ["fragmented by op2 and 1 other"]),
        ([[4, -4, 1, -4]], {"asked": 0, "limit": 13}, ["how many bytes"]),
        ([[4, -4, 1, -4]], {"asked": 4 + 1 / 4096, "limit": 13}, ["4.0 MiB (-256 B) of 8.0 MiB"]),
    ],
)
def test_it_has_the_numbers_and_the_reason(regions, options, facts):
    found = headline(regions, **options)
    assert found.startswith("OOM")
    assert [fact for fact in facts if fact not in found] == []


@pytest.mark.parametrize(
    ("region", "is_full"), [([64], True), ([63.5, -0.5], True), ([63, -1], False), ([21, -43], False)]
)
def test_a_pool_is_full_only_where_nearly_nothing_is_free(region, is_full):
    trace = state([region], asked=45, limit=64)
    found = diagnose(trace, len(trace) - 1)
    assert found.verdict is Verdict.CAPACITY
    assert found.is_full == is_full
    assert [" full" in text for text in (failure_headline(found), found.reason)] == [is_full] * 2


def peak_of(*allocations):
    heap = PlainHeap(64 * MiB)
    for size, label, *details in allocations:
        heap.allocate(size * MiB, label, **(details[0] if details else {}))
    trace = heap.trace()
    model = Model(trace)
    model.seek(len(trace))
    return peak_headline(model)


def test_the_peak_names_the_innermost_large_holder():
    found = peak_of(*((1, f"net/conv/{name}") for name in "abcdef"), (1, "other"))
    assert "7.0 MiB in use" in found
    assert "86% held by net/conv" in found


def test_a_peak_without_names_names_the_line():
    stack = {"stack": "work (train.py:41)\nmain (train.py:80)"}
    assert "held by train.py:41" in peak_of((2, "", stack))
    assert "held by" not in peak_of((2, ""))


def test_an_empty_heap_has_no_peak():
    assert "No allocation" in peak_of()


# ------------------------------------------------------------------------------
# Failures of TensorFlow's own heap: golden traces, and logs that users posted.


GOLDEN = sorted((ROOT / "tests" / "data" / "golden").glob("*.npz"))
LOGS = SHARED / "real" / "logs"

needs_log_reader = pytest.mark.skipif(
    find_spec("bfcviz.importers.bfc_log") is None or find_spec("bfcviz.importers.bfc_log.read") is None,
    reason="logs are not read yet",
)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_failed_request_of_a_golden_trace(path):
    golden = compare.Trace(path)
    trace = trace_of(golden.allocator)
    golden.run()
    trace.refresh()
    asked = golden.z["size"][(golden.z["op"] == 0) & (golden.z["offset"] == -1) & (golden.z["size"] > 0)]
    found = all_failures(trace)
    assert [each.requested for each in found] == asked[-len(found) :].tolist() if found else len(asked) == 0
    for each in found:
        assert each.verdict is plain_verdict(each, golden.allocator.limit)


def plain_verdict(found, limit):
    """The verdict by its definition, from the numbers of the heap."""
    if found.rounded > limit:
        return Verdict.ABOVE_LIMIT
    if found.largest_free_chunk >= found.rounded:
        return Verdict.UNKNOWN
    if limit - found.pool_bytes >= found.rounded:
        return Verdict.REFUSED
    if found.free_bytes < found.rounded:
        return Verdict.CAPACITY
    releasable = sum(size for _, size in found.regions.wholly_free) + max(0, limit - found.pool_bytes)
    if found.regions.largest < found.rounded or releasable >= found.rounded:
        return Verdict.REGIONS
    return Verdict.FRAGMENTATION


@needs_shared
@needs_log_reader
@pytest.mark.parametrize(
    ("name", "verdict", "asked", "free", "largest"),
    [
        ("tf2.14_2023-10_cifar10", "fragmentation", 585.9, 2_913_752_064, 558_759_936),
        ("tf1.12_2019-04_summit_resnet_1gpu", "fragmentation", 392.0, 633_304_576, 325_018_112),
        ("xla_2025-01_reactant", "capacity", 4_000_000_000 / MIB, 2_995_773_440, 2_995_773_440),
    ],
)
def test_the_first_failure_of_a_real_log(name, verdict, asked, free, largest):
    found = all_failures(bfcviz.open(LOGS / f"{name}.log"))[0]
    assert (found.verdict, found.free_bytes, found.largest_free_chunk) == (verdict, free, largest)
    assert found.requested / MIB == pytest.approx(asked, abs=0.05)
    places = [run for run in found.runs if run.bytes_in_use < found.rounded]
    assert bool(places) == (verdict == "fragmentation")
    assert np.all([run.size >= found.rounded for run in found.runs])


@needs_shared
@needs_log_reader
@pytest.mark.parametrize("name", ["tf1.4_2017-11_alexnet_k40c", "tf2.14_2023-10_cifar10"])
def test_what_the_file_lacks_is_about_the_chunks_of_the_best_place(name):
    found = all_failures(bfcviz.open(LOGS / f"{name}.log"))[0]
    told = [each.numbers["chunks"] for each in found.advice if "unnamed" in each.numbers]
    assert told == [found.runs[0].chunks_in_use]
    assert told == [len(found.pinned_by or found.runs[0].pins)]


@needs_shared
@needs_log_reader
def test_four_chunks_of_thousands_decide_nothing():
    log = LOGS / "tf2.2_windows_cvnn_truncated.log"
    found = all_failures(trace := bfcviz.open(log))[0]
    assert (found.verdict, found.pool_bytes) == ("unknown", 216_320)
    assert trace.origin.status is Status.DEGRADED
    (failure,) = bfcviz.why(log).failures
    assert (str(failure.judgement.cause), failure.stated.fact("requested")) == ("capacity", 115_200)
    assert failure.stated.fact("in_use") == 568_350_976
