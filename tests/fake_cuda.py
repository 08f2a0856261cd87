"""A stand-in for libcuda: keeps its books, checks the order of calls, and fails where it is told to."""
# ruff: noqa: N802  the driver's names

from ctypes import c_char_p
from itertools import count

OUT_OF_MEMORY = 2
GRANULE = 2 << 20


class FakeCuda:
    """Functions of the driver by name. Device memory is addresses only, from BASE on.

    Args:
        memory: bytes of each device.
        devices: how many there are.
        fails: status by name of function, from the next call on.
        lacks: functions it does not have.
    """

    BASE = 0x7F00_0000_0000

    def __init__(self, memory=64 << 20, devices=1, fails=None, lacks=()):
        self.memory = memory
        self.devices = devices
        self.fails = dict(fails or {})
        self.lacks = lacks
        self.calls = []
        self.contexts = []
        self.allocated = {}
        self.reserved = {}
        self.handles = {}  # bytes of memory that has a handle or a mapping
        self.held = set()
        self.mapped = {}
        self.accessible = set()
        self._handles = count(1)
        self._top = self.BASE

    def __getattr__(self, name):
        if name == "lacks" or name in self.lacks or not hasattr(type(self), f"_{name}"):
            raise AttributeError(name)

        def function(*arguments):
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            plain = [getattr(each, "_obj", getattr(each, "value", each)) for each in arguments]
            return getattr(self, f"_{name}")(*plain) or 0

        return function

    @property
    def used(self):
        return sum(self.allocated.values()) + sum(self.handles.values())

    def place(self, size, alignment=512):
        where = -(-self._top // alignment) * alignment
        self._top = where + size + (1 << 30)
        return where

    # -- the driver and its devices

    def _cuInit(self, flags):
        return 100 if self.devices == 0 else 0

    def _cuDeviceGetCount(self, out):
        out.value = self.devices

    def _cuDeviceGet(self, out, device):
        if not 0 <= device < self.devices:
            return 101
        out.value = device
        return 0

    def _cuDeviceTotalMem_v2(self, out, device):
        out.value = self.memory

    def _cuDevicePrimaryCtxRetain(self, out, device):
        out.value = 0x1000 + device

    def _cuCtxPushCurrent_v2(self, context):
        self.contexts.append(context)

    def _cuCtxPopCurrent_v2(self, out):
        self.contexts.pop()

    def _cuCtxSynchronize(self):
        assert self.contexts

    def _cuGetErrorName(self, status, out):
        out.value = c_char_p(f"CUDA_ERROR_{status}".encode()).value

    def _cuGetErrorString(self, status, out):
        out.value = c_char_p(b"as the test wanted").value

    # -- plain memory

    def _cuMemAlloc_v2(self, out, size):
        assert self.contexts
        if self.used + size > self.memory:
            return OUT_OF_MEMORY
        out.value = self.place(size)
        self.allocated[out.value] = size
        return 0

    def _cuMemFree_v2(self, where):
        assert self.contexts
        del self.allocated[where]

    def _cuMemAllocManaged(self, out, size, flags):
        assert flags == 1
        return self._cuMemAlloc_v2(out, size)

    def _cuMemAllocAsync(self, out, size, stream):
        self.stream = stream
        return self._cuMemAlloc_v2(out, size)

    def _cuMemFreeAsync(self, where, stream):
        assert stream == self.stream
        self._cuMemFree_v2(where)

    # -- virtual memory

    def _cuMemGetAllocationGranularity(self, out, properties, flags):
        assert (properties.type, properties.location.type) == (1, 1)
        out.value = GRANULE

    def _cuMemAddressReserve(self, out, size, alignment, fixed, flags):
        assert size % GRANULE == 0
        out.value = self.place(size, GRANULE)
        self.reserved[out.value] = size

    def _cuMemAddressFree(self, where, size):
        assert self.reserved.pop(where) == size
        assert not any(where <= at < where + size for at in self.mapped)

    def _cuMemCreate(self, out, size, properties, flags):
        assert size % GRANULE == 0
        if self.used + size > self.memory:
            return OUT_OF_MEMORY
        out.value = next(self._handles)
        self.handles[out.value] = size
        self.held.add(out.value)
        return 0

    def _cuMemMap(self, where, size, offset, handle, flags):
        assert self.handles[handle] == size
        assert any(at <= where and where + size <= at + room for at, room in self.reserved.items())
        assert not any(at < where + size and where < at + had for at, (had, _) in self.mapped.items())
        self.mapped[where] = (size, handle)

    def _cuMemSetAccess(self, where, size, access, number):
        assert (access.location.type, access.flags, number) == (1, 3, 1)
        assert self.mapped[where][0] == size
        self.accessible.add(where)

    def _cuMemUnmap(self, where, size):
        had, handle = self.mapped.pop(where)
        assert had == size
        self.accessible.discard(where)
        self._let_go(handle)

    def _cuMemRelease(self, handle):
        self.held.remove(handle)
        self._let_go(handle)

    def _let_go(self, handle):
        """Memory goes with its last handle and mapping."""
        if handle not in self.held and all(each != handle for _, each in self.mapped.values()):
            del self.handles[handle]
