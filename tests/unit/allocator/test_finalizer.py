"""Finalizer: a heap releases its memory when it is closed or collected, and when the process ends."""

import copy
import ctypes
import gc
import pickle

import numpy as np
import pytest
from heaps import MIB, Scripted, new_heap

from bfcviz.allocator.replay import Operations
from bfcviz.allocator.sub_allocators import HostSubAllocator, SimulatedSubAllocator
from bfcviz.errors import AllocatorError, OutOfMemory
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.schema import EVENT


def closed_heap(source=None, **options):
    heap = new_heap(8 * MIB, HostSubAllocator() if source is None else source, **options)
    address = heap.allocate(1000)
    heap.allocate(3 * MIB)
    heap.close()
    return heap, address


@pytest.mark.parametrize("options", [{}, {"allow_growth": True}, {"timestamps": True}, {"retry_s": 5.0}])
def test_a_closed_heap_gives_everything_back_and_refuses(options):
    heap, address = closed_heap(**options)
    assert heap.sub_allocator.used == 0
    for call in (heap.allocate, heap.try_allocate):
        with pytest.raises(AllocatorError, match="closed") as caught:
            call(100)
        assert not isinstance(caught.value, OutOfMemory)
    heap.free(address)  # `close` released it
    with pytest.raises(AllocatorError, match="closed"):
        heap.replay(Operations([0], [1], [100]))
    functions = heap.c_functions()
    allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(
        functions.allocate
    )
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(functions.free)
    assert allocate(functions.context, 256, 100) is None
    free(functions.context, address)
    assert heap.rejected_frees == 0
    assert heap.sub_allocator.used == 0


def test_a_closed_heap_shows_itself_empty():
    heap, _ = closed_heap()
    stats = heap.stats()
    assert (stats.bytes_in_use, stats.pool_bytes, stats.free_bytes, stats.regions) == (0, 0, 0, 0)
    assert stats.peak_bytes_in_use > 3 * MIB
    assert len(heap.memory_map()) == len(heap.regions()) == 0
    assert heap.occupancy() == "<allocator contains no memory>"
    heap.check_invariants()
    heap.close()
    assert len(Reader(heap.log, 0).read()) == heap.log.head


def test_a_with_block_closes():
    source = SimulatedSubAllocator()
    with new_heap(MIB, source) as heap:
        heap.allocate(1)
        assert source.used == MIB
    assert source.used == 0


def test_a_forgotten_heap_closes():
    source = SimulatedSubAllocator()
    heap = new_heap(MIB, source)
    heap.allocate(1)
    del heap
    gc.collect()
    assert source.used == 0


def test_a_heap_in_a_cycle_closes():
    source = Scripted(lambda _, num_bytes: (MIB, num_bytes))
    source.heap = new_heap(MIB, source)
    source.heap.allocate(1)
    released = source.released
    del source
    gc.collect()
    assert released == [(MIB, MIB)]


def test_the_file_of_a_closed_heap_ends_behind_the_last_event(tmp_path):
    heap = new_heap(log=EventLog(64, tmp_path))
    for _ in range(100):
        heap.free(heap.allocate(1))
    heap.close()
    count = heap.log.head
    heap.mark("too late for the file")
    events = np.fromfile(tmp_path / "events.bin", EVENT)
    assert len(events) == count
    assert (events["kind"] > 0).all()
    assert len(Reader(heap.log, 0).read()) == count + 1


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_heap_cannot_be_copied(copying):
    heap = new_heap(MIB, HostSubAllocator())
    address = heap.allocate(100)
    with pytest.raises(TypeError, match="owns its memory"):
        copying(heap)
    ctypes.memset(address, 1, 100)
