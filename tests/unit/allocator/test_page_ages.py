"""Pages of free memory are returned to the operating system, and memory in use does not change."""

import ctypes
import random
from pathlib import Path

from heaps import MIB, assert_model_agrees, new_heap
from processes import sized
from threads import in_threads

from bfcviz.allocator.sub_allocators import HostSubAllocator, SimulatedSubAllocator

NOISE = 16 * MIB
PAGE = 4096


def resident():
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def host_heap(limit=4096 * MIB, **options):
    return new_heap(limit, HostSubAllocator(), allow_growth=True, **options)


def filled(heap, size, byte=1):
    address = heap.allocate(size)
    ctypes.memset(address, byte, size)
    return address


def holds(address, size, byte):
    return ctypes.string_at(address, size) == bytes([byte]) * size


def test_a_large_free_gives_the_memory_back_at_once_and_neighbours_keep_theirs():
    with host_heap() as heap:
        before = resident()
        left, large, right = filled(heap, 3 * MIB, 7), filled(heap, 80 * MIB), filled(heap, 3 * MIB, 8)
        assert resident() - before > 70 * MIB
        heap.free(large)
        assert resident() - before < NOISE
        assert holds(left, 3 * MIB, 7)
        assert holds(right, 3 * MIB, 8)
        chunks = heap.memory_map().tolist()
        heap.return_pages()
        assert heap.memory_map().tolist() == chunks
        heap.check_invariants()
        assert_model_agrees(heap)


def test_many_small_frees_give_it_back_too():
    with host_heap() as heap:
        before = resident()
        held = [filled(heap, 2 * MIB) for _ in range(60)]
        for address in held:
            heap.free(address)
        assert resident() - before < 64 * MIB + NOISE


def test_memory_in_use_again_within_a_second_stays():
    with host_heap() as heap:
        heap.heap.set_replaying(True)  # the clock stops
        before = resident()
        for _ in range(3):
            heap.free(filled(heap, 100 * MIB))
        assert resident() - before > 90 * MIB  # a larger drop returns it:
        assert heap.return_pages() > 90 * MIB
        assert resident() - before < NOISE
        assert heap.return_pages() == 0


def test_memory_in_use_again_within_a_second_stays_for_a_minute():
    with host_heap() as heap:
        heap.heap.set_replaying(True)
        before = resident()
        for _ in range(3):
            heap.free(filled(heap, 100 * MIB))
        for second, stays in ((2, True), (30, True), (70, False)):
            heap.log.begin_operation(second * 1_000_000_000)
            heap.free(heap.allocate(256))
            heap.free(filled(heap, 100 * MIB))
            assert (resident() - before > 90 * MIB) == stays


def test_idle_memory_goes_after_a_whole_period_without_use():
    with host_heap() as heap:
        heap.heap.set_replaying(True)
        heap.free(heap.allocate(256))  # begins the first period
        heap.free(filled(heap, 32 * MIB))
        assert heap.return_pages(only_idle=True) < MIB  # the first 256 bytes' block
        heap.free(filled(heap, 8 * MIB))
        assert 23 * MIB < heap.return_pages(only_idle=True) <= 24 * MIB
        assert 7 * MIB < heap.return_pages(only_idle=True) <= 8 * MIB
        assert heap.return_pages() == 0


def test_the_next_second_gives_idle_memory_back_without_being_asked():
    with host_heap() as heap:
        heap.heap.set_replaying(True)
        second = 1_000_000_000
        before = resident()
        heap.free(filled(heap, 50 * MIB))
        assert resident() - before > 40 * MIB
        for time in (2 * second, 4 * second):
            heap.log.begin_operation(time)
            heap.free(heap.allocate(256))
        assert resident() - before < NOISE


def test_chunks_held_back_from_merging_keep_their_pages():
    with host_heap(timestamps=True) as heap:
        address = filled(heap, 20 * MIB, 5)
        heap.free(address)
        assert heap.return_pages() == 0
        assert holds(address, 20 * MIB, 5)  # a stream may still read it
        heap.set_safe_frontier(10)
        heap.free(heap.allocate(256))
        assert heap.return_pages() >= 19 * MIB


def test_a_sub_allocator_without_pages_returns_none():
    heap = new_heap(64 * MIB, SimulatedSubAllocator())
    heap.free(heap.allocate(32 * MIB))
    assert heap.return_pages() == 0


def test_contents_in_use_survive_any_order_of_returns():
    chooser = random.Random(3)
    with host_heap(400 * MIB) as heap:
        held = {}
        for turn in range(sized(400, 60)):
            if held and chooser.random() < 0.5:
                address = chooser.choice(list(held))
                size, byte = held.pop(address)
                assert holds(address, size, byte)
                heap.free(address)
            else:
                size, byte = chooser.randrange(1, 6 * MIB), turn % 255 + 1
                held[filled(heap, size, byte)] = (size, byte)
            if turn % 7 == 0:
                heap.return_pages(only_idle=chooser.random() < 0.5)
        assert all(holds(address, size, byte) for address, (size, byte) in held.items())
        heap.check_invariants()


def test_pages_are_returned_beside_working_threads():
    with host_heap(2048 * MIB) as heap:

        def work(number):
            for turn in range(sized(50, 10)):
                size = (turn % 3 + 1) * MIB
                address = filled(heap, size, number + 1)
                heap.return_pages()
                assert holds(address, size, number + 1)
                heap.free(address)

        in_threads(work, 4)
        heap.check_invariants()
