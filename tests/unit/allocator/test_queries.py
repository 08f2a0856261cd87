"""Queries beside threads at work: each shows one moment."""

import sys
import threading

import numpy as np
from heaps import KIB, MIB, assert_model_agrees, new_heap
from unit.allocator.thread_work import hammer, run_in_threads

from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.events.log import EventLog, Reader


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


# ------------------------------------------------------------------------------
# The whole heap between two events, also while other threads change it; the map of 100 characters.


def test_it_is_what_the_single_looks_show():
    heap = new_heap()
    held = [heap.allocate(1000 + i, label=f"op{i}") for i in range(20)]
    heap.free(held[7])
    moment = heap.moment()
    stats = heap.stats()
    assert moment.step == heap.log.head
    assert np.array_equal(moment.chunks, heap.memory_map())
    assert np.array_equal(moment.regions, heap.regions())
    assert moment.num_allocs == 20
    assert moment[4:] == (stats.peak_bytes_in_use, stats.largest_alloc_size, stats.peak_pool_bytes)


def test_a_closed_heap_has_nothing():
    heap = new_heap()
    heap.allocate(1000)
    heap.close()
    moment = heap.moment()
    assert (moment.step, len(moment.chunks), len(moment.regions)) == (heap.log.head, 0, 0)


def test_while_another_thread_allocates_it_is_of_one_step():
    heap = new_heap(64 * MIB, log=EventLog(1 << 17))
    turns, stop = [0], threading.Event()

    def work():
        while not stop.is_set() and turns[0] < 8000:
            held = [heap.allocate(256 * (i + 1)) for i in range(4)]
            for address in held:
                heap.free(address)
            turns[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    moments = [heap.moment() for _ in range(50)]
    stop.set()
    thread.join()
    events = Reader(heap.log, 0).read(1 << 20)
    assert_model_agrees(heap, events)
    for moment in moments:
        _, allocs = np.unique(events["kind"][: moment.step] == 3, return_counts=True)
        assert moment.num_allocs == (allocs[-1] if moment.step else 0)


def test_nothing():
    assert new_heap().occupancy() == "<allocator contains no memory>"


def test_chunks_in_a_row():
    heap = new_heap(25_600)  # a character a chunk of 256 bytes
    a, b, c = heap.allocate(2560), heap.allocate(5120), heap.allocate(256)
    assert heap.occupancy() == "*" * 31 + "_" * 69
    heap.free(b)
    assert heap.occupancy() == "*" * 10 + "_" * 20 + "*" + "_" * 69
    heap.free(a)
    heap.free(c)
    assert heap.occupancy() == "_" * 100


def test_waste_is_shown():
    heap = new_heap(25_600)
    block = heap.allocate(10_240)
    heap.allocate(256)
    heap.free(block)
    heap.allocate(7_680)  # gets all 10,240: 10 of its 40 characters are waste
    assert heap.occupancy() == "*" * 30 + "x" * 10 + "*" + "_" * 59


def test_a_chunk_paints_all_characters_it_touches():
    heap = new_heap(25_600 * 4)  # a character four chunks
    heap.allocate(256)
    assert heap.occupancy() == "*" + "_" * 99
    heap.allocate(4 * 256)
    assert heap.occupancy() == "**" + "_" * 98


def test_the_used_part_hides_the_waste_before_it_in_the_same_character():
    heap = new_heap(25_600)
    heap.allocate(100)
    assert heap.occupancy()[:2] == "*_"


def test_regions_lie_end_to_end():
    heap = new_heap(4 * MIB, SimulatedSubAllocator("gapped"), allow_growth=True)
    heap.allocate(2 * MIB)
    heap.allocate(512 * KIB)
    assert len(heap.regions()) == 2
    assert heap.occupancy() == "*" * 63 + "_" * 37
    down = new_heap(4 * MIB, SimulatedSubAllocator("descending"), allow_growth=True)
    down.allocate(2 * MIB)
    down.allocate(512 * KIB)
    assert down.occupancy() == "*" * 13 + "_" * 37 + "*" * 50
