"""The regions of one pool: rows by slot, and the slots in order of address."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.model import raw, rows


class RegionTable:
    """Regions that do not overlap; each method that can contradict that returns a code of `raw`.

    Attributes:
        count: how many there are.
    """

    def __init__(self) -> None:
        self.count = 0
        self._slots = 0
        self._region_store: Any = None
        self._order_store: Any = None

    def exported(self) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Every region by ascending address: rows of REGION_ROW, and their slots."""
        if self.count == 0:
            return np.zeros(0, rows.REGION_ROW), np.zeros(0, np.uint64)
        slots = np.array(self._order_store[: self.count], np.uint64)
        return rows.exported(self._region_store, rows.REGION_ROW)[slots.astype(np.intp)], slots

    def load(self, region_rows: NDArray[np.void], slots: NDArray[np.uint64]) -> None:
        """Fill an empty table with what another has exported."""
        if len(slots) > 0:
            self._reserve(int(slots.max()))
            rows.put(self._region_store, slots.astype(np.intp), region_rows)
            for at, slot in enumerate(slots.tolist()):
                self._order[at] = slot
        self.count = len(slots)

    def add(self, slot: int, address: int, size: int) -> int:
        """A new region."""
        self._reserve(slot)
        r = raw.region(self._regions, slot)
        if r.state != raw.NOTHING:
            return raw.SLOT_TAKEN
        at = self._place(address)
        if at > 0 and self._end(at - 1) > address:
            return raw.OVERLAP
        if at < self.count and self._start(at) < address + size:
            return raw.OVERLAP
        for i in range(self.count, at, -1):
            self._order[i] = self._order[i - 1]
        self._order[at] = slot
        self.count += 1
        r.address = address
        r.size = size
        r.state = raw.REGION_LIVE
        return raw.FINE

    def lengthen(self, slot: int, address: int, size: int) -> int:
        """Add to the end of a region what begins at `address`."""
        if slot >= self._slots or raw.region(self._regions, slot).state == raw.NOTHING:
            return raw.SLOT_EMPTY
        r = raw.region(self._regions, slot)
        if address != r.address + r.size:
            return raw.NOT_AT_END
        at = self._place(address)
        if at < self.count and self._start(at) < address + size:
            return raw.OVERLAP
        r.size += size
        return raw.FINE

    def shorten(self, slot: int, address: int, size: int) -> int:
        """The inverse of `lengthen`."""
        r = raw.region(self._regions, slot)
        if address + size != r.address + r.size or size >= r.size:
            return raw.NOT_AT_END
        r.size -= size
        return raw.FINE

    def remove(self, slot: int, address: int, size: int) -> int:
        """Take away a region that is just that."""
        r = raw.region(self._regions, slot)
        if r.address != address or r.size != size:
            return raw.OTHER_PLACE
        for i in range(self._place(address), self.count):
            self._order[i - 1] = self._order[i]
        self.count -= 1
        r.address = r.size = r.state = 0
        return raw.FINE

    def _reserve(self, slot: int) -> None:
        if slot < self._slots:
            return
        slots = max(16, self._slots)
        while slots <= slot:
            slots *= 2
        compiled = bool(raw.COMPILED)
        self._region_store = rows.grown(self._region_store, rows.REGION_ROW, slots, compiled=compiled)
        self._order_store = rows.grown(self._order_store, rows.NUMBER, slots, compiled=compiled)
        self._regions = raw.regions(self._region_store)
        self._order = raw.numbers(self._order_store)
        self._slots = slots

    def _start(self, at: int) -> int:
        start: int = raw.region(self._regions, self._order[at]).address
        return start

    def _end(self, at: int) -> int:
        r = raw.region(self._regions, self._order[at])
        end: int = r.address + r.size
        return end

    def _place(self, address: int) -> int:
        """How many regions begin at or below `address`."""
        low = 0
        high = self.count
        while low < high:
            middle = (low + high) >> 1
            if self._start(middle) <= address:
                low = middle + 1
            else:
                high = middle
        return low
