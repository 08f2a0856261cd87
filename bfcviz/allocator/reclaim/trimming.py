"""Trimming: memory that is free goes back, as whole regions or as pages."""

from bfcviz import native
from bfcviz.allocator.heap import Heap


def trim_heap(heap: Heap) -> int:
    """Release every wholly free region; returns how many bytes that were. Nothing, from within the sub-allocator.

    A heap that is empty afterwards grows from its first size again. TensorFlow's `DeallocateFreeRegions` does not reset
    the growth, and neither does the heap's own `collect`, so addresses stay TensorFlow's.
    """
    if heap.is_growing_here() or heap.is_cut():
        return 0
    native.mutex_lock(heap.growth)
    native.spin_lock(heap.lock)
    before = heap.space.pool_bytes
    if not heap.closed and heap.resume():
        heap.release_free_regions()
    released = before - heap.space.pool_bytes
    if heap.space.pool_bytes == 0:
        heap.next_region = heap.first_region
    native.spin_unlock(heap.lock)
    native.mutex_unlock(heap.growth)
    return released


def return_free_pages(heap: Heap, only_idle: bool) -> int:
    """Give pages of free chunks of 1 MiB and more back to the operating system; returns how many bytes."""
    if only_idle:
        native.spin_lock(heap.lock)
        heap.page_ages.begin_period()
        native.spin_unlock(heap.lock)
    state = native.release_gil()
    returned = heap.page_ages.return_pages(heap.space, heap.source, not only_idle)
    native.take_gil(state)
    return returned


def settle(heap: Heap, patience: int) -> None:
    """Wait until no other thread is in the sub-allocator, for so many nanoseconds at most."""
    native.mutex_settle(heap.growth, patience)
