"""CUDA's driver, through ctypes: the few calls that memory needs, each checked. Nothing is loaded before `load`.

Calls are made in the device's primary context, the one CuPy, PyTorch and every other user of the CUDA runtime share.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NoReturn

from bfcviz.errors import DeviceError

NAMES: Final = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")

OUT_OF_MEMORY: Final = 2
DEINITIALIZED: Final = 4  # at the end of the process the driver may be gone before us
_POINTER = ctypes.c_void_p


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
        ("windows", _POINTER),
        ("flags", _Flags),
    )

    @classmethod
    def of_device(cls, device: int) -> "Properties":
        """Memory that lies on a device."""
        return cls(type=1, location=Location(1, device))


class Access(ctypes.Structure):
    """CUmemAccessDesc: who may do what."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))

    @classmethod
    def to_all(cls, device: int) -> "Access":
        """A device may read and write."""
        return cls(Location(1, device), 3)


class Driver:
    """The driver's functions by name, each checked.

    Args:
        library: what has them as attributes, as `ctypes.CDLL("libcuda.so.1")` does.

    Raises:
        DeviceError: there is no device, or the driver does not start.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises DeviceError with its status where that is not 0."""
        status = self.try_call(name, *arguments)
        if status:
            self.fail(name, status)

    def fail(self, name: str, status: int) -> NoReturn:
        """Say what a function's status means."""
        raise DeviceError(f"CUDA's {name} failed: {self._words(status)}", status)

    def try_call(self, name: str, *arguments: Any) -> int:
        """Call a function; returns its status, 0 = success."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise DeviceError(
                f"this driver has no {name}: it is older than CUDA 11.2; update the NVIDIA driver, or use "
                "memory='device'"
            ) from None
        return int(function(*arguments))

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make a device's primary context this thread's current one."""
        if device not in self._contexts:
            context = _POINTER()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._handle(device))
            self._contexts[device] = context
        self.call("cuCtxPushCurrent_v2", self._contexts[device])
        try:
            yield
        finally:
            self.try_call("cuCtxPopCurrent_v2", ctypes.byref(_POINTER()))

    def device_count(self) -> int:
        """How many there are."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def total_memory(self, device: int) -> int:
        """Bytes a device has."""
        total = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), self._handle(device))
        return total.value

    def _handle(self, device: int) -> ctypes.c_int:
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), device)
        return handle

    def _words(self, status: int) -> str:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self.try_call("cuGetErrorName", status, ctypes.byref(name))
        self.try_call("cuGetErrorString", status, ctypes.byref(text))
        return f"{(name.value or b'error').decode()} ({status}): {(text.value or b'unknown to this driver').decode()}"


@cache
def load() -> Driver:
    """The machine's driver.

    Raises:
        DeviceError: there is none, or no device for it.
    """
    for name in NAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        return Driver(library)
    raise DeviceError(
        f"memory of a GPU was asked for, and this machine has no NVIDIA driver ({NAMES[0]} cannot be loaded): install "
        "one, in a container start it with --gpus all, or use memory of the host"
    )


def address(value: int) -> ctypes.c_uint64:
    """An address of the device as an argument: CUdeviceptr."""
    return ctypes.c_uint64(value)
