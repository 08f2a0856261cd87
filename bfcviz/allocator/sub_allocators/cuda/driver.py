"""CUDA's driver, through ctypes: the few calls that memory needs, each checked. Nothing is loaded before `load`.

Calls are made in the device's primary context, the one CuPy, PyTorch and every other user of the CUDA runtime share,
and in relaxed capture mode: a program that captures a graph in another stream is not disturbed by them.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NoReturn

from bfcviz.allocator.sub_allocators.cuda.driver_types import CAPTURE_IMPLICIT, NOT_INITIALIZED, RELAXED
from bfcviz.allocator.sub_allocators.cuda.driver_types import DEINITIALIZED as DEINITIALIZED
from bfcviz.allocator.sub_allocators.cuda.driver_types import OUT_OF_MEMORY as OUT_OF_MEMORY
from bfcviz.errors import DeviceError

NAMES: Final = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")

_POINTER = ctypes.c_void_p


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
        self._resets: dict[int, int] = {}
        self._process = os.getpid()
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises DeviceError with its status where that is not 0."""
        status = self.try_call(name, *arguments)
        if status:
            self.fail(name, status)

    def fail(self, name: str, status: int) -> NoReturn:
        """Say what a function's status means."""
        if status == NOT_INITIALIZED and self.is_forked:
            raise DeviceError(
                f"CUDA's {name} failed in process {os.getpid()}, a fork of process {self._process}, which started "
                "CUDA: CUDA does not work in a forked process. Start it with multiprocessing's 'spawn'",
                status,
            )
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

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that started CUDA: nothing works in it."""
        return os.getpid() != self._process

    # -- contexts and captures ----------------------------------------------------------------------------------

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make a device's primary context this thread's current one; calls do not break a capture (`relaxed`)."""
        self.call("cuCtxPushCurrent_v2", self._context(device))
        try:
            with self.relaxed():
                yield
        finally:
            self.try_call("cuCtxPopCurrent_v2", ctypes.byref(_POINTER()))

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Let this thread make calls that a global capture forbids, and would be broken by, such as cuMemAlloc."""
        mode = ctypes.c_int(RELAXED)
        self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self.try_call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def is_capturing(self, stream: int) -> bool:
        """Whether a stream of the current context is captured, or cannot be asked for another one that is."""
        state = ctypes.c_int()
        status = self.try_call("cuStreamIsCapturing", _POINTER(stream), ctypes.byref(state))
        return status == CAPTURE_IMPLICIT or (status == 0 and state.value != 0)

    def has_context(self, device: int) -> bool:
        """Whether a device's primary context is alive; asking creates none."""
        flags, is_active = ctypes.c_uint(), ctypes.c_int()
        self.call(
            "cuDevicePrimaryCtxGetState", self._handle(device), ctypes.byref(flags), ctypes.byref(is_active)
        )
        return is_active.value != 0

    def resets(self, device: int) -> int:
        """How often a device was found reset (cudaDeviceReset): plain memory from before is gone."""
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
        """How many there are."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def total_memory(self, device: int) -> int:
        """Bytes a device has."""
        total = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), self._handle(device))
        return total.value

    def attribute(self, number: int, device: int) -> int:
        """A property of a device, by CUdevice_attribute."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self._handle(device))
        return value.value

    def can_access(self, device: int, peer: int) -> bool:
        """Whether a device can read and write another one's memory."""
        answer = ctypes.c_int()
        self.call("cuDeviceCanAccessPeer", ctypes.byref(answer), self._handle(device), self._handle(peer))
        return answer.value != 0

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
