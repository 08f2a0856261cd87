"""A StreamTable of heaps, called as PyTorch calls it."""

import ctypes
import shutil
from itertools import count

import pytest
from heaps import MIB, new_heap

from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.live.c_callbacks import StreamTable
from bfcviz.live.deferred_frees import DeferredFrees

ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)


FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


RECORD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


NUMBERS = count(1000)


needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to build the caller with")


class FakeEvent:
    def __init__(self, stream):
        self.stream = stream
        self.done = self.waited = False

    def query(self):
        return self.done

    def synchronize(self):
        self.done = self.waited = True


class FakeStreams:
    def __init__(self):
        self.events = []
        self.gone = False
        self.synchronized = []

    def record(self, device, stream):
        if self.gone:
            raise RuntimeError("no such stream")
        self.events.append(FakeEvent(stream))
        return self.events[-1]

    def synchronize(self, device):
        self.synchronized.append(device)


class Service:
    """StreamTable of heaps of pretended memory, called as PyTorch would."""

    def __init__(self, spare=2, limit=MIB, more=True, thrower=0):
        self.heaps = []
        self.limit = limit
        self.streams = FakeStreams()
        self.table = StreamTable(next(NUMBERS), 7)
        self.deferred = DeferredFrees(self.table, self.add if more else lambda _: None, self.streams)
        alloc, free, record = self.table.functions()
        self.alloc_function, self.free_function, self.record = ALLOC(alloc), FREE(free), RECORD(record)
        for _ in range(spare):
            self.add(0)
        self.table.serve(thrower, self.deferred)

    def add(self, device):
        # At addresses of its own, as real memory is.
        source = SimulatedSubAllocator(base=0x10_0000_0000 * next(NUMBERS))
        heap = new_heap(self.limit, source)
        self.heaps.append(heap)
        self.table.add(heap, device)

    def alloc(self, size, device=0, stream=0):
        return self.alloc_function(size, device, stream or None)

    def free(self, address, size=1, device=0, stream=0):
        self.free_function(address, size, device, stream or None)

    def in_use(self):
        return [(stream_heap.device, stream_heap.stream) for stream_heap in self.table.in_use()]
