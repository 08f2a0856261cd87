"""Trimming: return free memory on demand, as whole regions or as pages."""

from bfcviz import native
from bfcviz.allocator.heap import Heap


def trim_heap(heap: Heap) -> int:
    """Release every wholly free region; returns the number of bytes released. Does nothing within the sub-allocator.

    A heap that is empty afterwards grows from its first region size again. TensorFlow's `DeallocateFreeRegions` and the
    heap's own `collect` do not reset the growth, so those addresses equal TensorFlow's.
    """
    if heap.is_growing_here() or heap.was_forked_while_growing():
        return 0
    native.mutex_lock(heap.growth)
    heap.space.log.lock_and_tick(heap.pool)
    before = heap.space.pool_bytes
    if not heap.closed and heap.has_room():
        heap.release_free_regions()
    released = before - heap.space.pool_bytes
    if heap.space.pool_bytes == 0:
        heap.next_region = heap.first_region
    native.spin_unlock(heap.lock)
    native.mutex_unlock(heap.growth)
    return released


def return_free_pages(heap: Heap, only_idle: bool) -> int:
    """Return pages of free chunks of 1 MiB and more to the operating system; returns the number of bytes."""
    if only_idle:
        native.spin_lock(heap.lock)
        heap.page_ages.begin_period()
        native.spin_unlock(heap.lock)
    state = native.release_gil()
    returned = heap.page_ages.return_pages(heap.space, heap.source, not only_idle)
    native.take_gil(state)
    return returned


def wait_for_growth(heap: Heap, patience: int) -> None:
    """Wait until no other thread is in the sub-allocator, for at most `patience` nanoseconds."""
    native.mutex_wait(heap.growth, patience)
