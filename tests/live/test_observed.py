"""ObservedHeap: what is said of another allocator's heap becomes events that the model takes for a heap's own."""

import gc

import numpy as np
import pytest
from heaps import KIB, MIB
from hypothesis import given
from hypothesis import strategies as st
from threads import in_threads

from bfcviz.dashboard.live import LiveDashboard
from bfcviz.errors import InvalidRequest
from bfcviz.events.log import EventLog
from bfcviz.events.reader import Reader
from bfcviz.events.recording import Recording
from bfcviz.events.schema import Kind
from bfcviz.live.observed import ObservedHeap
from bfcviz.model import Model
from bfcviz.model.beginning import beginning
from bfcviz.model.raw import CHUNK_IN_USE
from bfcviz.model.reduce import ChunkTable

BASE = 0x7000_0000


def observed(**options):
    return ObservedHeap(EventLog(1 << 16), **options)


def kinds(heap):
    return [Kind(kind).name for kind in Reader(heap.log, 0).read(1 << 20)["kind"]]


def in_use(table):
    rows = table.chunk_rows()
    return sorted(rows[rows["state"] == CHUNK_IN_USE][["address", "size", "requested", "label"]].tolist())


class Truth:
    """What is in use, by cells of memory, told by the same reports in the plainest way."""

    def __init__(self):
        self.cells = {}  # cell -> (first cell of its memory, label)
        self.memory = {}  # first cell -> cells
        self.sizes = {}
        self.known = set()  # cells that were ever in use or granted

    def allocate(self, first, count, size, label):
        span = range(first, first + count)
        if any(cell in self.cells for cell in span):
            return
        self.memory[first], self.sizes[first] = span, size
        self.cells.update((cell, (first, label)) for cell in span)
        self.known.update(span)

    def free(self, first):
        self.sizes.pop(first, None)
        for cell in self.memory.pop(first, ()):
            del self.cells[cell]


cells = st.integers(0, 40)
reports = st.lists(
    st.one_of(
        st.tuples(
            st.just("allocate"), cells, st.integers(1, 12), st.integers(0, 3), st.sampled_from([0, 0, 24])
        ),
        st.tuples(st.just("free"), cells),
        st.tuples(st.just("grant"), cells, st.integers(1, 24), st.booleans()),
        st.tuples(st.just("release"), cells),
    ),
    max_size=60,
)


@given(reports)
def test_the_events_tell_the_truth_after_every_report(steps):
    heap, truth, table = observed(), Truth(), ChunkTable()
    numbers = [0, *(heap.labels.intern(f"op{number}") for number in range(3))]
    reader = Reader(heap.log, 0)
    for kind, first, *more in steps:
        if kind == "allocate":
            count, label, less = more
            heap.allocate(BASE + first * KIB, count * KIB - less, label=numbers[label])
            truth.allocate(first, count, count * KIB - less, numbers[label])
        elif kind == "free":
            heap.free(BASE + first * KIB)
            truth.free(first)
        elif kind == "grant":
            refused = heap.doubts.overlapping_grants
            heap.grant(BASE + first * KIB, more[0] * KIB, join=more[1])
            if heap.doubts.overlapping_grants == refused:
                truth.known.update(range(first, first + more[0]))
        else:
            heap.release(BASE + first * KIB)
        table.apply(reader.read())
        check(heap, truth, table)
    assert_ends(heap, table)


def check(heap, truth, table):
    seen = {}
    for address, size, _, label in in_use(table):
        seen.update(
            dict.fromkeys(range((address - BASE) // KIB, (address - BASE + size - 1) // KIB + 1), label)
        )
    assert seen == {cell: label for cell, (_, label) in truth.cells.items()}
    stats = heap.stats()
    assert stats.bytes_in_use == table.bytes_in_use
    assert stats.bytes_in_use == sum(truth.sizes.values())
    assert stats.requested_bytes_in_use == table.requested_bytes_in_use == stats.bytes_in_use
    assert (stats.pool_bytes, stats.free_bytes) == (table.pool_bytes, table.free_bytes)
    assert stats.largest_free_chunk == table.largest_free_chunk
    regions, _ = table.region_rows()
    for region in regions:
        first, last = (
            (int(region["address"]) - BASE) // KIB,
            int(region["address"] + region["size"]) - 1 - BASE,
        )
        assert truth.known.issuperset(range(first, last // KIB + 1))


def assert_ends(heap, table):
    moment = heap.moment()
    assert sorted(moment.chunks["address"][moment.chunks["in_use"]].tolist()) == [c[0] for c in in_use(table)]
    events = Reader(heap.log, 0).read(1 << 20)
    table.undo(events)
    assert table.pool_bytes == len(table.chunk_rows()) == 0


def test_memory_is_split_and_merged_as_a_heap_would():
    heap = observed()
    heap.grant(BASE, MIB)
    heap.allocate(BASE, 512, requested=400, label="weights", stream=3)
    heap.allocate(BASE + 1024, 512, label=heap.labels.intern("activations"))
    heap.free(BASE)
    heap.free(BASE + 1024)
    heap.release(BASE)
    assert kinds(heap) == [
        "EXTEND", "SPLIT", "ALLOCATE", "SPLIT", "SPLIT", "ALLOCATE", "FREE", "MERGE", "FREE",
        "MERGE", "MERGE", "RELEASE",
    ]  # fmt: skip
    first = Reader(heap.log, 0).read(3)[2]
    assert (first["requested"], heap.labels.name(int(first["label"])), first["stream"]) == (400, "weights", 3)
    assert heap.doubts.words() == ""
    assert heap.stats().peak_bytes_in_use == 1024


def test_the_model_agrees_while_it_is_in_use():
    heap = observed()
    heap.grant(BASE, MIB)
    for number in range(20):
        heap.allocate(BASE + number * 2048, 1024, label=f"op{number}", stream=number % 3)
    for number in range(0, 20, 3):
        heap.free(BASE + number * 2048)
    chunks = heap.moment().chunks
    events = Reader(heap.log, 0).read(1 << 20)
    table = ChunkTable()
    table.apply(events)
    rows = np.sort(table.chunk_rows(), order="address")
    for name in ("address", "size", "handle", "region", "label", "thread", "stream"):
        assert rows[name].tolist() == chunks[name].tolist()


def test_memory_nobody_used_is_in_no_region():
    heap = observed()
    heap.allocate(BASE + 8192, 256)
    heap.allocate(BASE, 256)
    assert heap.moment().regions.tolist() == [(BASE, 256, 1), (BASE + 8192, 256, 0)]
    assert heap.stats().free_bytes == 0


def test_a_region_of_touched_memory_grows_and_takes_in_free_ones():
    heap = observed()
    for address in (BASE, BASE + 256, BASE + 1024):
        heap.allocate(address, 256)
    heap.free(BASE + 1024)
    heap.allocate(BASE + 512, 1024)
    assert heap.moment().regions.tolist() == [(BASE, 1536, 0)]
    assert heap.doubts.words() == ""


def test_memory_across_two_regions_is_drawn_in_pieces_and_freed_as_one():
    heap = observed()
    heap.grant(BASE, KIB)
    heap.grant(BASE + KIB, KIB)
    heap.allocate(BASE + 512, 1024, requested=600, label="both")
    assert in_use_of(heap) == [(BASE + 512, 512, 512), (BASE + KIB, 512, 88)]
    heap.free(BASE + KIB)
    assert heap.doubts.unknown_frees == 1
    heap.free(BASE + 512)
    assert in_use_of(heap) == []
    assert heap.doubts.in_pieces == 1
    heap.release(BASE)
    heap.release(BASE + KIB)
    assert heap.stats().pool_bytes == 0


def in_use_of(heap):
    chunks = heap.moment().chunks
    return chunks[chunks["in_use"]][["address", "size", "requested_size"]].tolist()


def test_joined_grants_are_one_region():
    heap = observed()
    heap.grant(BASE, KIB)
    heap.grant(BASE + KIB, KIB, join=True)
    heap.allocate(BASE + 512, 1024)
    assert heap.moment().regions.tolist() == [(BASE, 2048, 0)]
    assert heap.doubts.in_pieces == 0


def test_what_cannot_be_is_left_out_and_counted():
    heap = observed()
    heap.grant(BASE, MIB)
    heap.allocate(BASE, 512)
    before = heap.log.head
    heap.free(BASE + 512)
    heap.allocate(BASE + 256, 512)
    heap.grant(BASE, KIB)
    heap.release(BASE)
    heap.release(BASE + 256)
    assert heap.log.head == before
    doubts = heap.doubts
    assert (doubts.unknown_frees, doubts.overlaps, doubts.overlapping_grants) == (1, 1, 1)
    assert (doubts.unknown_releases, doubts.left_out) == (2, 5)
    assert "1 allocations over memory whose free nobody saw" in doubts.words()


def test_a_grant_over_a_free_one_says_that_it_was_released():
    heap = observed()
    heap.grant(BASE, MIB)
    heap.grant(BASE + 512 * KIB, MIB)
    assert kinds(heap) == ["EXTEND", "RELEASE", "EXTEND"]
    assert heap.doubts.unseen_releases == 1
    assert heap.doubts.left_out == 0


def test_more_regions_than_can_be_numbered():
    heap = observed()
    for number in range(65_535):
        heap.grant(BASE + number * KIB * 2, KIB)
    heap.allocate(BASE - MIB, 256)
    heap.grant(BASE - MIB, 256)
    assert heap.doubts.no_slot == 2
    heap.allocate(BASE, 256)
    assert heap.stats().chunks_in_use == 1


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
    table = ChunkTable()
    table.apply(Reader(heap.log, 0).read(1 << 20))
    assert table.chunks_in_use == 6 * 150
    assert heap.doubts.words() == ""
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
    assert heap.doubts.words() == ""


def test_a_reader_that_comes_late_begins_where_the_heap_is():
    heap = ObservedHeap(EventLog(64))
    heap.grant(BASE, MIB)
    for number in range(200):
        heap.allocate(BASE + number * 512, 256, label=f"op{number % 5}")
    found = beginning(heap.moment(), heap.log)
    assert found.first > 0
    assert found.first + len(found.events) == heap.log.head


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
    assert dashboard.trace.origin.pools[0].bytes_limit is None
    dashboard.close()


def test_a_recording_takes_its_events_and_labels(tmp_path):
    with Recording(tmp_path / "run") as recording:
        heap = ObservedHeap(recording)
        heap.allocate(BASE, 256, label="weights")
        assert heap.labels is recording.labels
    trace = recording.trace()
    assert [Kind(kind).name for kind in trace.read(0, len(trace))["kind"]] == ["EXTEND", "ALLOCATE"]
    assert "weights" in trace.labels.names
