"""CuPy without a GPU: its real arrays and allocators, over host memory, with devices and streams made up."""

import ctypes
import os
import threading
from contextlib import contextmanager

import pytest

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.errors import LiveError
from bfcviz.events.log import EventLog
from bfcviz.live import cupy as cupy_api
from bfcviz.live.cupy import serve_cupy
from bfcviz.live.deferred_frees import DelayedEvent
from bfcviz.live.memory_limits import Room

try:
    import cupy
except ImportError:
    cupy = None

needs_cupy = pytest.mark.skipif(
    cupy is None and not os.environ.get("CI"),
    reason="needs CuPy: pip install cupy-cuda12x (no GPU is needed)",
)


class Event:
    """Passes when the test says so, or when the program waits for it."""

    def __init__(self, gpu, stream):
        self.gpu, self.stream, self.passed = gpu, stream, False

    def query(self):
        self.gpu.asked += 1
        return self.passed or self.stream not in self.gpu.busy

    def synchronize(self):
        self.gpu.waited.append(self.stream)
        self.passed = True


class Stream:
    """CuPy's object; the program drops it by `gpu.streams.pop(handle)`."""

    def __init__(self, gpu):
        self.gpu = gpu

    def synchronize(self):
        self.gpu.waited.append(self)


class StandIn(cupy_api.CupyFunctions):
    """What `Cuda` asks of a GPU, answered from here; `busy` streams have work that never ends by itself.

    Attributes:
        captured: streams that are being captured.
        idle: bytes that CuPy's own pool has and no array needs; `taken` has them, too.
        regions: sub-allocators made, by device and stream.
        recorded: streams that an event was recorded in.
        asked: how often whether an event has passed.
        grants: of the driver to pools that are observed: bytes by device and address.
        pools: by the number that a hook is told of pooled memory.
        waited: streams that were waited for; device numbers below 0 for whole devices.
    """

    memory = 64 << 20
    taken = 0
    idle = 0

    def __init__(self, wish="served"):
        self.cupy = cupy
        self.runtime = cupy.cuda.runtime
        self.here = threading.local()
        self.busy, self.recorded, self.waited = set(), [], []
        self.regions = {}
        self.capacity = None
        self.asked = 0
        self.streams = {}
        self.captured = set()
        self.broken = False
        self.grants, self.pools = {}, {}
        self._device_of = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda _: self.device())
        self._stream_of = ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)(self.stream_handle)

    @contextmanager
    def on(self, stream=0, device=0):
        """Make a stream and a device current in this thread."""
        before = self.here.__dict__.copy()
        self.here.stream, self.here.device = stream, device
        try:
            yield
        finally:
            self.here.__dict__.clear()
            self.here.__dict__.update(before)

    def device(self):
        return getattr(self.here, "device", 0)

    def stream_handle(self, device):
        return getattr(self.here, "stream", 0)

    def stream_object(self, device):
        return self.streams.setdefault(self.stream_handle(device), Stream(self))

    def stream_of(self):
        return ctypes.cast(self._stream_of, ctypes.c_void_p).value

    def device_of(self):
        return ctypes.cast(self._device_of, ctypes.c_void_p).value

    def pool_of(self, pooled):
        return self.pools.get(pooled)

    def is_grant(self, device, address, size):
        return self.grants.get((device, address), 0) >= size

    def total_memory(self, device):
        return self.memory

    def room(self, device):
        return Room(self.memory, self.memory - self.taken, 9)

    def empty_cache(self, device):
        freed, self.idle = self.idle, 0
        self.taken -= freed
        return freed

    def record(self, device, stream):
        if self.broken:
            raise RuntimeError("cudaErrorInvalidResourceHandle")
        self.recorded.append(stream)
        if stream in self.captured:
            return DelayedEvent(lambda: None if stream in self.captured else Event(self, stream))
        return Event(self, stream)

    def synchronize(self, device):
        if self.captured:
            raise LiveError("cudaErrorStreamCaptureUnsupported")
        self.waited.append(-1 - device)

    def sub_allocator(self, memory, device, stream, budget):
        self.regions[device, stream] = made = Shared(budget, self.capacity)
        return made

    def allocator_of(self, functions):
        module = self.cupy.cuda.memory
        return lambda size: module.MemoryPointer(
            module.CFunctionAllocatorMemory(size, *functions, self.device()), 0
        )


class Shared(HostSubAllocator):
    """Host memory; only whether the budget is asked is the stand-in's."""

    def __init__(self, budget, capacity):
        super().__init__(min(budget.limit, capacity or budget.limit))


@pytest.fixture
def gpu(monkeypatch):
    """A GPU made up; CuPy's allocator is as before afterwards."""
    assert cupy is not None, "CuPy is missing: the CI installs it, so that this is tested"
    made = StandIn()
    monkeypatch.setattr(cupy_api, "CupyFunctions", lambda wish: made)
    before = cupy.cuda.get_allocator()
    yield made
    assert cupy.cuda.get_allocator() == before
    cupy.cuda.set_allocator(before)


def served(limit=None, **options):
    return serve_cupy(limit, log=EventLog(1 << 16), **options)


def heap_of(source, number=0):
    return source.heaps[number]


def in_use(source):
    return [heap.stats().chunks_in_use for heap in source.heaps]
