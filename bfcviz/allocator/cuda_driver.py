"""CUDA's driver, through ctypes: the calls for memory, with checked status. Nothing is loaded before `load`.

Calls use the device's primary context, which CuPy, PyTorch and all other users of the CUDA runtime share, and relaxed
capture mode, so that they do not break a capture in another stream.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final, NoReturn

from bfcviz.errors import DeviceError

# ------------------------------------------------------------------------------
# Structures and constants of CUDA's driver, from cuda.h.

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


NAMES: Final = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")

_POINTER = ctypes.c_void_p


class Driver:
    """Calls the driver's functions by name and checks their status.

    Args:
        library: has the functions as attributes, as `ctypes.CDLL("libcuda.so.1")` does.

    Raises:
        DeviceError: there is no device, or the driver does not start.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._resets: dict[int, int] = {}
        self._process = os.getpid()
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises DeviceError with its status if that is not 0."""
        status = self.try_call(name, *arguments)
        if status:
            self.fail(name, status)

    def fail(self, name: str, status: int) -> NoReturn:
        """Raise DeviceError with the meaning of a function's status."""
        if status == NOT_INITIALIZED and self.is_forked:
            raise DeviceError(
                f"CUDA's {name} failed in process {os.getpid()}, a fork of process {self._process}, which started "
                "CUDA: CUDA does not work in a forked process. Start it with multiprocessing's 'spawn'",
                status,
            )
        raise DeviceError(f"CUDA's {name} failed: {self._describe(status)}", status)

    def has(self, name: str) -> bool:
        """Whether the driver has a function."""
        return hasattr(self._library, name)

    def try_call(self, name: str, *arguments: Any) -> int:
        """Call a function; returns its status, 0 = success."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise DeviceError(
                f"the driver has no {name}: it is older than CUDA 11.2; update the NVIDIA driver, or use "
                "memory='device'"
            ) from None
        return int(function(*arguments))

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the process that started CUDA: CUDA does not work in it."""
        return os.getpid() != self._process

    # -- contexts and captures ----------------------------------------------------------------------------------

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make a device's primary context current in this thread; calls do not break a capture (`relaxed`)."""
        self.call("cuCtxPushCurrent_v2", self._context(device))
        try:
            with self.relaxed():
                yield
        finally:
            self.try_call("cuCtxPopCurrent_v2", ctypes.byref(_POINTER()))

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Allow this thread calls that would break a capture in global mode, such as cuMemAlloc."""
        mode = ctypes.c_int(RELAXED)
        self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self.try_call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def is_capturing(self, stream: int) -> bool:
        """Whether a stream of the current context is captured, or cannot be queried because another one is."""
        state = ctypes.c_int()
        status = self.try_call("cuStreamIsCapturing", _POINTER(stream), ctypes.byref(state))
        return status == CAPTURE_IMPLICIT or (status == 0 and state.value != 0)

    def has_context(self, device: int) -> bool:
        """Whether a device's primary context is active; the query creates none."""
        flags, is_active = ctypes.c_uint(), ctypes.c_int()
        self.call(
            "cuDevicePrimaryCtxGetState", self._handle(device), ctypes.byref(flags), ctypes.byref(is_active)
        )
        return is_active.value != 0

    def resets(self, device: int) -> int:
        """Number of detected resets of a device (cudaDeviceReset): a reset frees plain memory allocated before."""
        return self._resets.get(device, 0)

    def _context(self, device: int) -> ctypes.c_void_p:
        if device in self._contexts and not self.has_context(device):
            del self._contexts[device]
            self._resets[device] = self.resets(device) + 1
        if device not in self._contexts:
            context = _POINTER()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._handle(device))
            self._contexts[device] = context
        return self._contexts[device]

    # -- devices ------------------------------------------------------------------------------------------------

    def device_count(self) -> int:
        """Number of devices."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def total_memory(self, device: int) -> int:
        """Total memory of a device in bytes."""
        total = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), self._handle(device))
        return total.value

    def memory_now(self, device: int) -> tuple[int, int]:
        """Free and total bytes of a device, as all processes see it (cudaMemGetInfo); creates a context there."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.on(device):
            self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def attribute(self, number: int, device: int) -> int:
        """Value of an attribute of a device, by CUdevice_attribute."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self._handle(device))
        return value.value

    def pci_bus(self, device: int) -> str:
        """Where a device is on the PCI bus, as NVML names it; empty where the driver does not say."""
        if not self.has("cuDeviceGetPCIBusId"):
            return ""
        text = ctypes.create_string_buffer(64)
        failed = self.try_call("cuDeviceGetPCIBusId", ctypes.byref(text), len(text), self._handle(device))
        return "" if failed else text.value.decode(errors="replace")

    def can_access(self, device: int, peer: int) -> bool:
        """Whether a device can read and write the memory of another device."""
        answer = ctypes.c_int()
        self.call("cuDeviceCanAccessPeer", ctypes.byref(answer), self._handle(device), self._handle(peer))
        return answer.value != 0

    def peers(self, device: int) -> list[int]:
        """Numbers of the other devices that can read and write the memory of a device."""
        others = [peer for peer in range(self.device_count()) if peer != device]
        return [peer for peer in others if self.can_access(peer, device)]

    def _handle(self, device: int) -> ctypes.c_int:
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), device)
        return handle

    def _describe(self, status: int) -> str:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self.try_call("cuGetErrorName", status, ctypes.byref(name))
        self.try_call("cuGetErrorString", status, ctypes.byref(text))
        return f"{(name.value or b'error').decode()} ({status}): {(text.value or b'unknown to this driver').decode()}"


@cache
def load() -> Driver:
    """Load the machine's driver.

    Raises:
        DeviceError: there is no driver, or no device.
    """
    library = _library(ctypes.DEFAULT_MODE)
    if library is not None:
        return Driver(library)
    raise DeviceError(
        f"GPU memory needs an NVIDIA driver, and this machine has none ({NAMES[0]} cannot be loaded): install one, "
        "start a container with --gpus all, or use host memory"
    )


def in_use() -> Driver | None:
    """The machine's driver, if this process has started it; None: it has not.

    It loads and starts nothing: a process that has started CUDA cannot use it in its forks.
    """
    loaded_only = getattr(os, "RTLD_NOLOAD", None)
    if loaded_only is None:  # Windows
        return load() if load.cache_info().currsize else None
    library = _library(loaded_only | os.RTLD_LAZY)
    return None if library is None or library.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) else load()


def _library(mode: int) -> ctypes.CDLL | None:
    for name in NAMES:
        with suppress(OSError):
            return ctypes.CDLL(name, mode)
    return None
