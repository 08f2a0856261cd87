"""The verdict on built heaps, with numbers counted by hand."""

import time
from dataclasses import replace

import numpy as np
import pytest
from heaps import new_heap
from unit.analysis.built import BASE, MIB, state

from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
from bfcviz.analysis.diagnosis import AdviceKind, Verdict, failure_lines, without_failure
from bfcviz.analysis.diagnosis_json import diagnosis_json
from bfcviz.analysis.fit import would_fit
from bfcviz.analysis.why import all_failures, diagnose
from bfcviz.errors import TraceError
from bfcviz.events.origin import RecordedFailure
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.navigation import MOST_FAILURES, failures_left_out
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
    monkeypatch.setattr("bfcviz.model.navigation.MOST_FAILURES", 3)
    heap = new_heap(MIB)
    for number in range(5):
        assert heap.try_allocate(2 * MIB, label=f"asker {number}") is None
    trace = trace_of(heap)
    assert [each.label for each in all_failures(trace)] == ["asker 0", "asker 1", "asker 2"]
    assert failures_left_out(trace) == 2
    assert diagnose(trace, len(trace) - 1).label == "asker 4"
    monkeypatch.setattr("bfcviz.model.navigation.MOST_FAILURES", 5)
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
