"""Retries: a thread without memory sleeps until another thread frees, or the time is up."""

import ctypes
import time

import pytest
from heaps import KIB, assert_model_agrees, new_heap
from threads import in_thread, wait_until

from bfcviz.errors import OutOfMemory

pytestmark = pytest.mark.timeout(60)


def test_a_free_serves_a_waiting_thread():
    heap = new_heap(KIB, retry_s=30)
    address = heap.allocate(KIB)
    thread, result = in_thread(heap.allocate, KIB)
    wait_until(lambda: heap.log.head >= 4)  # both tries of the other thread failed
    assert thread.is_alive()
    heap.free(address)
    thread.join(20)
    assert result == [address]
    assert_model_agrees(heap)


def test_a_free_that_does_not_help_lets_it_wait_on():
    heap = new_heap(2 * KIB, retry_s=30)
    small, large = heap.allocate(512), heap.allocate(1536)
    thread, result = in_thread(heap.allocate, 2 * KIB)
    wait_until(lambda: heap.log.head >= 5)
    heap.free(small)
    wait_until(lambda: heap.log.head >= 7)  # one more try failed
    assert thread.is_alive()
    heap.free(large)
    thread.join(20)
    assert result == [small]


def test_time_runs_out():
    heap = new_heap(KIB, retry_s=0.05)
    heap.allocate(KIB)
    begin = time.monotonic()
    with pytest.raises(OutOfMemory):
        heap.allocate(1)
    assert 0.05 <= time.monotonic() - begin < 5
    assert heap.try_allocate(1) is None


def test_without_the_option_no_thread_waits():
    heap = new_heap(KIB)
    heap.allocate(KIB)
    begin = time.monotonic()
    assert heap.try_allocate(1) is None
    assert time.monotonic() - begin < 0.1


def test_a_free_through_a_c_pointer_serves_too():
    heap = new_heap(KIB, retry_s=30)
    functions = heap.c_functions()
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(functions.free)
    address = heap.allocate(KIB)
    thread, result = in_thread(heap.allocate, KIB)
    wait_until(lambda: heap.log.head >= 4)
    free(functions.context, address)
    thread.join(20)
    assert result == [address]


def test_many_waiters_are_all_served():
    """Each gets the one block in turn: a missed free would make this wait until the time is up."""
    heap = new_heap(KIB, retry_s=60)
    turns = 40

    def work():
        for _ in range(turns):
            heap.free(heap.allocate(KIB))
        return "done"

    begin = time.monotonic()
    threads = [in_thread(work) for _ in range(8)]
    for thread, _ in threads:
        thread.join(50)
    assert [result for _, result in threads] == [["done"]] * 8
    assert time.monotonic() - begin < 40
    assert heap.stats().bytes_in_use == 0
    assert heap.stats().num_allocs == 8 * turns


def test_waiters_of_different_sizes_do_not_take_each_others_call():
    """A free wakes all threads, so also the one that it serves, even if another wakes first and finds too little."""
    heap = new_heap(4 * KIB, retry_s=30)
    blocks = [heap.allocate(KIB) for _ in range(4)]
    large = [in_thread(heap.allocate, 4 * KIB) for _ in range(3)]
    wait_until(lambda: heap.log.head >= 1 + 3 + 4 + 6)
    for round_ in range(10):
        small, result = in_thread(heap.allocate, KIB)
        time.sleep(0.002 * (round_ % 3))
        heap.free(blocks.pop())
        small.join(10)
        assert not small.is_alive()
        blocks += result
    for block in blocks:
        heap.free(block)
    served = [thread for thread, _ in large]
    wait_until(lambda: heap.stats().num_allocs == 15)
    for _ in range(2):
        heap.free(int(heap.memory_map()["address"][0]))
        count = heap.stats().num_allocs
        wait_until(lambda count=count: heap.stats().num_allocs > count)
    for thread in served:
        thread.join(10)
        assert not thread.is_alive()
