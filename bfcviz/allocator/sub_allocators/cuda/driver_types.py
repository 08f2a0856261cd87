"""Structures and constants of CUDA's driver, from cuda.h."""

import ctypes
from typing import Final

# CUresult
OUT_OF_MEMORY: Final = 2
NOT_INITIALIZED: Final = 3  # also in a forked child of a process that started CUDA
DEINITIALIZED: Final = 4  # at the end of the process the driver may shut down first
INVALID_HANDLE: Final = 400
CONTEXT_IS_DESTROYED: Final = 709  # also of a stream that was destroyed
CAPTURE_UNSUPPORTED: Final = 900
CAPTURE_IMPLICIT: Final = 906  # the default stream would have to wait for a capturing stream

# CUdevice_attribute
POSIX_HANDLES: Final = 103
RDMA_WITH_VIRTUAL: Final = 110

LEGACY: Final = 1
"""CU_STREAM_LEGACY: it waits for all streams except non-blocking ones, so also for the default streams of threads."""

PER_THREAD: Final = 2
"""CU_STREAM_PER_THREAD: the default stream of the calling thread."""

RELAXED: Final = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED."""

_PINNED: Final = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_ON_DEVICE: Final = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_POSIX: Final = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_READ_WRITE: Final = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Flags(ctypes.Structure):
    _fields_ = (
        ("compression", ctypes.c_ubyte),
        ("gpu_direct", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class Properties(ctypes.Structure):
    """CUmemAllocationProp: by default pinned memory of a device."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", _Flags),
    )

    @classmethod
    def of_device(cls, device: int, *, shareable: bool = False, rdma: bool = False) -> "Properties":
        """Memory of a device, optionally usable by other processes or network cards."""
        flags = _Flags(gpu_direct=int(rdma))
        return cls(_PINNED, _POSIX if shareable else 0, Location(_ON_DEVICE, device), None, flags)


class AccessDescriptor(ctypes.Structure):
    """CUmemAccessDesc: access rights of a device."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))

    @classmethod
    def to_all(cls, device: int) -> "AccessDescriptor":
        """Read and write access for a device."""
        return cls(Location(_ON_DEVICE, device), _READ_WRITE)


def address(value: int) -> ctypes.c_uint64:
    """An address of the device as an argument of type CUdeviceptr."""
    return ctypes.c_uint64(value)
