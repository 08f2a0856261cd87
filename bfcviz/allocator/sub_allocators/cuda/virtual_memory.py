"""VirtualSubAllocator: maps regions one after another into addresses reserved in advance."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bfcviz.allocator.sub_allocators.cuda.base import CudaSubAllocator
from bfcviz.allocator.sub_allocators.cuda.driver import (
    CAPTURE_UNSUPPORTED,
    CONTEXT_IS_DESTROYED,
    DEINITIALIZED,
    INVALID_HANDLE,
    LEGACY,
    POSIX_HANDLES,
    RDMA_WITH_VIRTUAL,
    AccessDescriptor,
    Driver,
    Properties,
    address,
)
from bfcviz.errors import DeviceError, InvalidRequest


@dataclass(frozen=True)
class Sharing:
    """Access to mapped memory besides the device's own. Memory of cuMemMap has none that is not given here.

    Attributes:
        peers: numbers of other devices that may read and write it. None: all that can, because CuPy and PyTorch enable
            access between devices by cudaDeviceEnablePeerAccess, which does not include this memory: a kernel that
            reads it then ends all work on the device by a fault.
        shareable: other processes may map it (cuMemExportToShareableHandle, as UCX and NCCL do); cudaIpcGetMemHandle
            does not work for this memory. None: if the device supports it.
        rdma: network cards may read and write it (GPUDirect RDMA). None: if the device supports it.
    """

    peers: Iterable[int] | None = None
    shareable: bool | None = None
    rdma: bool | None = None


class VirtualSubAllocator(CudaSubAllocator):
    """Memory that is mapped into one reserved address range, each grant directly after the last one if that is free.

    The range is reserved with the first grant, and given back with the last region.

    Args:
        device: number of the device.
        reserve: size of the address range in bytes, which uses no memory; by default twice the device's memory.
        sharing: further access to the memory.
        options: of CudaSubAllocator.

    Raises:
        InvalidRequest: `reserve` is below 1.
        DeviceError: the driver fails, or the device does not support the sharing.

    Attributes:
        start: where the range begins; 0 = none is reserved.
        reserved: its size in bytes.
    """

    breaks_captures = True

    def __init__(
        self, device: int = 0, reserve: int | None = None, sharing: Sharing | None = None, **options: Any
    ) -> None:
        super().__init__(device, joins=True, **options)
        sharing = Sharing() if sharing is None else sharing
        peers = self.driver.peers(device) if sharing.peers is None else sharing.peers
        self._users = [device, *_checked_peers(self.driver, device, peers)]
        handles = _supported(self.driver, device, POSIX_HANDLES, sharing.shareable, "shared by handles")
        rdma = _supported(self.driver, device, RDMA_WITH_VIRTUAL, sharing.rdma, "used by GPUDirect RDMA")
        self._properties = Properties.of_device(device, shareable=handles, rdma=rdma)
        self._mapped: dict[int, int] = {}  # bytes by address: each is unmapped as it was mapped
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
        return where

    def remove(self, where: int, num_bytes: int) -> None:
        """Unmap all memory in a region, after waiting for the work on it."""
        self._wait()
        for begin in [mapped for mapped in self._mapped if where <= mapped < where + num_bytes]:
            self.driver.call("cuMemUnmap", address(begin), ctypes.c_size_t(self._mapped[begin]))
            del self._mapped[begin]
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

        Raises:
            DeviceError: the stream is gone, and a capture forbids to wait for the device instead.
        """
        status = self.driver.try_call("cuStreamSynchronize", ctypes.c_void_p(self.last_user))
        if status in (INVALID_HANDLE, CONTEXT_IS_DESTROYED):
            if self.driver.is_capturing(LEGACY):
                self.driver.fail("cuCtxSynchronize", CAPTURE_UNSUPPORTED)
            self.driver.call("cuCtxSynchronize")
        elif status:
            self.driver.fail("cuStreamSynchronize", status)

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


def _checked_peers(driver: Driver, device: int, peers: Iterable[int]) -> list[int]:
    """The other devices, without duplicates.

    Raises:
        DeviceError: there is no such device, or it cannot access the memory.
    """
    wanted = sorted(set(peers) - {device})
    count = driver.device_count()
    for peer in wanted:
        if not 0 <= peer < count:
            raise DeviceError(f"peer {peer} of device {device} does not exist; there are {count} devices")
        if not driver.can_access(peer, device):
            raise DeviceError(
                f"device {peer} has no peer access to memory of device {device}: remove it from `peers`, and copy the "
                "data"
            )
    return wanted


def _supported(driver: Driver, device: int, attribute: int, wish: bool | None, use: str) -> bool:
    """Whether to use a feature: as requested, by default if the device supports it."""
    can = wish is not False and driver.attribute(attribute, device) != 0
    if wish and not can:
        raise DeviceError(
            f"mapped memory of device {device} cannot be {use}: the device does not support it (device attribute "
            f"{attribute} is 0). Give None, which uses the feature only where it is supported"
        )
    return can
