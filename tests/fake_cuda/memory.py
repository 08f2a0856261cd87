"""Memory: what each device has, and who holds it. Addresses only, from BASE on."""
# ruff: noqa: N802  the driver's names

from itertools import count

from fake_cuda.status import Status

GRANULE = 2 << 20
_PINNED_ON_DEVICE = (1, 1)


class Memory:
    """The driver's memory functions; mixed into FakeCuda.

    Attributes:
        allocated: bytes by address.
        pinned: bytes of host memory by address.
        owner: the device of an address or handle.
        graph_owned: addresses allocated within a capture: the graph owns them.
        reserved, handles, held, mapped, access: virtual memory: bytes of a reservation, bytes of a handle that is held
            or mapped, the handles held, (bytes, handle) by address, devices that may access what is mapped.
        properties: (handle types, GPUDirect flag) that a handle was made with.
        pool_access: other devices that may access a device's pool of asynchronous memory.
    """

    BASE = 0x7F00_0000_0000

    def __init__(self):
        self.allocated = {}
        self.pinned = {}
        self.owner = {}
        self.graph_owned = set()
        self.stream = self.freed_in = None
        self.reserved = {}
        self.handles = {}
        self.held = set()
        self.mapped = {}
        self.access = {}
        self.properties = {}
        self.pool_access = {}
        self._handles = count(1)
        self._top = self.BASE

    @property
    def used(self):
        """Bytes of all devices."""
        return sum(self.allocated.values()) + sum(self.handles.values())

    @property
    def accessible(self):
        """Mapped addresses that a device may access."""
        return set(self.access)

    def used_on(self, device):
        """Bytes held on one device."""
        tables = (self.allocated, self.handles)
        return sum(size for table in tables for at, size in table.items() if self.owner.get(at, 0) == device)

    def memory_of(self, device):
        """Bytes a device has."""
        return self.memory if isinstance(self.memory, int) else self.memory[device]

    def place(self, size, alignment=512):
        where = -(-self._top // alignment) * alignment
        self._top = where + size + (1 << 30)
        return where

    def forget_memory(self, device):
        """A context was destroyed: its memory goes. Virtual memory belongs to no context."""
        for table in (self.allocated, self.pinned):
            for address in [at for at in table if self.owner.get(at, 0) == device]:
                del table[address]

    def _is_full(self, size, device):
        return self.used_on(device) + size > self.memory_of(device)

    def _cuMemGetInfo_v2(self, free, total):
        total.value = self.memory_of(self.current)
        free.value = total.value - self.used_on(self.current)

    # -- plain memory

    def _cuMemAlloc_v2(self, out, size):
        if size == 0:
            return Status.INVALID_VALUE
        if self._is_full(size, self.current):
            return Status.OUT_OF_MEMORY
        out.value = self.place(size)
        self.allocated[out.value], self.owner[out.value] = size, self.current
        return 0

    def _cuMemFree_v2(self, where):
        if where not in self.allocated:
            return Status.INVALID_VALUE
        self.finish(device=self.owner.get(where, 0))  # it waits for the device
        del self.allocated[where]
        return 0

    def _cuMemAllocManaged(self, out, size, flags):
        return self._cuMemAlloc_v2(out, size) if flags in (1, 2) else Status.INVALID_VALUE

    def _cuMemHostAlloc(self, out, size, flags):
        out.value = self.place(size, 4096)
        self.pinned[out.value], self.owner[out.value] = size, self.current

    def _cuMemFreeHost(self, where):
        return 0 if self.pinned.pop(where, None) else Status.INVALID_VALUE

    def _cuMemAllocAsync(self, out, size, stream):
        found = self.stream_of(stream)
        if found is None:
            return Status.INVALID_HANDLE
        self.stream = stream
        status = self._cuMemAlloc_v2(out, size)
        if status == 0 and found.capture is not None:
            self.graph_owned.add(out.value)
        return status

    def _cuMemFreeAsync(self, where, stream):
        found = self.stream_of(stream)
        if found is None:
            return Status.INVALID_HANDLE
        if where not in self.allocated or (found.capture and where not in self.graph_owned):
            return Status.INVALID_VALUE  # a graph frees what a graph allocated
        self.freed_in = stream
        del self.allocated[where]
        return 0

    def _cuDeviceGetMemPool(self, out, device):
        out.value = 0x500 + device

    def _cuMemPoolSetAccess(self, pool, access, number):
        asked = {each.location.id for each in access}
        if len(asked) != number or not self.has_peers or not all(0 <= each < self.devices for each in asked):
            return Status.INVALID_VALUE
        self.pool_access.setdefault(pool - 0x500, set()).update(asked)
        return 0

    # -- virtual memory

    def _cuMemGetAllocationGranularity(self, out, properties, flags):
        if (properties.type, properties.location.type) != _PINNED_ON_DEVICE:
            return Status.INVALID_VALUE
        if not 0 <= properties.location.id < self.devices:
            return Status.INVALID_DEVICE
        out.value = GRANULE
        return 0

    def _cuMemAddressReserve(self, out, size, alignment, fixed, flags):
        if size == 0 or size % GRANULE or alignment & (alignment - 1):
            return Status.INVALID_VALUE
        out.value = self.place(size, GRANULE)
        self.reserved[out.value] = size
        return 0

    def _cuMemAddressFree(self, where, size):
        if self.reserved.get(where) != size or any(where <= at < where + size for at in self.mapped):
            return Status.INVALID_VALUE
        del self.reserved[where]
        return 0

    def _cuMemCreate(self, out, size, properties, flags):
        asked = properties.handle_types, properties.flags.gpu_direct
        if size == 0 or size % GRANULE or (properties.type, properties.location.type) != _PINNED_ON_DEVICE:
            return Status.INVALID_VALUE
        if (
            (asked[0] & 1 and not self.attributes[103])
            or asked[0] & ~1
            or (asked[1] and not self.attributes.get(110))
        ):
            return Status.NOT_SUPPORTED
        if self._is_full(size, properties.location.id):
            return Status.OUT_OF_MEMORY
        out.value = next(self._handles)
        self.handles[out.value], self.owner[out.value] = size, properties.location.id
        self.properties[out.value] = asked
        self.held.add(out.value)
        return 0

    def _cuMemMap(self, where, size, offset, handle, flags):
        inside = any(at <= where and where + size <= at + room for at, room in self.reserved.items())
        taken = any(at < where + size and where < at + had for at, (had, _) in self.mapped.items())
        if offset or handle not in self.held or self.handles[handle] != size or not inside or taken:
            return Status.INVALID_VALUE
        self.mapped[where] = (size, handle)
        return 0

    def _cuMemSetAccess(self, where, size, access, number):
        asked = list(access) if number > 1 or hasattr(access, "_length_") else [access]
        if self.mapped.get(where, (0,))[0] != size or len(asked) != number:
            return Status.INVALID_VALUE
        if any((each.location.type, each.flags) != (1, 3) for each in asked):
            return Status.INVALID_VALUE
        if not all(0 <= each.location.id < self.devices for each in asked):
            return Status.INVALID_DEVICE
        self.access[where] = {each.location.id for each in asked}
        return 0

    def _cuMemUnmap(self, where, size):
        if self.mapped.get(where, (0,))[0] != size:
            return Status.INVALID_VALUE
        _, handle = self.mapped.pop(where)
        self.access.pop(where, None)
        self._let_go(handle)
        return 0

    def _cuMemRelease(self, handle):
        if handle not in self.held:
            return Status.INVALID_VALUE
        self.held.remove(handle)
        self._let_go(handle)
        return 0

    def _cuMemExportToShareableHandle(self, out, handle, kind, flags):
        if handle not in self.held or not self.properties[handle][0] & kind:
            return Status.INVALID_VALUE
        out.value = 1000 + handle
        return 0

    def _let_go(self, handle):
        """Memory goes with its last handle and mapping."""
        if handle not in self.held and all(each != handle for _, each in self.mapped.values()):
            del self.handles[handle]
