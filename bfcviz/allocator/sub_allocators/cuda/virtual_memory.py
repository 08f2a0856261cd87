"""Regions that are mapped, piece by piece, into addresses reserved ahead: the next begins where the last one ends."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bfcviz.allocator.sub_allocators.cuda.base import CudaSubAllocator
from bfcviz.allocator.sub_allocators.cuda.driver import Driver, address
from bfcviz.allocator.sub_allocators.cuda.driver_types import (
    DEINITIALIZED,
    POSIX_HANDLES,
    RDMA_WITH_VIRTUAL,
    AccessDescriptor,
    Properties,
)
from bfcviz.errors import DeviceError, InvalidRequest


@dataclass(frozen=True)
class Sharing:
    """Who besides the device may use mapped memory. cuMemMap's memory has no such thing by itself.

    Attributes:
        peers: numbers of other devices that may read and write it.
        shareable: other processes may map it (cuMemExportToShareableHandle, as UCX and NCCL do); cudaIpcGetMemHandle
            works on none of this memory. None: where the device can.
        rdma: network cards may read and write it (GPUDirect RDMA). None: where the device can.
    """

    peers: Iterable[int] = ()
    shareable: bool | None = None
    rdma: bool | None = None


class VirtualSubAllocator(CudaSubAllocator):
    """Memory that is mapped into one reserved stretch of addresses, each grant behind the last one where that is free.

    Args:
        device: its number.
        reserve: bytes of addresses, which cost no memory; by default twice what the device has.
        sharing: who else may use it.
        options: of CudaSubAllocator.

    Raises:
        InvalidRequest: nothing to reserve.
        DeviceError: the driver fails, or the device cannot share as asked.
    """

    breaks_captures = True

    def __init__(
        self, device: int = 0, reserve: int | None = None, sharing: Sharing | None = None, **options: Any
    ) -> None:
        super().__init__(device, joins=True, **options)
        sharing = Sharing() if sharing is None else sharing
        self._users = [device, *_checked_peers(self.driver, device, sharing.peers)]
        self._properties = Properties.of_device(
            device,
            shareable=_supported(
                self.driver, device, POSIX_HANDLES, sharing.shareable, "be shared by handles"
            ),
            rdma=_supported(
                self.driver, device, RDMA_WITH_VIRTUAL, sharing.rdma, "be used by GPUDirect RDMA"
            ),
        )
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

    def place(self, num_bytes: int, alignment: int) -> int:
        """Memory, mapped into the lowest gap of the addresses that holds it. What fails half-way is undone."""
        where = self._gap(num_bytes, alignment)
        handle = self.ask_driver(
            "cuMemCreate", ctypes.c_size_t(num_bytes), ctypes.byref(self._properties), ctypes.c_uint64(0)
        ) if where else 0  # fmt: skip
        if handle == 0:
            return 0
        size = ctypes.c_size_t(num_bytes)
        access = (AccessDescriptor * len(self._users))(*map(AccessDescriptor.to_all, self._users))
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
                    "cuMemSetAccess", address(where), size, ctypes.byref(access), ctypes.c_size_t(len(access))
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

    def remove(self, where: int, num_bytes: int) -> None:
        """Unmap all that was mapped there; nothing on the device may be at work on it."""
        self.driver.call("cuCtxSynchronize")
        for begin in [mapped for mapped in self._mapped if where <= mapped < where + num_bytes]:
            self.driver.call("cuMemUnmap", address(begin), ctypes.c_size_t(self._mapped[begin]))
            del self._mapped[begin]

    def close(self) -> None:
        """Give the addresses back, where nothing is mapped."""
        super().close()
        if self.start and not self._mapped:
            start, self.start = self.start, 0
            try:
                with self.driver.on(self.device):
                    self.driver.try_call("cuMemAddressFree", address(start), ctypes.c_size_t(self.reserved))
            except DeviceError as error:
                if error.status != DEINITIALIZED and not self.driver.is_forked:
                    raise

    def __del__(self) -> None:
        if getattr(self, "start", 0):
            self.close()

    def _gap(self, num_bytes: int, alignment: int) -> int:
        """The lowest address with so many unmapped bytes behind it; 0 = there is none."""
        at, end = self.start, self.start + self.reserved
        for begin in [*sorted(self._mapped), end]:
            at = -(-at // alignment) * alignment
            if begin - at >= num_bytes:
                return at
            at = begin + self._mapped.get(begin, 0)
        return 0


def _checked_peers(driver: Driver, device: int, peers: Iterable[int]) -> list[int]:
    """The other devices, each once.

    Raises:
        DeviceError: there is no such device, or it cannot reach the memory.
    """
    wanted = sorted(set(peers) - {device})
    count = driver.device_count()
    for peer in wanted:
        if not 0 <= peer < count:
            raise DeviceError(
                f"peer {peer} was named for memory of device {device}; there are {count} devices"
            )
        if not driver.can_access(peer, device):
            raise DeviceError(
                f"device {peer} was to use memory of device {device}, and has no peer access to it: leave it out of "
                "`peers`, and copy"
            )
    return wanted


def _supported(driver: Driver, device: int, attribute: int, wish: bool | None, what: str) -> bool:
    """Whether memory is made so: as wished, by default where the device can."""
    can = wish is not False and driver.attribute(attribute, device) != 0
    if wish and not can:
        raise DeviceError(
            f"mapped memory of device {device} was to {what}, which it does not support (device attribute {attribute} "
            "is 0): leave it at None, which asks for what there is"
        )
    return can
