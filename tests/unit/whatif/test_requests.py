from dataclasses import replace

import numpy as np
import pytest
from heaps import MIB
from shared import sample_trace
from unit.figures.synthetic import KiB, MiB, PlainHeap

import bfcviz
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import RecordedHistory
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif.policy_replay import replay
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, are_failed, failed_note, requests_of, stream_of


def heap_with_a_failure():
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), "4MiB")
    first = heap.allocate(MiB, label="a")
    assert heap.try_allocate(16 * MiB, label="b") is None
    heap.mark("step", 7)
    heap.allocate(300, label="c")
    heap.free(first)
    return heap


def test_requests_keep_sizes_labels_and_marks_and_a_failure_is_freed_at_once():
    heap = heap_with_a_failure()
    stream = requests_of(trace_of(heap))
    rows = stream.rows
    assert rows["kind"].tolist() == [ALLOCATE, ALLOCATE, FREE, MARK, ALLOCATE, FREE]
    assert rows["size"].tolist() == [MiB, 16 * MiB, 0, 7, 300, 0]
    assert rows["block"][[0, 1, 4]].tolist() == [0, 1, 2]
    assert rows["block"][[2, 5]].tolist() == [1, 0]
    assert [stream.labels.name(int(number)) for number in rows["label"][[0, 1, 3, 4]]] == [
        "a",
        "b",
        "step",
        "c",
    ]
    assert stream.live_bytes.tolist() == [MiB, 17 * MiB, MiB, MiB, MiB + 300, 300]
    assert stream.limit == 4 * MiB
    assert stream.notes == ()


def test_a_window_requests_what_was_in_use_at_its_first_step():
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), "64MiB", log=EventLog(256))
    kept = [heap.allocate((number + 1) * MiB, label=f"kept_{number}") for number in range(3)]
    for _ in range(300):
        heap.free(heap.allocate(KiB, label="passing"))
    heap.free(kept[1])
    trace = trace_of(heap)
    assert trace.first > 0
    stream = requests_of(trace)
    carried = stream.rows[stream.rows["event"] == -1]
    assert carried["size"][:3].tolist() == [MiB, 2 * MiB, 3 * MiB]
    assert stream.rows["event"].tolist() == sorted(stream.rows["event"].tolist())
    assert stream.rows[-1]["kind"] == FREE
    assert stream.rows[-1]["block"] == 1
    assert stream.live_bytes[-1] == 4 * MiB
    assert f"{len(carried)} chunks" in " ".join(stream.notes)


def test_frees_of_unknown_allocations_are_left_out_and_counted():
    heap = PlainHeap(64 * MiB)
    heap.free(heap.allocate(MiB, "a"))
    heap.free(heap.allocate(MiB, "b"))
    trace = heap.trace()
    events = trace.read(0, len(trace)).copy()
    made = np.flatnonzero(events["kind"] == Kind.ALLOCATE)
    events["kind"][made[0]] = Kind.MARK  # as if it had never been recorded
    stream = requests_of(Trace.from_events(events, trace.labels, trace.origin))
    assert stream.rows["kind"].tolist() == [MARK, ALLOCATE, FREE]
    assert "1 frees" in " ".join(stream.notes)


def test_an_allocation_across_regions_is_requested_once():
    history = RecordedHistory()
    history.at(5, 0)
    history.ledger.grant(0x10000, 1000)
    history.ledger.grant(0x10000 + 1000, 500)
    history.ledger.allocate(0x10000 + 200, 1100, 1050, 0, 3)
    history.at(7, 0)
    history.ledger.allocate(0x10000, 200, 200, 0, 3)  # neighbours that are allocations of their own
    history.ledger.free(0x10000 + 200)
    history.ledger.allocate(0x10000 + 300, 600, 600, 0, 3)
    events = history.events()
    assert (events["kind"] == Kind.ALLOCATE).sum() == 4
    stream = requests_of(Trace.from_events(events, Labels(), Origin()))
    assert stream.rows["kind"].tolist() == [ALLOCATE, ALLOCATE, FREE, ALLOCATE]
    assert stream.rows["size"].tolist() == [1050, 200, 0, 600]
    assert stream.rows["block"].tolist() == [0, 1, 0, 2]
    assert stream.notes == ()


def test_an_empty_trace_asks_for_nothing():
    stream = requests_of(Trace.from_events(PlainHeap(MiB).trace().read(0, 0), Labels(), Origin()))
    assert len(stream) == 0
    assert stream.live_bytes.tolist() == []


@pytest.mark.parametrize("name", ["conv", "lstm", "transformer"])
def test_the_samples_ask_for_what_their_models_hold(name):
    trace = sample_trace(name)
    stream = requests_of(trace)
    events = trace.read(0, len(trace))
    assert stream.allocations == np.isin(events["kind"], (Kind.ALLOCATE, Kind.OOM)).sum()
    live = stream.live_bytes
    model = bfcviz.Model(trace)
    model.seek(len(trace))
    stats = model.stats()
    assert live[-1] == stats.requested_bytes_in_use
    assert live.min() >= 0
    assert live.max() <= stats.peak_bytes_in_use


def test_the_digest_depends_on_the_requests_and_not_on_the_events():
    stream = requests_of(trace_of(heap_with_a_failure()))
    moved = stream.rows.copy()
    moved["event"] += 5
    assert replace(stream, rows=moved, source="another").digest == stream.digest
    other = Labels()
    for number in range(1, int(stream.rows["label"].max()) + 1):
        other.intern(f"another {number}")
    assert replace(stream, labels=other).digest != stream.digest
    assert replace(stream, regions=np.zeros(1, stream.regions.dtype)).digest != stream.digest
    for name in ("kind", "size", "stream", "time"):
        changed = stream.rows.copy()
        changed[name][1] += 1
        assert replace(stream, rows=changed).digest != stream.digest


def test_the_regions_stand_beside_the_requests_that_needed_them():
    memory = bfcviz.SimulatedSubAllocator("contiguous", supports_coalescing=True)
    options = bfcviz.AllocatorOptions(allow_growth=True, garbage_collection=True)
    heap = bfcviz.BFCAllocator(memory, "6MiB", options)
    first = [heap.allocate(MiB), heap.allocate(3 * MiB)]
    heap.mark("step", 1)
    for address in first:
        heap.free(address)
    assert heap.try_allocate(8 * MiB) is None
    trace = trace_of(heap)
    regions = requests_of(trace).regions
    assert regions["request"].tolist() == [0, 1]
    assert regions["size"].tolist() == [2 * MiB, 4 * MiB]
    assert regions["needed"].tolist() == [MiB, 3 * MiB]
    assert regions["joined"].tolist() == [False, True]
    assert np.diff(regions["address"].astype(np.int64)).tolist() == [2 * MiB]


def test_a_region_that_is_released_has_no_size():
    heap = bfcviz.BFCAllocator(
        bfcviz.SimulatedSubAllocator("gapped"),
        "6MiB",
        bfcviz.AllocatorOptions(allow_growth=True, garbage_collection=True),
    )
    heap.free(heap.allocate(2 * MiB))
    heap.allocate(6 * MiB)
    stream = requests_of(trace_of(heap))
    assert stream.regions["size"].tolist() == [2 * MiB, 0, 6 * MiB]
    assert stream.regions["request"].tolist() == [0, 2, 2]
    assert stream.regions["address"][0] == stream.regions["address"][1]


def recorded(history, **more):
    return Trace.from_events(history.events(), Labels(), Origin(**more))


def test_neighbours_in_two_regions_are_two_requests_and_one_across_both_is_one():
    for across in (False, True):
        history = RecordedHistory()
        history.at(1)
        history.ledger.grant(2 * MiB, 2 * MiB)
        history.ledger.grant(4 * MiB, 2 * MiB)
        history.at(2)
        for address, size in [(2 * MiB, 4 * MiB)] if across else [(2 * MiB, 2 * MiB), (4 * MiB, 2 * MiB)]:
            history.ledger.allocate(address, size, size)
        history.at(3)
        history.ledger.free(2 * MiB)
        stream = requests_of(recorded(history))
        assert stream.rows["size"].tolist() == ([4 * MiB, 0] if across else [2 * MiB, 2 * MiB, 0])
        assert stream.live_bytes.tolist() == ([4 * MiB, 0] if across else [2 * MiB, 4 * MiB, 2 * MiB])


@pytest.mark.parametrize("size", [(1 << 62) + 5, (1 << 63) - 1, (1 << 64) - 1])
@pytest.mark.parametrize("name", ["bfc", "buddy", "torch", "xla", "packed", "live_bytes"])
def test_a_request_of_impossible_size_fails_under_every_policy(name, size):
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "a")
    heap.record(Kind.OOM, requested=size)
    outcome = policy_of(name).serve(requests_of(heap.trace()), 64 * MiB)
    assert outcome.failures.tolist() == [1]


def test_without_a_limit_it_is_what_the_heap_had_when_a_request_failed():
    history = RecordedHistory()
    history.at(1)
    history.ledger.grant(2 * MiB, 6 * MiB)
    history.ledger.allocate(2 * MiB, MiB, MiB)
    history.ledger.oom(64 * MiB)
    event = len(history.events()) - 1
    stream = requests_of(recorded(history))
    assert stream.limit == 6 * MiB
    assert "6.0 MiB" in " ".join(stream.notes)
    free = {"failures": [{"event": event, "device_free": MiB}]}
    assert requests_of(recorded(history, details=free)).limit == 7 * MiB
    assert requests_of(recorded(history, pools=(Pool("bfc", 8 * MiB),))).limit == 8 * MiB
    assert requests_of(recorded(RecordedHistory())).limit is None


def test_a_trace_that_ends_with_its_failure_says_what_is_missing():
    heap = heap_with_a_failure()  # it is served again after the failure
    complete = len(requests_of(trace_of(heap)).notes)
    assert heap.try_allocate(64 * MiB, label="d") is None
    cut = requests_of(trace_of(heap))
    assert (complete, len(cut.notes)) == (0, 1)
    assert "failed" in cut.notes[0]


def test_one_of_several_heaps_is_named():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "a")
    events = heap.trace().read(0, len(heap.events))
    two = Trace.from_events(events, heap.labels, Origin(pools=(Pool("cuda:0"), Pool("cuda:1"))))
    assert "cuda:1" in " ".join(requests_of(two, 1).notes)


def test_it_says_in_a_line_what_it_is():
    stream = requests_of(sample_trace("lstm"))
    assert f"{len(stream):,} requests" in repr(stream)
    assert "\n" not in repr(stream)


# ------------------------------------------------------------------------------
# Requests that failed in the trace: a job may have gone on without them.


@pytest.fixture
def tolerated():
    """8 MiB: four blocks, a workspace that does not fit and is not needed, and the end of the job."""
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 8 * MIB)
    kept = [heap.allocate(MIB, label=f"kept {number}") for number in range(4)]
    assert heap.try_allocate(64 * MIB, label="workspace") is None
    for address in kept:
        heap.free(address)
    return trace_of(heap)


def test_without_them_the_job_needs_what_it_had(tolerated):
    stream = stream_of(tolerated)
    assert (len(stream), int(are_failed(stream.rows).sum())) == (10, 2)
    assert stream.live_bytes.max() == 68 * MIB
    assert "4.0 MiB" in failed_note(stream)
    assert failed_note(stream) in stream.notes
    rest = stream.without_failed()
    assert (len(rest), rest.live_bytes.max()) == (8, 4 * MIB)
    assert failed_note(rest) == ""
    assert failed_note(stream) not in rest.notes
    assert replay(rest, "bfc", 8 * MIB).fits
    assert not replay(stream, "bfc", 8 * MIB).fits


def test_each_question_leaves_them_out_where_it_is_asked_to(tolerated):
    limit = 8 * MIB
    rest = stream_of(tolerated, with_failed=False)
    assert (len(rest), rest.left_out) == (8, 1)
    assert stream_of(stream_of(tolerated), with_failed=False).left_out == 1
    for left_out in (True, False):
        words = {"with_failed": not left_out}
        assert bfcviz.replay(tolerated, "bfc", limit, **words).fits is left_out
        assert (
            bfcviz.compare_policies(tolerated, "bfc", limit, **words).comparison.results[0].outcome.fits
            is left_out
        )
        assert (bfcviz.best_options(tolerated, "bfc", limit, **words).best is not None) is left_out
        assert (bfcviz.smallest_limit(tolerated, "bfc", **words).limit_bytes <= limit) is left_out
        assert (bfcviz.largest_batch(tolerated, "bfc", limit, **words).factor >= 1) is left_out
        assert bfcviz.sweep(tolerated, "bfc", limit, **words).points[0].fits is left_out


def test_blocks_and_regions_keep_their_requests(tolerated):
    stream = stream_of(tolerated)
    rest = stream.without_failed()
    frees = rest.rows["kind"] == FREE
    assert rest.rows["block"][~frees].tolist() == rest.rows["block"][frees].tolist() == [0, 1, 2, 3]
    assert rest.rows["event"].tolist() == [
        event
        for event, failed in zip(stream.rows["event"], are_failed(stream.rows), strict=True)
        if not failed
    ]
    for before, after in zip(stream.regions, rest.regions, strict=True):
        assert stream.rows["event"][before["request"]] == rest.rows["event"][after["request"]]


def test_a_stream_without_failures_stays_itself():
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 8 * MIB)
    heap.free(heap.allocate(MIB))
    stream = stream_of(trace_of(heap))
    assert stream.without_failed() is stream
    assert (failed_note(stream), stream.notes) == ("", ())
    assert not are_failed(np.zeros(0, stream.rows.dtype)).any()
