"""The memory below a BFC heap that serves a trace again, where `SimulatedSubAllocator` knows too little.

It grants the recorded addresses, repeats what a driver granted and refused, or answers the heap of an old TensorFlow.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.allocator.sub_allocators.base import PythonSubAllocator
from bfcviz.allocator.sub_allocators.simulated import BASE
from bfcviz.whatif.outcome import DriverCalls

GAP: Final = 1 << 30
"""Bytes of addresses between two regions that are not recorded ones."""

REGION_ALIGNMENT: Final = 2 << 20
"""Of the regions that are not recorded ones, in bytes, as CUDA's driver aligns large ones."""


class CountedMemory(PythonSubAllocator):
    """Counts its calls; a subclass defines `region` and `take`.

    Args:
        supports_coalescing: let the heap join adjacent regions.
        backs_off_once: refuse the smaller sizes that the heap tries after a refusal, but those after the first one.
            A heap up to TensorFlow 2.7 did not try them (`started_backpedal_` in its bfc_allocator.cc).
    """

    def __init__(self, *, supports_coalescing: bool = False, backs_off_once: bool = False) -> None:
        super().__init__(supports_coalescing=supports_coalescing)
        self._backs_off_once = backs_off_once
        self._tries_less = True
        self._refused = (-1, 0)  # number of the operation and size of the last refusal
        self._grants = self._refusals = self._releases = 0

    @property
    def driver_calls(self) -> DriverCalls:
        """Number of calls."""
        return DriverCalls(self._grants, self._refusals, self._releases)

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:  # noqa: ARG002  as recorded, or 2 MiB
        """Grant a region: its address and size; None: refused."""
        operation, size = self._refused
        if operation != self.operation or num_bytes >= size:
            self._tries_less = not (self._backs_off_once and self._refusals)
        elif not self._tries_less:
            return None
        found = self.region(num_bytes)
        if found is None:
            self._refusals += 1
            self._refused = (self.operation, num_bytes)
        else:
            self._grants += 1
        return found

    def free(self, address: int, num_bytes: int) -> None:
        """Take back a region; joined ones come back as one."""
        self._releases += 1
        self.take(address, num_bytes)

    def region(self, num_bytes: int) -> tuple[int, int] | None:
        """The address and size of a new region; None: refused."""
        raise NotImplementedError

    def take(self, address: int, num_bytes: int) -> None:
        """Take back a region."""
        raise NotImplementedError


class RecordedMemory(CountedMemory):
    """Grants the address of the next recorded region of the same size; other sizes get addresses above all of these.

    Args:
        regions: of `REGION_ROW`.
        capacity: the most that is granted at one time, in bytes; None: no limit.
        supports_coalescing: as in `CountedMemory`.
        backs_off_once: as in `CountedMemory`.
    """

    def __init__(
        self,
        regions: NDArray[np.void],
        capacity: int | None = None,
        *,
        supports_coalescing: bool = False,
        backs_off_once: bool = False,
    ) -> None:
        super().__init__(supports_coalescing=supports_coalescing, backs_off_once=backs_off_once)
        grants = regions[regions["size"] > 0]
        self._waiting = [(int(row["address"]), int(row["size"])) for row in grants]
        highest = max((address + size for address, size in self._waiting), default=0)
        self._top = max(BASE, _aligned(highest + GAP))
        self._capacity = native.HALF_SPACE if capacity is None else capacity
        self._granted: dict[int, int] = {}

    def region(self, num_bytes: int) -> tuple[int, int] | None:
        """The address and size of a new region; None: it would exceed the capacity, or the addresses."""
        if sum(self._granted.values()) + num_bytes > self._capacity:
            return None
        address = self._recorded(num_bytes) or self._above(num_bytes)
        if not address:
            return None
        self._granted[address] = num_bytes
        return address, num_bytes

    def take(self, address: int, num_bytes: int) -> None:
        """Take back a region."""
        for start in [each for each in self._granted if address <= each < address + num_bytes]:
            del self._granted[start]

    def _recorded(self, num_bytes: int) -> int:
        """The address of the first region of this size that waits and overlaps with none; 0: there is none."""
        for at, (address, size) in enumerate(self._waiting):
            if size == num_bytes and not self._is_taken(address, size):
                del self._waiting[at]
                return address
        return 0

    def _is_taken(self, address: int, size: int) -> bool:
        return any(start < address + size and address < start + each for start, each in self._granted.items())

    def _above(self, num_bytes: int) -> int:
        """An address above all recorded regions; 0: the addresses end."""
        address = self._top
        if address + num_bytes > native.HALF_SPACE:
            return 0
        self._top = _aligned(address + num_bytes) + GAP
        return address


class ExactMemory(CountedMemory):
    """Grants and refuses what the driver granted and refused in the trace, request by request.

    Args:
        regions: of `REGION_ROW`; what is not among them is refused.
        supports_coalescing: as in `CountedMemory`.
    """

    def __init__(self, regions: NDArray[np.void], *, supports_coalescing: bool = False) -> None:
        super().__init__(supports_coalescing=supports_coalescing)
        self._calls: dict[int, list[tuple[int, int]]] = {}
        for row in regions:
            self._calls.setdefault(int(row["request"]), []).append((int(row["address"]), int(row["size"])))

    def region(self, num_bytes: int) -> tuple[int, int] | None:
        """The region that this request was granted, once the regions before it are released."""
        waiting = self._calls.get(self.operation)
        return waiting.pop(0) if waiting and waiting[0][1] >= num_bytes else None

    def take(self, address: int, num_bytes: int) -> None:  # noqa: ARG002  recorded
        """Take back a region."""
        waiting = self._calls.get(self.operation)
        if waiting and (address, 0) in waiting:
            waiting.remove((address, 0))


def _aligned(address: int) -> int:
    return -(-address // REGION_ALIGNMENT) * REGION_ALIGNMENT
