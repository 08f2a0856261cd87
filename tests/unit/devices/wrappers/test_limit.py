"""LimitAllocator: a limit on the bytes in use, counted in rounded requests."""

import threading

import pytest
from heaps import KIB, MIB, new_heap
from unit.devices.wrappers.plain_allocator import PlainAllocator

from bfcviz.devices.wrappers import LimitAllocator, TrackingAllocator
from bfcviz.errors import BrokenInvariant, InvalidRequest, OutOfMemory


def test_what_goes_beyond_it_is_out_of_memory_with_its_numbers():
    limited = LimitAllocator(new_heap(MIB), 4 * KIB)
    address = limited.allocate(3000)
    assert limited.used == 3072
    with pytest.raises(OutOfMemory, match="raise the limit") as caught:
        limited.allocate(1025)
    error = caught.value
    assert (error.requested, error.rounded) == (1025, 1280)
    assert (error.free_bytes, error.largest_free_chunk, error.bytes_limit) == (1024, 1024, 4 * KIB)
    assert limited.stats().bytes_limit == 4 * KIB
    assert limited.allocate(1024)
    limited.free(address)
    assert limited.used == 1024
    limited.check_invariants()


def test_several_share_one_heap():
    heap = new_heap(8 * KIB)
    one, other = LimitAllocator(heap, 6 * KIB), LimitAllocator(heap, 6 * KIB)
    address = one.allocate(6 * KIB)
    with pytest.raises(OutOfMemory) as caught:
        other.allocate(3 * KIB)
    assert caught.value.bytes_limit == 8 * KIB  # the heap's, not its own
    assert other.used == 0
    assert other.stats().bytes_limit == 6 * KIB
    one.free(address)
    assert other.allocate(3 * KIB)


def test_what_fails_inside_does_not_count():
    limited = LimitAllocator(new_heap(MIB), 512 * KIB)
    for request in ((-1,), (1 << 63,), (10, 3)):
        with pytest.raises(InvalidRequest):
            limited.allocate(*request)
    with pytest.raises(TypeError):
        limited.allocate(1.5)
    assert limited.allocate(0) == 0
    assert limited.used == 0


def test_threads_never_go_beyond_it_together():
    limited = LimitAllocator(TrackingAllocator(new_heap(MIB)), 16 * KIB)

    def work():
        for size in range(1, 300):
            limited.free(limited.try_allocate(size * 13) or 0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < limited.wrapped.high_water <= 16 * KIB
    assert limited.used == 0


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_at_least_a_byte(limit):
    with pytest.raises(InvalidRequest, match="1 or more"):
        LimitAllocator(new_heap(), limit)


def test_a_limit_is_an_integer_and_sizes_must_be_known():
    with pytest.raises(TypeError):
        LimitAllocator(new_heap(), 1e6)
    with pytest.raises(InvalidRequest, match="TrackingAllocator"):
        LimitAllocator(PlainAllocator(), MIB)


def test_books_that_do_not_balance_are_noticed():
    limited = LimitAllocator(new_heap(), 4 * KIB)
    limited.used = -256
    with pytest.raises(BrokenInvariant):
        limited.check_invariants()
