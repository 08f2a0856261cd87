"""Retry: a request without memory waits for another thread's free, as TensorFlow's allow_retry_on_failure does."""

from functools import partial

from bfcviz import native
from bfcviz.allocator.heap import Heap


def allocate_after_free(
    heap: Heap, seconds: float, num_bytes: int, alignment: int, freed_before: int, label: int, stream: int
) -> int:
    """Try again after each free of another thread, until the time is up; every try is an event.

    Returns:
        What `Heap.allocate` returned last.
    """
    attempt = partial(try_heap, heap, num_bytes, alignment, freed_before, label, stream)
    address: int | None = heap.frees.try_after_frees(attempt, seconds)
    return native.FAILED_MEMORY if address is None else address


def try_heap(
    heap: Heap, num_bytes: int, alignment: int, freed_before: int, label: int, stream: int
) -> int | None:
    """What `Heap.allocate` returns; None where there is no memory."""
    address = heap.allocate(num_bytes, alignment, freed_before, label, stream)
    return None if address == native.FAILED_MEMORY else address
