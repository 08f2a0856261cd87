"""Retry a failed request after frees of other threads, as TensorFlow's allow_retry_on_failure does."""

from functools import partial

from bfcviz import native
from bfcviz.allocator.heap import Heap


def allocate_after_free(
    heap: Heap, seconds: float, num_bytes: int, alignment: int, freed_before: int, label: int, stream: int
) -> int:
    """Try again after each free of another thread until the time is up; every failed try records an event.

    Returns:
        The result of the last `Heap.allocate`.
    """
    attempt = partial(try_heap, heap, num_bytes, alignment, freed_before, label, stream)
    address: int | None = heap.frees.try_after_frees(attempt, seconds)
    return native.FAILED_MEMORY if address is None else address


def try_heap(
    heap: Heap, num_bytes: int, alignment: int, freed_before: int, label: int, stream: int
) -> int | None:
    """Call `Heap.allocate`; None where there is no memory."""
    address = heap.allocate(num_bytes, alignment, freed_before, label, stream)
    return None if address == native.FAILED_MEMORY else address
