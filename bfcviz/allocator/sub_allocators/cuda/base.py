"""CudaSubAllocator: base class of sub-allocators of GPU memory: the device, a budget, captures, errors."""

import ctypes
from collections.abc import Callable
from threading import Lock
from typing import Any, ClassVar, Final

from bfcviz import _forks
from bfcviz.allocator.sub_allocators.base import PythonSubAllocator
from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.driver import (
    CAPTURE_UNSUPPORTED,
    DEINITIALIZED,
    LEGACY,
    OUT_OF_MEMORY,
    PER_THREAD,
    Driver,
)
from bfcviz.errors import DeviceError

_ALIGNED: Final = 256
"""Alignment of every address from the driver, in bytes."""


class Budget:
    """A limit in bytes that several sub-allocators share."""

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
