"""RetryAllocator: a request without memory waits for frees of other threads, or until the time is up."""

import time

import pytest
from heaps import KIB, new_heap
from threads import in_thread, wait_until

from bfcviz.allocator.interface import AllocationAttributes
from bfcviz.devices.wrappers import GuardAllocator, LimitAllocator, RetryAllocator, TrackingAllocator
from bfcviz.errors import AllocatorError, InvalidRequest, OutOfMemory
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind

pytestmark = pytest.mark.timeout(60)


def failures(heap):
    """Number of failed tries."""
    return int((Reader(heap.log, 0).read()["kind"] == Kind.OOM).sum())


WRAPPINGS = {
    "bare": lambda heap: RetryAllocator(heap, 30),
    "around others": lambda heap: RetryAllocator(TrackingAllocator(heap), 30),
    "inside others": lambda heap: TrackingAllocator(RetryAllocator(heap, 30)),
    "around a limit": lambda heap: RetryAllocator(LimitAllocator(heap, KIB), 30),
}


@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS)
def test_a_free_of_another_thread_serves_it(wrap):
    allocator = wrap(new_heap(KIB))
    (retry,) = (layer for layer in allocator.layers if isinstance(layer, RetryAllocator))
    address = allocator.allocate(KIB)
    thread, result = in_thread(allocator.allocate, KIB)
    wait_until(lambda: retry.waiting == 1)
    allocator.free(address)
    thread.join(20)
    assert result == [address]


def test_a_free_that_does_not_help_lets_it_wait_on():
    heap = new_heap(2 * KIB)
    retry = RetryAllocator(heap, 30)
    small, large = retry.allocate(512), retry.allocate(1536)
    thread, result = in_thread(retry.allocate, 2 * KIB)
    wait_until(lambda: retry.waiting == 1)
    assert failures(heap) == 1
    retry.free(small)
    wait_until(lambda: failures(heap) == 2 and retry.waiting == 1)
    assert thread.is_alive()
    retry.free(large)
    thread.join(20)
    assert result == [small]


def test_after_the_time_limit_the_last_try_raises():
    heap = new_heap(KIB)
    retry = RetryAllocator(heap, 0.2)
    retry.allocate(KIB)
    begin = time.monotonic()
    with pytest.raises(OutOfMemory) as caught:
        retry.allocate(100)
    assert time.monotonic() - begin >= 0.2
    assert caught.value.requested == 100
    assert failures(heap) == 2  # the first try, and the last one
    assert retry.try_allocate(1) is None
    assert retry.waiting == 0


@pytest.mark.parametrize("wrap", [lambda retry: retry, GuardAllocator, TrackingAllocator])
def test_a_request_that_wants_no_retry_does_not_wait(wrap):
    allocator = wrap(RetryAllocator(new_heap(KIB), 1e6))
    allocator.try_allocate(512, alignment=64)
    attributes = AllocationAttributes(no_retry_on_failure=True)
    assert allocator.try_allocate(KIB, attributes=attributes) is None


def test_without_a_time_limit_no_thread_waits():
    retry = RetryAllocator(new_heap(KIB), 0)
    retry.allocate(KIB)
    assert retry.try_allocate(1) is None


def test_only_out_of_memory_waits():
    retry = RetryAllocator(new_heap(KIB), 1e6)
    with pytest.raises(InvalidRequest):
        retry.allocate(-1)


def test_many_waiters_are_all_served():
    """Each gets the one chunk in turn: a missed free would make this wait until the time is up."""
    retry = RetryAllocator(new_heap(KIB), 1e6)
    turns = 40

    def work():
        for _ in range(turns):
            retry.free(retry.allocate(KIB))
        return "done"

    threads = [in_thread(work) for _ in range(6)]
    for thread, _ in threads:
        thread.join(50)
    assert [result for _, result in threads] == [["done"]] * 6
    assert retry.stats().num_allocs == 6 * turns


def test_close_ends_a_wait():
    retry = RetryAllocator(new_heap(KIB), 1e6)
    retry.allocate(KIB)
    thread, result = in_thread(retry.allocate, KIB)
    wait_until(lambda: retry.waiting == 1)
    retry.close()
    thread.join(20)
    assert isinstance(result[0], AllocatorError)
    assert "closed" in str(result[0])


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_times_that_cannot_be(seconds):
    with pytest.raises(InvalidRequest, match="finite"):
        RetryAllocator(new_heap(), seconds)
