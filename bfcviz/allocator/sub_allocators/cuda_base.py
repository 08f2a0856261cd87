"""CudaSubAllocator: what all that take a GPU's memory share: the device, a budget, errors."""

import ctypes
from threading import Lock
from typing import Any, Final

from bfcviz.allocator.sub_allocators import cuda_driver
from bfcviz.allocator.sub_allocators.base import PythonSubAllocator
from bfcviz.allocator.sub_allocators.cuda_driver import DEINITIALIZED, OUT_OF_MEMORY, Driver
from bfcviz.errors import DeviceError

_ALIGNED: Final = 256
"""What every call of the driver keeps."""


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
        self._begins: dict[int, int] = {}  # what the driver gave, by the aligned address in it

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:
        """Grant a region; refuses where budget or device are exhausted."""
        num_bytes = self.rounded(num_bytes)
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

    def free(self, address: int, num_bytes: int) -> None:
        """Take a region back."""
        try:
            with self.driver.on(self.device):
                self.remove(address, num_bytes)
        except DeviceError as error:
            if error.status != DEINITIALIZED:
                raise
        self.used -= num_bytes
        self.budget.give_back(num_bytes)

    def rounded(self, num_bytes: int) -> int:
        """What is granted for a request."""
        return num_bytes

    def place(self, num_bytes: int, alignment: int) -> int:
        """Aligned memory, a little more of it where the driver does not align so far; 0 = there is none."""
        begin = self.take(num_bytes + (alignment if alignment > _ALIGNED else 0))
        aligned = -(-begin // alignment) * alignment
        if begin:
            self._begins[aligned] = begin
        return aligned

    def remove(self, where: int, num_bytes: int) -> None:
        """What `place` gave goes back."""
        self.give_up(self._begins[where], num_bytes)
        del self._begins[where]

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
