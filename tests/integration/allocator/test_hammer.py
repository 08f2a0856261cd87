"""Threads created in C, at full speed: no byte is allocated twice, no thread waits for ever."""

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from c_code import built, needs_compiler
from heaps import GIB, KIB, MIB, Scripted, assert_model_agrees, new_heap
from processes import COMPILED

from bfcviz.allocator.sub_allocators import HostSubAllocator, SimulatedSubAllocator
from bfcviz.errors import InvalidFree, Lapped
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.schema import Kind

SCALE = 1 if COMPILED else 20  # plain Python is slow
pytestmark = [
    pytest.mark.timeout(120),
    needs_compiler,
]


class PythonSource(Scripted):
    """Host memory, from code that needs the GIL."""

    def __init__(self):
        super().__init__(self.give, self.take)
        self.buffers = {}

    def give(self, _, num_bytes):
        buffer = np.zeros(num_bytes + 4096, np.uint8)
        address = -(-buffer.ctypes.data // 4096) * 4096
        self.buffers[address] = buffer
        return address, num_bytes

    def take(self, address, _):
        del self.buffers[address]


SOURCES = {"simulated": SimulatedSubAllocator, "host": HostSubAllocator, "python": PythonSource}


@pytest.fixture(scope="module")
def hammer(tmp_path_factory):
    source = Path(__file__).with_name("hammer.c")
    library = built(source, tmp_path_factory.mktemp("hammer"), "-O2", "-pthread")
    function = ctypes.CDLL(str(library)).hammer
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 5 + [ctypes.c_void_p]
    return function


def hammered(hammer, heap, *, threads=6, operations=3_000, slots=60, largest=200 * KIB, writes=True):
    """Numbers of requests served and refused, and of blocks whose content was overwritten."""
    context, allocate, free = heap.c_functions()
    totals = (ctypes.c_int64 * 3)()
    hammer(allocate, free, context, threads, operations // SCALE, slots, largest, writes, totals)
    return list(totals)


def balanced(heap):
    heap.check_invariants()
    stats = heap.stats()
    assert stats.bytes_in_use == stats.requested_bytes_in_use == stats.chunks_in_use == 0
    assert heap.rejected_frees == 0


@pytest.mark.parametrize(
    "options",
    [{}, {"allow_growth": True, "garbage_collection": True}, {"timestamps": True, "allow_growth": True}],
    ids=["fixed", "collecting", "timestamps"],
)
@pytest.mark.parametrize("source", SOURCES)
def test_no_byte_is_allocated_twice(hammer, source, options):
    heap = new_heap(16 * MIB, SOURCES[source](), log=EventLog(1 << 17), **options)
    served, refused, violations = hammered(hammer, heap, writes=source != "simulated")
    assert violations == 0
    assert heap.stats().num_allocs == served > 1000 / SCALE
    balanced(heap)
    assert assert_model_agrees(heap).ooms == refused
    heap.close()


def test_the_log_on_disk_takes_all_events_of_all_threads(hammer, tmp_path):
    heap = new_heap(16 * MIB, HostSubAllocator(), log=EventLog(64, tmp_path))
    hammered(hammer, heap)
    balanced(heap)
    events = Reader(heap.log, 0).read(1 << 24)
    assert len(events) == heap.log.head > 10_000 / SCALE
    assert (events["seq"] == np.arange(len(events))).all()
    assert (np.diff(events["time"]) >= 0).all()  # the clock is calibrated with each window
    if COMPILED:  # plain Python knows a C thread only during its calls
        assert len(np.unique(events["by"])) == 6
    assert_model_agrees(heap, events)


def look_until(done, heap):
    """Run all queries, free invalid addresses, record marks."""
    while not done.is_set():
        chunks = heap.memory_map()
        ends = chunks["address"] + chunks["size"]
        inner = chunks["region"][:-1] == chunks["region"][1:]
        assert (ends[:-1] == chunks["address"][1:])[inner].all()
        stats = heap.stats()
        assert stats.free_bytes == stats.pool_bytes - stats.bytes_in_use
        assert stats.largest_free_chunk <= stats.free_bytes
        with pytest.raises(InvalidFree):
            heap.free(1)
        heap.mark("look")


def read_until(done, log):
    """Read all events while the ring overwrites them; returns the numbers of events read and missed."""
    reader = Reader(log, 0)
    seen = missed = 0
    while not done.is_set() or reader.position < log.head:
        try:
            events = reader.read()
        except Lapped:
            missed += reader.resync()
            continue
        seen += len(events)
        assert (events["seq"] == np.arange(reader.position - len(events), reader.position)).all()
        assert (np.diff(events["time"]) >= 0).all()
        assert set(np.unique(events["kind"]).tolist()) <= set(Kind)
    return seen, missed


def test_python_looks_reads_and_allocates_meanwhile(hammer):
    options = {"allow_growth": True, "garbage_collection": True}
    heap = new_heap(32 * MIB, PythonSource(), log=EventLog(1 << 10), **options)
    done, silent = threading.Event(), threading.Event()

    def strike():
        try:
            return [hammered(hammer, heap, threads=4)[2] for _ in range(3)]
        finally:
            done.set()

    def allocate():
        while not done.is_set():
            heap.free(heap.try_allocate(5000) or 0)

    with ThreadPoolExecutor() as pool:
        readers = [pool.submit(read_until, silent, heap.log) for _ in range(2)]
        writers = [pool.submit(strike), pool.submit(allocate), pool.submit(look_until, done, heap)]
        try:
            assert [writer.result(60) for writer in writers] == [[0, 0, 0], None, None]
        finally:
            silent.set()
        assert [sum(reader.result(60)) for reader in readers] == [heap.log.head] * 2
    balanced(heap)
    heap.close()


def test_closing_ends_what_others_are_doing(hammer):
    heap = new_heap(GIB, HostSubAllocator(), allow_growth=True)
    thread = threading.Thread(
        target=hammered, args=(hammer, heap), kwargs={"operations": 100_000, "writes": False}, daemon=True
    )
    thread.start()
    while heap.stats().num_allocs < 100:
        pass
    heap.close()
    thread.join(60)
    assert not thread.is_alive()
    balanced(heap)
    assert heap.sub_allocator.used == 0
