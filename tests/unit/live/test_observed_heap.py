"""ObservedHeap: reports from any thread, rounded and checked, with labels and totals, written by a Ledger."""

import gc

import numpy as np
import pytest
from heaps import KIB, MIB
from threads import in_threads

import bfcviz
from bfcviz.dashboard.live_dashboard import LiveDashboard
from bfcviz.errors import InvalidRequest
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live import observed_heap
from bfcviz.live.observed_heap import ObservedHeap, Polling
from bfcviz.model import Model
from bfcviz.model.pool_state import PoolState

BASE = 0x7000_0000


def observed(**options):
    return ObservedHeap(EventLog(1 << 16), **options)


def test_the_model_agrees_while_it_is_in_use():
    heap = observed()
    heap.grant(BASE, MIB)
    for number in range(20):
        heap.allocate(BASE + number * 2048, 1024, label=f"op{number}", stream=number % 3)
    for number in range(0, 20, 3):
        heap.free(BASE + number * 2048)
    chunks = heap.moment().chunks
    events = Reader(heap.log, 0).read(1 << 20)
    table = PoolState()
    table.apply(events)
    rows = np.sort(table.chunk_rows(), order="address")
    for name in ("address", "size", "handle", "region", "label", "thread", "stream"):
        assert rows[name].tolist() == chunks[name].tolist()
    stats = heap.stats()
    for name in ("bytes_in_use", "requested_bytes_in_use", "pool_bytes", "free_bytes", "largest_free_chunk"):
        assert getattr(stats, name) == getattr(table, name)
    assert (stats.num_allocs, stats.chunks_in_use, stats.regions) == (20, 13, 1)


@pytest.mark.parametrize("device_free", [None, 3 * MIB])
def test_a_recording_tells_the_limit_and_the_devices_memory_at_a_failure(tmp_path, device_free):
    with Recording(tmp_path / "run", details={"framework": "cupy"}) as recording:
        heap = ObservedHeap(recording, limit=16 * MIB, unit=512, device_total=32 * MIB)
        heap.grant(BASE, 8 * MIB)
        heap.allocate(BASE, 6 * MIB)
        heap.oom(9 * MIB, "layer", device_free=device_free)
    found = bfcviz.why(tmp_path / "run")
    assert (found.bytes_limit, found.room, found.requested) == (16 * MIB, 8 * MIB, 9 * MIB)
    assert (found.recorded.device_free, found.device_used) == (device_free, device_free and 29 * MIB)
    assert "unknown" not in next(line for line in str(found).split("\n") if line.strip().startswith("limit"))


def test_inconsistent_reports_are_counted():
    heap = observed()
    heap.grant(BASE, MIB)
    heap.allocate(BASE, 512)
    before = heap.log.head
    heap.free(BASE + 512)
    heap.free(0)  # nothing, as in C
    heap.allocate(BASE + 256, 512)
    heap.grant(BASE, KIB)
    heap.release(BASE)
    assert heap.log.head == before
    found = heap.inconsistencies
    assert (found.unknown_frees, found.overlaps, found.overlapping_grants) == (1, 1, 1)
    assert (found.unknown_releases, found.left_out) == (1, 4)


def in_use_of(heap):
    chunks = heap.moment().chunks
    return chunks[chunks["in_use"]][["address", "size", "requested_size"]].tolist()


def test_sizes_are_rounded_up_to_the_unit():
    heap = observed(unit=512)
    heap.allocate(BASE, 700)
    assert in_use_of(heap) == [(BASE, 1024, 700)]


@pytest.mark.parametrize(
    "report",
    [
        lambda heap: heap.allocate(BASE, 0),
        lambda heap: heap.allocate(BASE, 256, requested=257),
        lambda heap: heap.allocate(BASE, 256, stream=1 << 16),
        lambda heap: heap.allocate(BASE, 256, label=9),
        lambda heap: heap.allocate(-1, 256),
        lambda heap: heap.grant(BASE, -1),
        lambda heap: heap.oom(0),
        lambda heap: ObservedHeap(unit=0),
    ],
)
def test_numbers_no_memory_can_have_are_refused(report):
    heap = observed()
    with pytest.raises(InvalidRequest):
        report(heap)
    assert heap.log.head == 0


def test_failures_and_marks_are_events_too():
    heap = observed()
    heap.grant(BASE, MIB)
    heap.oom(2 * MIB, label="attention", stream=2)
    heap.mark("step", 7)
    _, oom, mark = Reader(heap.log, 0).read(10)
    assert (oom["address"], oom["size"], oom["requested"], oom["stream"]) == (MIB, MIB, 2 * MIB, 2)
    assert (mark["kind"], mark["size"], heap.labels.name(int(mark["label"]))) == (Kind.MARK, 7, "step")


def test_times_may_be_given_and_never_go_back():
    heap = observed()
    for address, time in ((BASE, 500), (BASE + KIB, 900), (BASE + 2 * KIB, 300)):
        heap.allocate(address, 256, time=time)
    assert sorted(set(Reader(heap.log, 0).read(10)["time"].tolist())) == [500, 900]


def test_many_threads_may_report():
    heap = observed()
    heap.grant(BASE, 64 * MIB)

    def work(number):
        for turn in range(300):
            heap.allocate(BASE + number * MIB + turn * 256, 256, label=f"t{number}")
            if turn % 2:
                heap.free(BASE + number * MIB + turn * 256)

    in_threads(work, 6)
    table = PoolState()
    table.apply(Reader(heap.log, 0).read(1 << 20))
    assert table.chunks_in_use == 6 * 150
    assert heap.inconsistencies.words() == ""
    assert len(set(table.chunk_rows()["thread"].tolist()) - {0}) == 6


class Finalized:
    """Part of a cycle, so that a collection frees it, wherever that happens."""

    def __init__(self, heap, address):
        self.heap, self.address, self.itself = heap, address, self
        heap.allocate(address, 256)

    def __del__(self):
        self.heap.free(self.address)


def test_a_finalizer_may_report_in_the_midst_of_a_report():
    heap = observed()
    heap.grant(BASE, 64 * MIB)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(400):
            Finalized(heap, BASE + number * 256)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert heap.stats().chunks_in_use == 0
    assert heap.inconsistencies.words() == ""


def test_a_dashboard_watches_it():
    heap = ObservedHeap(EventLog(64), name="elsewhere")
    heap.grant(BASE, MIB)
    for number in range(50):
        heap.allocate(BASE + number * 512, 256, label=f"op{number % 5}")
    dashboard = LiveDashboard(heap, start=False)
    heap.free(BASE)
    dashboard.refresh()
    model = Model(dashboard.trace)
    model.seek(len(dashboard.trace))
    assert model.stats().bytes_in_use == 49 * 256
    assert dashboard.trace.origin.pools[0].name == "elsewhere"
    assert dashboard.trace.origin.pools[0].limit is None
    dashboard.close()


def test_a_recording_takes_its_events_and_labels(tmp_path):
    with Recording(tmp_path / "run") as recording:
        heap = ObservedHeap(recording)
        heap.allocate(BASE, 256, label="weights")
        assert heap.labels is recording.labels
    trace = recording.trace()
    assert [Kind(kind).name for kind in trace.read(0, len(trace))["kind"]] == ["EXTEND", "ALLOCATE"]
    assert "weights" in trace.labels.names


def test_a_report_that_never_ends_keeps_no_other_waiting(monkeypatch):
    """Its thread ended, or is in another process: its number alone is left."""
    monkeypatch.setattr(observed_heap, "_PATIENCE_S", 0.01)
    heap = observed()
    heap.grant(BASE, MIB)
    heap._ledger.busy = 1 << 15
    heap.allocate(BASE, 512)
    assert heap.stats().chunks_in_use == 0  # read without it
    heap.allocate(BASE + 512, 512)
    assert heap.stats().chunks_in_use == 2


@pytest.mark.parametrize(("took", "wait"), [(0.001, 0.5), (2.0, 18.0)])
def test_after_a_long_call_the_next_one_comes_later(took, wait, monkeypatch):
    times = iter([5.0, 5.0 + took])
    monkeypatch.setattr(observed_heap.time, "perf_counter", lambda: next(times))
    assert Polling(lambda: None, 0.5, "polling", share=0.1)._next() == pytest.approx(wait)
