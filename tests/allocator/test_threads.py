"""Several threads on one heap: no two own the same bytes, the tables stay consistent, no thread waits for ever."""

import ctypes
import random
import sys
import threading

import pytest
from heaps import BASE, KIB, MIB, assert_model_agrees, new_heap

from bfcviz.allocator.sub_allocators.base import PythonSubAllocator
from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.events.log import EventLog

THREADS, ROUNDS = 4, 4000
SIZES = (1, 300, 5000, 70_000)


class SlowSubAllocator(PythonSubAllocator):
    """Needs the GIL, and releases it while it works."""

    def __init__(self):
        super().__init__()
        self.top = BASE
        self.calls = 0

    def allocate(self, alignment, num_bytes):
        self.calls += 1
        threading.Event().wait(0.001)
        self.top += -self.top % alignment + num_bytes
        return self.top - num_bytes, num_bytes

    def free(self, address, num_bytes):
        threading.Event().wait(0.001)


def run_in_threads(work):
    """Run work(number) in THREADS threads at once; raises what any of them raised."""
    errors, start = [], threading.Barrier(THREADS)

    def guarded(number):
        try:
            start.wait(10)
            work(number)
        except BaseException as error:  # noqa: BLE001  raised again by who waits
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    if errors:
        raise errors[0]


def hammer(allocate, free, fill=None):
    """Work for a thread: allocate and free at random; with `fill`, own bytes must stay as they were written."""

    def work(number):
        chance, live = random.Random(number), []
        for turn in range(ROUNDS):
            if live and (len(live) > 20 or chance.random() < 0.45):
                address, size, value = live.pop(chance.randrange(len(live)))
                if fill:
                    assert ctypes.string_at(address, size) == bytes([value]) * size
                free(address)
            else:
                size, value = chance.choice(SIZES), (number * 50 + turn) % 256
                address = allocate(size)
                if not address:
                    continue
                if fill:
                    fill(address, value, size)
                live.append((address, size, value))
        for address, _, _ in live:
            free(address)

    return work


OPTIONS = [
    {},
    {"allow_growth": True, "garbage_collection": True},
    {"timestamps": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_threads_never_share_bytes(options):
    heap = new_heap(4 * MIB, HostSubAllocator(), log=EventLog(1 << 16), **options)
    run_in_threads(hammer(heap.try_allocate, heap.free, ctypes.memset))
    assert heap.stats().bytes_in_use == 0
    heap.check_invariants()
    assert_model_agrees(heap)
    heap.close()


def test_threads_through_c_pointers():
    heap = new_heap(4 * MIB, HostSubAllocator(), log=EventLog(1 << 16), allow_growth=True)
    context, allocate, free = heap.c_functions()
    allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(allocate)
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(free)
    run_in_threads(
        hammer(
            lambda size: allocate(context, 256, size), lambda address: free(context, address), ctypes.memset
        )
    )
    assert heap.rejected_frees == 0
    assert heap.stats().bytes_in_use == 0
    heap.check_invariants()
    assert_model_agrees(heap)
    heap.close()


@pytest.mark.parametrize("keeps_gil", [False, True])
def test_a_sub_allocator_that_needs_the_gil(keeps_gil):
    """Python, C without the GIL and C with it, all at once, while regions come and go through Python."""
    source = SlowSubAllocator()
    heap = new_heap(2 * MIB, source, log=EventLog(1 << 16), allow_growth=True, garbage_collection=True)
    context, allocate, free = heap.c_functions()
    kind = ctypes.PYFUNCTYPE if keeps_gil else ctypes.CFUNCTYPE
    allocate = kind(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(allocate)
    free = kind(None, ctypes.c_void_p, ctypes.c_void_p)(free)
    through_c = hammer(lambda size: allocate(context, 256, size), lambda address: free(context, address))
    through_python = hammer(heap.try_allocate, heap.free)
    run_in_threads(lambda number: (through_c, through_python)[number % 2](number))
    assert source.calls > 0
    assert heap.stats().bytes_in_use == 0
    heap.check_invariants()
    assert_model_agrees(heap)


def test_each_event_names_its_thread():
    heap = new_heap(log=EventLog(1 << 16))
    run_in_threads(hammer(heap.try_allocate, heap.free))
    events = heap.log.copy(0, heap.log.head)
    assert len({int(by) for by in events["by"]}) == THREADS
    assert (events["time"][1:] >= events["time"][:-1]).all()


def test_looking_while_others_work_shows_one_moment():
    heap = new_heap(4 * MIB, allow_growth=True)
    done = threading.Event()
    seen = []

    def look():
        while not done.is_set():
            stats = heap.stats()
            assert stats.free_bytes == stats.pool_bytes - stats.bytes_in_use
            chunks = heap.memory_map()
            ends = chunks["address"] + chunks["size"]
            assert (ends[:-1] <= chunks["address"][1:]).all()
            seen.append(len(chunks))

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    run_in_threads(hammer(lambda size: heap.try_allocate(size % (40 * KIB) + 1), heap.free))
    done.set()
    looker.join(10)
    assert len(seen) > 1


def test_books_compared_and_the_strip_drawn_beside_threads_at_work_are_of_one_moment():
    heap = new_heap(64 * MIB, allow_growth=True, garbage_collection=True)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            held = [heap.allocate(256 << number) for number in range(14)]
            heap.trim()
            for address in held:
                heap.free(address)

    def look():
        try:
            for _ in range(60):
                heap.check_invariants()
                assert len(heap.occupancy()) in {100, len("<allocator contains no memory>")}
        finally:
            stop.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        run_in_threads(lambda number: (look, work)[number > 0]())
    finally:
        stop.set()
        sys.setswitchinterval(before)
    heap.check_invariants()
