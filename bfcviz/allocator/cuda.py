"""Create a sub-allocator of GPU memory by the kind of memory.

============  =======================  ===========================================================================
memory        allocated by             properties
============  =======================  ===========================================================================
`device`      cuMemAlloc               returning a region waits for the whole device
`managed`     cuMemAllocManaged        may exceed the device: pages move between it and the host
`async`       cuMemAllocAsync          in the order of one stream, nothing waits; the driver keeps a pool of its own
`virtual`     cuMemCreate, cuMemMap    regions grow in place, so that free memory at their ends is joined
============  =======================  ===========================================================================
"""

import ctypes
from collections.abc import Callable
from threading import Lock
from typing import Any, ClassVar, Final, Literal

from bfcviz import _forks
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda_driver import (
    CAPTURE_UNSUPPORTED,
    CONTEXT_IS_DESTROYED,
    DEINITIALIZED,
    INVALID_HANDLE,
    LEGACY,
    OUT_OF_MEMORY,
    PER_THREAD,
    POSIX_HANDLES,
    RDMA_WITH_VIRTUAL,
    AccessDescriptor,
    Driver,
    Properties,
    address,
)
from bfcviz.allocator.sub_allocators import PythonSubAllocator
from bfcviz.errors import DeviceError, InvalidRequest
from bfcviz.units import format_bytes

_ALIGNED: Final = 256
"""Alignment of every address from the driver, in bytes."""


class Budget:
    """A limit in bytes that several sub-allocators of GPU memory share."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = _forks.keep(Lock())

    def take(self, num_bytes: int) -> bool:
        """Reserve bytes; False if that exceeds the limit."""
        with self._lock:
            if num_bytes > self.limit - self.used:
                return False
            self.used += num_bytes
            return True

    def give_back(self, num_bytes: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self.used -= num_bytes


class CudaSubAllocator(PythonSubAllocator):
    """Base class of sub-allocators of GPU memory.

    If returning a region would break a capture (`breaks_captures`), regions that are freed while the stream captures a
    graph wait. They are returned with the next grant or free after the capture.

    Args:
        device: number of the device.
        stream: handle of the stream that uses the memory, 0 = the default stream; or a function that returns it, where
            it is not known yet.
        budget: limit shared with other sub-allocators; None = no limit but the device's.
        driver: by default the machine's.
        joins: whether a region may begin where another ends, and be released together with it.

    Raises:
        DeviceError: there is no driver or no such device.

    Attributes:
        used: bytes granted now.
        breaks_captures: returning memory waits for the stream, or is queued in it. For other kinds of memory the stream
            is not queried, because its owner may have destroyed it.
    """

    breaks_captures: ClassVar[bool] = False

    def __init__(
        self,
        device: int = 0,
        *,
        stream: int | Callable[[], int] = 0,
        budget: Budget | None = None,
        driver: Driver | None = None,
        joins: bool = False,
    ) -> None:
        super().__init__(supports_coalescing=joins)
        self.driver = cuda_driver.load() if driver is None else driver
        count = self.driver.device_count()
        if not 0 <= device < count:
            raise DeviceError(f"there is no device {device}: there are {count} devices, counted from 0")
        self.device = device
        self._stream = stream
        self.budget = Budget(1 << 62) if budget is None else budget
        self.used = 0
        # By aligned address: the driver's address, and the number of device resets at that time.
        self._begins: dict[int, tuple[int, int]] = {}
        self._waiting: list[tuple[int, int]] = []  # regions freed during a capture

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:
        """Grant a region; refuse if the budget or the device is exhausted."""
        num_bytes = self.rounded(num_bytes)
        self.free_waiting()
        if not self.budget.take(num_bytes):
            return None
        granted = 0
        try:
            with self.driver.on(self.device):
                granted = self.place(num_bytes, alignment)
        finally:
            if granted == 0:
                self.budget.give_back(num_bytes)
        if granted == 0:
            return None
        self.used += num_bytes
        return granted, num_bytes

    @property
    def stream(self) -> int:
        """Handle of the stream that uses the memory; a sub-allocator without any grant may get another one."""
        return self._stream() if callable(self._stream) else self._stream

    @stream.setter
    def stream(self, handle: int) -> None:
        self._stream = handle

    @property
    def last_user(self) -> int:
        """Handle of a stream behind all work on the memory.

        It is that of `stream`. The default stream of a thread has no handle in other threads: there it is that of the
        legacy default stream, which waits for it.
        """
        return LEGACY if self.stream == PER_THREAD else self.stream

    def free(self, address: int, num_bytes: int) -> None:
        """Take a region back; during a capture, after its end."""
        self._waiting.append((address, num_bytes))
        self.free_waiting()

    def free_waiting(self) -> None:
        """Return the regions that were freed during a capture, if it has ended."""
        while self._waiting:
            address, num_bytes = region = self._waiting.pop()
            if not self._free_now(address, num_bytes):
                self._waiting.append(region)
                return
            self.used -= num_bytes
            self.budget.give_back(num_bytes)

    def _free_now(self, address: int, num_bytes: int) -> bool:
        """Return a region to the driver; False if a capture forbids that now."""
        try:
            with self.driver.on(self.device):
                if self.breaks_captures and self.driver.is_capturing(self.last_user):
                    return False
                self.remove(address, num_bytes)
        except DeviceError as error:
            if error.status == CAPTURE_UNSUPPORTED:
                return False
            if (
                error.status != DEINITIALIZED and not self.driver.is_forked
            ):  # in a fork the parent owns the memory
                raise
        return True

    def close(self) -> None:
        """Return the waiting regions."""
        self.free_waiting()

    def __del__(self) -> None:
        if getattr(self, "_waiting", None):
            self.close()

    def rounded(self, num_bytes: int) -> int:
        """Size of the region for a request."""
        return num_bytes

    def place(self, num_bytes: int, alignment: int) -> int:
        """Allocate aligned memory, with padding where the driver's alignment is too small; 0 = there is none."""
        begin = self.take(num_bytes + (alignment if alignment > _ALIGNED else 0))
        aligned = -(-begin // alignment) * alignment
        if begin:
            self._begins[aligned] = begin, self.driver.resets(self.device)
        return aligned

    def remove(self, where: int, num_bytes: int) -> None:
        """Free memory from `place`; after cudaDeviceReset it is freed already."""
        begin, resets = self._begins[where]
        if resets == self.driver.resets(self.device):
            self.give_up(begin, num_bytes)
        del self._begins[where]

    def take(self, num_bytes: int) -> int:
        """Allocate memory from the driver; returns its address, 0 = there is none."""
        raise NotImplementedError

    def give_up(self, where: int, num_bytes: int) -> None:
        """Free memory of the driver."""
        raise NotImplementedError

    def ask_driver(self, name: str, *arguments: Any) -> int:
        """Call a function that writes an address into its first argument; 0 if memory is exhausted."""
        found = ctypes.c_uint64()
        status = self.driver.try_call(name, ctypes.byref(found), *arguments)
        if status == OUT_OF_MEMORY:
            return 0
        if status:
            self.driver.fail(name, status)
        return found.value


class VirtualSubAllocator(CudaSubAllocator):
    """Memory that is mapped into one reserved address range, each grant directly after the last one if that is free.

    The range is reserved with the first grant, and given back with the last region. All devices that can may read and
    write the memory: CuPy and PyTorch enable access between devices by cudaDeviceEnablePeerAccess, which does not
    include memory of cuMemMap, and a kernel that reads it then ends all work on the device by a fault. Where the device
    supports it, other processes may map the memory (cuMemExportToShareableHandle, as UCX and NCCL do;
    cudaIpcGetMemHandle does not work for it), and network cards may read and write it (GPUDirect RDMA).

    Args:
        device: number of the device.
        reserve: size of the address range in bytes, which uses no memory; by default twice the device's memory.
        options: of CudaSubAllocator.

    Raises:
        InvalidRequest: `reserve` is below 1.
        DeviceError: the driver fails.

    Attributes:
        start: where the range begins; 0 = none is reserved.
        reserved: its size in bytes.
    """

    breaks_captures = True

    def __init__(self, device: int = 0, reserve: int | None = None, **options: Any) -> None:
        super().__init__(device, joins=True, **options)
        self._users = [device, *self.driver.peers(device)]
        handles, rdma = (
            self.driver.attribute(each, device) != 0 for each in (POSIX_HANDLES, RDMA_WITH_VIRTUAL)
        )
        self._properties = Properties.of_device(device, shareable=handles, rdma=rdma)
        self._mapped: dict[int, int] = {}  # bytes by address: each is unmapped as it was mapped
        self._stream_ids: dict[int, int] = {}  # by handle, of the streams that mapped it; -1: of several
        self.start = 0
        with self.driver.on(device):
            granule = ctypes.c_size_t()
            self.driver.call(
                "cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(self._properties), 0
            )
        self.granule = granule.value
        wanted = 2 * self.driver.total_memory(device) if reserve is None else reserve
        if wanted < 1:
            raise InvalidRequest(f"`reserve` is {wanted} bytes of addresses; give at least 1")
        self.reserved = self.rounded(wanted)

    def rounded(self, num_bytes: int) -> int:
        """Round up to whole granules, 2 MiB on most devices."""
        return -(-num_bytes // self.granule) * self.granule

    def place(self, num_bytes: int, alignment: int) -> int:
        """Map memory into the lowest gap of the address range that holds it. A failure half-way is undone."""
        if not self.start:
            self._reserve()
        where = self._gap(num_bytes, alignment)
        handle = self.ask_driver(
            "cuMemCreate", ctypes.c_size_t(num_bytes), ctypes.byref(self._properties), ctypes.c_uint64(0)
        ) if where else 0  # fmt: skip
        if handle == 0:
            return 0
        size = ctypes.c_size_t(num_bytes)
        access = (AccessDescriptor * len(self._users))(*map(AccessDescriptor.to_all, self._users))
        try:
            whole = (ctypes.c_size_t(0), ctypes.c_uint64(handle), ctypes.c_uint64(0))
            self.driver.call("cuMemMap", address(where), size, *whole)
            try:
                users = (ctypes.byref(access), ctypes.c_size_t(len(access)))
                self.driver.call("cuMemSetAccess", address(where), size, *users)
            except DeviceError:
                self.driver.try_call("cuMemUnmap", address(where), size)
                raise
        finally:
            # The mapping alone keeps the memory.
            self.driver.try_call("cuMemRelease", ctypes.c_uint64(handle))
        self._mapped[where] = num_bytes
        user = self.last_user
        number = self._stream_id(user)
        if self._stream_ids.setdefault(user, number) != number:
            self._stream_ids[user] = -1
        return where

    def remove(self, where: int, num_bytes: int) -> None:
        """Unmap all memory in a region, after waiting for the work on it."""
        self._wait()
        for begin in [mapped for mapped in self._mapped if where <= mapped < where + num_bytes]:
            self.driver.call("cuMemUnmap", address(begin), ctypes.c_size_t(self._mapped[begin]))
            del self._mapped[begin]
        if not self._mapped:
            self._stream_ids.clear()
        self._unreserve()

    def close(self) -> None:
        """Release the address range, if nothing is mapped."""
        super().close()
        if not self.start:
            return
        try:
            with self.driver.on(self.device):
                self._unreserve()
        except DeviceError as error:
            self.start = 0
            if error.status != DEINITIALIZED and not self.driver.is_forked:
                raise

    def __del__(self) -> None:
        if getattr(self, "start", 0):
            self.close()

    def _wait(self) -> None:
        """Wait for the stream that used the memory. To wait for the whole device would break captures of others.

        That is needed only where the stream was destroyed. Its work may go on, and a new stream may have its handle.

        Raises:
            DeviceError: the stream is gone, and a capture forbids to wait for the device instead.
        """
        user = self.last_user
        number = self._stream_id(user)
        if self._stream_ids.get(user, number) == number:
            status = self.driver.try_call("cuStreamSynchronize", ctypes.c_void_p(user))
        else:
            status = INVALID_HANDLE
        if status in (INVALID_HANDLE, CONTEXT_IS_DESTROYED):
            if self.driver.is_capturing(LEGACY):
                self.driver.fail("cuCtxSynchronize", CAPTURE_UNSUPPORTED)
            self.driver.call("cuCtxSynchronize")
        elif status:
            self.driver.fail("cuStreamSynchronize", status)

    def _stream_id(self, handle: int) -> int:
        """The number of a stream, which no other stream of the process ever has; 0: unknown, or a default stream."""
        number = ctypes.c_ulonglong()
        if handle in (0, LEGACY, PER_THREAD) or not self.driver.has("cuStreamGetId"):  # new in CUDA 12.0
            return 0
        status = self.driver.try_call("cuStreamGetId", ctypes.c_void_p(handle), ctypes.byref(number))
        return number.value if status == 0 else 0

    def _reserve(self) -> None:
        start = ctypes.c_uint64()
        anywhere = (ctypes.c_size_t(0), address(0), ctypes.c_uint64(0))
        self.driver.call(
            "cuMemAddressReserve", ctypes.byref(start), ctypes.c_size_t(self.reserved), *anywhere
        )
        self.start = start.value

    def _unreserve(self) -> None:
        if self.start and not self._mapped:
            start, self.start = self.start, 0
            self.driver.try_call("cuMemAddressFree", address(start), ctypes.c_size_t(self.reserved))

    def _gap(self, num_bytes: int, alignment: int) -> int:
        """The lowest address of a gap of `num_bytes` in the mapping; 0 = there is none."""
        at, end = self.start, self.start + self.reserved
        for begin in [*sorted(self._mapped), end]:
            at = -(-at // alignment) * alignment
            if begin - at >= num_bytes:
                return at
            at = begin + self._mapped.get(begin, 0)
        return 0


# ------------------------------------------------------------------------------
# Create a sub-allocator of GPU memory by the kind of memory.

_ATTACH_GLOBAL: Final = 1


class DeviceSubAllocator(CudaSubAllocator):
    """Memory of the device."""

    def take(self, num_bytes: int) -> int:
        """See cuMemAlloc."""
        return self.ask_driver("cuMemAlloc_v2", ctypes.c_size_t(num_bytes))

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """See cuMemFree: it waits for all work on the device."""
        self.driver.call("cuMemFree_v2", address(where))


class ManagedSubAllocator(DeviceSubAllocator):
    """Memory that device and host share; it may exceed the memory of the device."""

    def take(self, num_bytes: int) -> int:
        """See cuMemAllocManaged."""
        return self.ask_driver("cuMemAllocManaged", ctypes.c_size_t(num_bytes), _ATTACH_GLOBAL)


class AsyncSubAllocator(CudaSubAllocator):
    """Memory of the driver's pool, in the order of one stream: only work on it, or after it, may use the memory.

    It grants nothing while the stream is captured: the memory would belong to the graph. Other devices that can access
    the device's memory may use the pool, as they may use plain memory once CuPy or PyTorch has enabled their access.
    """

    breaks_captures = True

    def __init__(self, device: int = 0, **options: Any) -> None:
        super().__init__(device, **options)
        self._peers = self.driver.peers(device)

    def take(self, num_bytes: int) -> int:
        """See cuMemAllocAsync.

        Raises:
            DeviceError: the stream is being captured.
        """
        stream = self.stream
        if self.driver.is_capturing(stream):
            raise DeviceError(
                f"{format_bytes(num_bytes)} of memory='async' were requested while stream {stream:#x} captures a "
                "graph: CUDA would allocate memory that belongs to the graph and exists only while it runs. Allocate "
                "it before the capture (run the code once), or use memory='device' or 'virtual'",
                CAPTURE_UNSUPPORTED,
            )
        self._share_pool()
        return self.ask_driver("cuMemAllocAsync", ctypes.c_size_t(num_bytes), ctypes.c_void_p(stream))

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """See cuMemFreeAsync."""
        self.driver.call("cuMemFreeAsync", address(where), ctypes.c_void_p(self.last_user))

    def _share_pool(self) -> None:
        """Let the other devices access the driver's pool: by default only its own device may."""
        if self._peers and self.driver.has("cuMemPoolSetAccess"):
            pool = ctypes.c_void_p()
            self.driver.call("cuDeviceGetMemPool", ctypes.byref(pool), ctypes.c_int(self.device))
            access = (AccessDescriptor * len(self._peers))(*map(AccessDescriptor.to_all, self._peers))
            self.driver.call("cuMemPoolSetAccess", pool, ctypes.byref(access), ctypes.c_size_t(len(access)))
        self._peers = []


Memory = Literal["device", "managed", "async", "virtual"]
KINDS: Final[dict[str, type[CudaSubAllocator]]] = {
    "device": DeviceSubAllocator,
    "managed": ManagedSubAllocator,
    "async": AsyncSubAllocator,
    "virtual": VirtualSubAllocator,
}


def cuda_sub_allocator(
    memory: Memory,
    device: int = 0,
    stream: int | Callable[[], int] = 0,
    *,
    budget: Budget | None = None,
    driver: Driver | None = None,
) -> CudaSubAllocator:
    """A sub-allocator of a GPU, by the kind of memory.

    Args:
        memory: see the table above.
        device: number of the device.
        stream: handle of the stream that uses the memory, or a function that returns it: `async` memory is allocated
            in its order, and no region is returned while it captures a graph.
        budget: limit shared with other sub-allocators.
        driver: by default the machine's.

    Raises:
        InvalidRequest: the kind of memory is unknown.
        DeviceError: there is no driver or no such device.
    """
    if memory not in KINDS:
        raise InvalidRequest(f"memory {memory!r} is unknown; give one of {', '.join(map(repr, KINDS))}")
    return KINDS[memory](device, stream=stream, budget=budget, driver=driver)


_PORTABLE: Final = 1  # pinned for every context, not only this device's


class PinnedSubAllocator(CudaSubAllocator):
    """Grants pinned host memory, through the driver of one GPU."""

    def take(self, num_bytes: int) -> int:
        """Allocate with cuMemHostAlloc."""
        return self.ask_driver("cuMemHostAlloc", ctypes.c_size_t(num_bytes), _PORTABLE)

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """Free with cuMemFreeHost, which waits for all work on the device."""
        self.driver.call("cuMemFreeHost", ctypes.c_void_p(where))
