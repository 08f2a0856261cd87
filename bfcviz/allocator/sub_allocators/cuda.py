"""Regions of a GPU's memory, from CUDA's driver: plain, managed, from the driver's own pool, or mapped piece by piece.

============  =======================  ===========================================================================
memory        taken by                 what that means
============  =======================  ===========================================================================
`device`      cuMemAlloc               giving a region back waits for the whole device
`managed`     cuMemAllocManaged        may exceed the device: pages move between it and the host
`async`       cuMemAllocAsync          in the order of one stream, nothing waits; the driver keeps a pool of its own
`virtual`     cuMemCreate, cuMemMap    regions that grow in place, so that free memory at their ends is joined
============  =======================  ===========================================================================
"""

import ctypes
from threading import Lock
from typing import Any, Final, Literal

from bfcviz.allocator.sub_allocators import cuda_driver
from bfcviz.allocator.sub_allocators.base import PythonSubAllocator
from bfcviz.allocator.sub_allocators.cuda_driver import DEINITIALIZED, OUT_OF_MEMORY, Driver, address
from bfcviz.errors import DeviceError, InvalidRequest

Memory = Literal["device", "managed", "async", "virtual"]
KINDS: Final = ("device", "managed", "async", "virtual")
_ATTACH_GLOBAL: Final = 1


class Budget:
    """Bytes that several sub-allocators may grant together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = Lock()

    def take(self, num_bytes: int) -> bool:
        """Set them aside; False where that is too much."""
        with self._lock:
            if num_bytes > self.limit - self.used:
                return False
            self.used += num_bytes
            return True

    def give_back(self, num_bytes: int) -> None:
        """They are free again."""
        with self._lock:
            self.used -= num_bytes


class CudaSubAllocator(PythonSubAllocator):
    """What those of a GPU share: a budget, the device, and errors.

    Args:
        device: its number.
        budget: what may be granted, with others; None = what the device gives.
        driver: by default the machine's.
        joins: whether a region may begin where another ends, and go back with it.

    Raises:
        DeviceError: there is no driver or no such device.

    Attributes:
        used: bytes granted now.
    """

    def __init__(
        self,
        device: int = 0,
        *,
        budget: Budget | None = None,
        driver: Driver | None = None,
        joins: bool = False,
    ) -> None:
        super().__init__(supports_coalescing=joins)
        self.driver = cuda_driver.load() if driver is None else driver
        count = self.driver.device_count()
        if not 0 <= device < count:
            raise DeviceError(f"memory of device {device} was asked for; there are {count}, counted from 0")
        self.device = device
        self.budget = Budget(1 << 62) if budget is None else budget
        self.used = 0

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:
        """Grant a region; refuses where budget or device are exhausted."""
        num_bytes = self.rounded(num_bytes)
        if not self.budget.take(num_bytes):
            return None
        granted = 0
        try:
            with self.driver.on(self.device):
                granted = self.take(num_bytes)
                if granted % alignment:
                    refused, granted = granted, 0
                    self.give_up(refused, num_bytes)
        finally:
            if granted == 0:
                self.budget.give_back(num_bytes)
        if granted == 0:
            return None
        self.used += num_bytes
        return granted, num_bytes

    def free(self, address: int, num_bytes: int) -> None:
        """Take a region back."""
        try:
            with self.driver.on(self.device):
                self.give_up(address, num_bytes)
        except DeviceError as error:
            if error.status != DEINITIALIZED:
                raise
        self.used -= num_bytes
        self.budget.give_back(num_bytes)

    def rounded(self, num_bytes: int) -> int:
        """What is granted for a request."""
        return num_bytes

    def take(self, num_bytes: int) -> int:
        """Memory from the driver: its address, 0 = there is none."""
        raise NotImplementedError

    def give_up(self, where: int, num_bytes: int) -> None:
        """Memory back to the driver."""
        raise NotImplementedError

    def ask_driver(self, name: str, *arguments: Any) -> int:
        """Call a function that writes an address into its first argument; 0 where memory is exhausted."""
        found = ctypes.c_uint64()
        status = self.driver.try_call(name, ctypes.byref(found), *arguments)
        if status == OUT_OF_MEMORY:
            return 0
        if status:
            self.driver.fail(name, status)
        return found.value


class DeviceSubAllocator(CudaSubAllocator):
    """Memory of the device."""

    def take(self, num_bytes: int) -> int:
        """See cuMemAlloc."""
        return self.ask_driver("cuMemAlloc_v2", ctypes.c_size_t(num_bytes))

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """See cuMemFree: it waits for all work on the device."""
        self.driver.call("cuMemFree_v2", address(where))


class ManagedSubAllocator(DeviceSubAllocator):
    """Memory that device and host share, and that may be more than the device has."""

    def take(self, num_bytes: int) -> int:
        """See cuMemAllocManaged."""
        return self.ask_driver("cuMemAllocManaged", ctypes.c_size_t(num_bytes), _ATTACH_GLOBAL)


class AsyncSubAllocator(CudaSubAllocator):
    """Memory of the device's own pool, in the order of one stream: only work on it, or behind it, may use the memory.

    Args:
        device: its number.
        stream: handle of the stream.
        options: of CudaSubAllocator.
    """

    def __init__(self, device: int = 0, stream: int = 0, **options: Any) -> None:
        super().__init__(device, **options)
        self.stream = stream

    def take(self, num_bytes: int) -> int:
        """See cuMemAllocAsync."""
        return self.ask_driver("cuMemAllocAsync", ctypes.c_size_t(num_bytes), ctypes.c_void_p(self.stream))

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """See cuMemFreeAsync."""
        self.driver.call("cuMemFreeAsync", address(where), ctypes.c_void_p(self.stream))


class VirtualSubAllocator(CudaSubAllocator):
    """Memory that is mapped into one reserved stretch of addresses, each grant behind the last one where that is free.

    Args:
        device: its number.
        reserve: bytes of addresses, which cost no memory; by default twice what the device has.
        options: of CudaSubAllocator.
    """

    def __init__(self, device: int = 0, reserve: int | None = None, **options: Any) -> None:
        super().__init__(device, joins=True, **options)
        self._properties = cuda_driver.Properties.of_device(device)
        self._mapped: dict[int, int] = {}  # bytes by address: each is given back as it was mapped
        self.start = 0
        with self.driver.on(device):
            granule = ctypes.c_size_t()
            self.driver.call(
                "cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(self._properties), 0
            )
            self.granule = granule.value
            wanted = 2 * self.driver.total_memory(device) if reserve is None else reserve
            if wanted < 1:
                raise InvalidRequest(f"{wanted} bytes of addresses were to be reserved; give at least 1")
            self.reserved = self.rounded(wanted)
            start = ctypes.c_uint64()
            size = ctypes.c_size_t(self.reserved)
            self.driver.call(
                "cuMemAddressReserve",
                ctypes.byref(start),
                size,
                ctypes.c_size_t(0),
                address(0),
                ctypes.c_uint64(0),
            )
            self.start = start.value

    def rounded(self, num_bytes: int) -> int:
        """Whole granules, 2 MiB on most devices."""
        return -(-num_bytes // self.granule) * self.granule

    def take(self, num_bytes: int) -> int:
        """Memory, mapped into the lowest gap of the addresses that holds it. What fails half-way is undone."""
        where = self._gap(num_bytes)
        handle = self.ask_driver(
            "cuMemCreate", ctypes.c_size_t(num_bytes), ctypes.byref(self._properties), ctypes.c_uint64(0)
        ) if where else 0  # fmt: skip
        if handle == 0:
            return 0
        size, access = ctypes.c_size_t(num_bytes), cuda_driver.Access.to_all(self.device)
        try:
            self.driver.call(
                "cuMemMap",
                address(where),
                size,
                ctypes.c_size_t(0),
                ctypes.c_uint64(handle),
                ctypes.c_uint64(0),
            )
            try:
                self.driver.call(
                    "cuMemSetAccess", address(where), size, ctypes.byref(access), ctypes.c_size_t(1)
                )
            except DeviceError:
                self.driver.try_call("cuMemUnmap", address(where), size)
                raise
        finally:
            self.driver.try_call(
                "cuMemRelease", ctypes.c_uint64(handle)
            )  # the mapping alone keeps the memory
        self._mapped[where] = num_bytes
        return where

    def give_up(self, where: int, num_bytes: int) -> None:
        """Unmap all that was mapped there; nothing on the device may be at work on it."""
        self.driver.call("cuCtxSynchronize")
        for begin in [mapped for mapped in self._mapped if where <= mapped < where + num_bytes]:
            self.driver.call("cuMemUnmap", address(begin), ctypes.c_size_t(self._mapped[begin]))
            del self._mapped[begin]

    def close(self) -> None:
        """Give the addresses back, where nothing is mapped."""
        if self.start and not self._mapped:
            start, self.start = self.start, 0
            with self.driver.on(self.device):
                self.driver.try_call("cuMemAddressFree", address(start), ctypes.c_size_t(self.reserved))

    def __del__(self) -> None:
        if getattr(self, "start", 0):
            self.close()

    def _gap(self, num_bytes: int) -> int:
        """The lowest address with so many unmapped bytes behind it; 0 = there is none."""
        at = self.start
        for begin in sorted(self._mapped):
            if begin - at >= num_bytes:
                return at
            at = begin + self._mapped[begin]
        return at if self.start + self.reserved - at >= num_bytes else 0


def cuda_sub_allocator(
    memory: Memory,
    device: int = 0,
    stream: int = 0,
    *,
    budget: Budget | None = None,
    driver: Driver | None = None,
) -> CudaSubAllocator:
    """A sub-allocator of a GPU, by the kind of memory.

    Args:
        memory: see the table above.
        device: its number.
        stream: handle of the stream that will use the memory; `async` memory comes in its order.
        budget: what may be granted, with others.
        driver: by default the machine's.

    Raises:
        InvalidRequest: there is no such memory.
        DeviceError: there is no driver or no such device.
    """
    if memory not in KINDS:
        raise InvalidRequest(f"memory {memory!r} was asked for; there are {', '.join(map(repr, KINDS))}")
    if memory == "async":
        return AsyncSubAllocator(device, stream, budget=budget, driver=driver)
    kinds: dict[str, type[CudaSubAllocator]] = {
        "device": DeviceSubAllocator, "managed": ManagedSubAllocator, "virtual": VirtualSubAllocator,
    }  # fmt: skip
    return kinds[memory](device, budget=budget, driver=driver)
