"""The regions of one pool: one row a slot, and the slots by ascending address."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.state import array_access, row_storage


class RegionRows:
    """Regions that do not overlap. Methods that can find a contradiction return a code of `array_access`.

    Attributes:
        count: number of regions.
    """

    def __init__(self) -> None:
        self.count = 0
        self._slots = 0
        self._region_store: Any = None
        self._order_store: Any = None

    def exported(self) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Every region by ascending address: rows of REGION_ROW, and their slots."""
        if self.count == 0:
            return np.zeros(0, row_storage.REGION_ROW), np.zeros(0, np.uint64)
        slots = np.array(self._order_store[: self.count], np.uint64)
        return row_storage.exported(self._region_store, row_storage.REGION_ROW)[slots.astype(np.intp)], slots

    def load(self, region_rows: NDArray[np.void], slots: NDArray[np.uint64]) -> None:
        """Fill empty rows with what another `RegionRows` exported."""
        if len(slots) > 0:
            self._reserve(int(slots.max()))
            row_storage.put(self._region_store, slots.astype(np.intp), region_rows)
            for at, slot in enumerate(slots.tolist()):
                self._order[at] = slot
        self.count = len(slots)

    def add(self, slot: int, address: int, size: int) -> int:
        """Add a region."""
        self._reserve(slot)
        r = array_access.region(self._regions, slot)
        if r.state != array_access.NOTHING:
            return array_access.SLOT_TAKEN
        at = self._place(address)
        if at > 0 and self._end(at - 1) > address:
            return array_access.OVERLAP
        if at < self.count and self._start(at) < address + size:
            return array_access.OVERLAP
        for i in range(self.count, at, -1):
            self._order[i] = self._order[i - 1]
        self._order[at] = slot
        self.count += 1
        r.address = address
        r.size = size
        r.state = array_access.REGION_LIVE
        return array_access.FINE

    def lengthen(self, slot: int, address: int, size: int) -> int:
        """Extend a region at its end, `address`, by `size` bytes."""
        if slot >= self._slots or array_access.region(self._regions, slot).state == array_access.NOTHING:
            return array_access.SLOT_EMPTY
        r = array_access.region(self._regions, slot)
        if address != r.address + r.size:
            return array_access.NOT_AT_END
        at = self._place(address)
        if at < self.count and self._start(at) < address + size:
            return array_access.OVERLAP
        r.size += size
        return array_access.FINE

    def shorten(self, slot: int, address: int, size: int) -> int:
        """Undo `lengthen`."""
        r = array_access.region(self._regions, slot)
        if address + size != r.address + r.size or size >= r.size:
            return array_access.NOT_AT_END
        r.size -= size
        return array_access.FINE

    def remove(self, slot: int, address: int, size: int) -> int:
        """Remove a region that has this address and size."""
        r = array_access.region(self._regions, slot)
        if r.address != address or r.size != size:
            return array_access.OTHER_PLACE
        for i in range(self._place(address), self.count):
            self._order[i - 1] = self._order[i]
        self.count -= 1
        r.address = r.size = r.state = 0
        return array_access.FINE

    def _reserve(self, slot: int) -> None:
        if slot < self._slots:
            return
        slots = max(16, self._slots)
        while slots <= slot:
            slots *= 2
        compiled = bool(array_access.COMPILED)
        self._region_store = row_storage.grown(
            self._region_store, row_storage.REGION_ROW, slots, compiled=compiled
        )
        self._order_store = row_storage.grown(self._order_store, row_storage.NUMBER, slots, compiled=compiled)
        self._regions = array_access.regions(self._region_store)
        self._order = array_access.numbers(self._order_store)
        self._slots = slots

    def _start(self, at: int) -> int:
        start: int = array_access.region(self._regions, self._order[at]).address
        return start

    def _end(self, at: int) -> int:
        r = array_access.region(self._regions, self._order[at])
        end: int = r.address + r.size
        return end

    def _place(self, address: int) -> int:
        """Number of regions that begin at or below `address`."""
        low = 0
        high = self.count
        while low < high:
            middle = (low + high) >> 1
            if self._start(middle) <= address:
                low = middle + 1
            else:
                high = middle
        return low
