"""Queries beside threads at work: each shows one moment."""

import sys
import threading

from heaps import KIB, MIB, new_heap
from unit.allocator.thread_work import hammer, run_in_threads


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
