"""Retry: a request without memory waits for another thread's free, as TensorFlow's allow_retry_on_failure does."""

import time

from bfcviz import native
from bfcviz.allocator.heap import Heap


def allocate_after_free(
    heap: Heap, seconds: float, num_bytes: int, alignment: int, freed_before: int, label: int, stream: int
) -> int:
    """Try again after each free of another thread, until the time is up; every try is an event.

    Returns:
        What `Heap.allocate` returned last.
    """
    deadline = time.monotonic() + seconds
    address = native.FAILED_MEMORY
    heap.count_waiter(1)
    try:
        while address == native.FAILED_MEMORY:
            seen = heap.wakes  # before the try: a free between it and the wait is not slept through
            address = heap.allocate(num_bytes, alignment, freed_before, label, stream)
            if address == native.FAILED_MEMORY and not wait_for_free(heap, seen, deadline):
                break
    finally:
        heap.count_waiter(-1)
    return address


def wait_for_free(heap: Heap, seen: int, deadline: float) -> bool:
    """Sleep until something was freed since `seen`; False where the time is up."""
    with heap.freed:
        while heap.wakes == seen:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            heap.freed.wait(left)
    return True
