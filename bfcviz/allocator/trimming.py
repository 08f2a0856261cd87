"""Trimming: wholly free regions go back before anybody runs out of memory."""

from bfcviz import native
from bfcviz.allocator.heap import Heap


def trim_heap(heap: Heap) -> int:
    """Release every wholly free region; returns how many bytes that were. Nothing, from within the sub-allocator."""
    if heap.is_growing_here():
        return 0
    native.mutex_lock(heap.growth)
    native.spin_lock(heap.lock)
    before = heap.space.pool_bytes
    if not heap.closed and heap.resume():
        heap.release_free_regions()
    released = before - heap.space.pool_bytes
    native.spin_unlock(heap.lock)
    native.mutex_unlock(heap.growth)
    return released
