"""The heap of XLA's main branch in 2026: best fit in one address range that is served from both ends.

::

    low address                                                high address
    | lower blocks and holes --->   central gap   <--- upper blocks and holes |

A request reuses the best fitting hole of its own end; only if none fits does it take memory from the central gap. A
freed block at the border of its end joins the gap, with the hole beside it.

Source: openxla/xla, commit 00df9eefeb54, xla/tsl/framework/bfc_allocator.h and .cc: `Options`, `FindTaggedChunkPtr`,
`FindChunkPtrInCentralGap`, `AllocateChunkFromLowEnd`, `AllocateChunkFromHighEnd`, `ReturnBoundaryChunkToGap`. Assumed:
no timestamps, no garbage collection (one region is never released), one alignment for all requests of an end, and an
address range that begins at a multiple of 2 MiB.

Later XLA reserves addresses for more than it takes at the start, and maps more behind the upper end where a request of
that end fails; the lower end stays within what was taken first (`MemFraction` in xla/pjrt/gpu/allocator_config.h)::

    | lower --->   gap   <--- upper | more of the upper end | not mapped |

Assumed: the pool grows by 2 MiB, then by twice as much each time, as BFC's regions do, and by less near the limit.
"""

from bfcviz.formats.tensorflow import UNIT as XLA_UNIT
from bfcviz.formats.tensorflow import max_waste
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.simulated_pool import SimulatedPool

GROWTH = 2097152
"""Bytes of the first growth, and the granularity of memory that is mapped."""


class XLAPool(SimulatedPool):
    """XLA's heap: one region, of the whole limit, or one that the upper end lets grow up to it.

    Args:
        driver: grants the region.
        ends: for each allocation, in order, 1: the upper end; all others get the lower end.
        lower_order: of equal holes at the lower end, the first one is taken: `ascending` or `descending` addresses.
        upper_order: the same at the upper end.
        lower_split: how a hole at the lower end is split: `bfc`: from twice the request on, or to save 128 MiB and
            more; `exact`: always.
        upper_split: the same at the upper end.
        lower_gap_split: how the central gap is split for the lower end, `bfc` or `exact`.
        upper_gap_split: the same for the upper end.
        lower_alignment: of the addresses at the lower end: a power of two, in bytes.
        upper_alignment: the same at the upper end.
        fragmentation_fraction: a share of the limit that replaces the 128 MiB; 0: it does not.
        preallocated: bytes that are taken at the start; None: the whole limit.
    """

    def __init__(
        self,
        driver: DriverMemory,
        ends: bytes = b"",
        lower_order: str = "ascending",
        upper_order: str = "ascending",
        lower_split: str = "bfc",
        upper_split: str = "bfc",
        lower_gap_split: str = "exact",
        upper_gap_split: str = "exact",
        lower_alignment: int = XLA_UNIT,
        upper_alignment: int = XLA_UNIT,
        fragmentation_fraction: float = 0.0,
        preallocated: int | None = None,
    ) -> None:
        SimulatedPool.__init__(self, driver)
        self._ends = ends
        self._asked = 0
        self._descending = (lower_order == "descending", upper_order == "descending")
        self._exact = (lower_split == "exact", upper_split == "exact")
        self._gap_exact = (lower_gap_split == "exact", upper_gap_split == "exact")
        self._alignment = (max(lower_alignment, XLA_UNIT), max(upper_alignment, XLA_UNIT))
        self._waste = max_waste(driver.limit, fragmentation_fraction)
        self._lower_holes = self.new_free_blocks()
        self._upper_holes = self.new_free_blocks()
        self._lower: set[int] = set()  # addresses of the blocks in use
        self._upper_starts: dict[int, int] = {}  # the same of the upper end, by the end of the block
        self._gap = 0
        self._gap_size = 0
        self._is_granted = False
        self._preallocated = driver.limit if preallocated is None else min(preallocated, driver.limit)
        self._lower_stop = 0  # the address where the lower end must stop
        self._stop = 0  # the address after the mapped memory
        self._growth = GROWTH

    def allocate(self, size: int, stream: int) -> int:  # noqa: ARG002  one pool serves all streams
        """The address of a block of XLA's heap; 0 if the memory does not suffice."""
        at = self._asked
        self._asked += 1
        upper = at < len(self._ends) and self._ends[at] == 1
        rounded = (size + XLA_UNIT - 1) // XLA_UNIT * XLA_UNIT
        if not self._is_granted:
            self._grant(rounded)
        holes = self._upper_holes if upper else self._lower_holes
        alignment = self._alignment[upper]
        hole = holes.aligned_fit(rounded, alignment, self._descending[upper])
        if (
            hole == 0
            and upper
            and not self._gap_has(rounded, alignment, self._stop)
            and self._extend(rounded, alignment)
        ):
            hole = holes.aligned_fit(rounded, alignment, self._descending[upper])
        from_gap = hole == 0
        if from_gap:
            if not self._gap_has(rounded, alignment, self._stop if upper else self._lower_stop):
                return 0
            hole, whole = self._gap, self._gap_size
            self._gap_size = 0
        else:
            whole = holes.remove(hole)
        if upper:
            return self._from_high_end(hole, whole, rounded, from_gap)
        return self._from_low_end(hole, whole, rounded, from_gap)

    def free(self, address: int) -> None:
        """Free the block of XLA's heap at `address`."""
        size = self.vacate(address)
        end = address + size
        lower = address in self._lower
        if lower:
            self._lower.remove(address)
            is_border = end not in self._lower and end not in self._lower_holes.sizes
            holes = self._lower_holes
        else:
            del self._upper_starts[end]
            is_border = address not in self._upper_starts and address not in self._upper_holes.starts
            holes = self._upper_holes
        start = holes.merge_around(address, size)
        whole = holes.merged
        if not is_border:
            holes.add(start, whole)
            return
        if self._gap_size == 0 or lower:
            self._gap = start
        self._gap_size += whole

    def largest_free(self) -> int:
        """Bytes of the largest hole of XLA's heap, or of the central gap."""
        return max(self._gap_size, self._lower_holes.largest(), self._upper_holes.largest())

    def _grant(self, rounded: int) -> None:
        """Get the whole limit for XLA's heap, if it suffices for the first request."""
        room = self._preallocated // XLA_UNIT * XLA_UNIT
        if rounded <= room or self._preallocated < self.driver.limit:
            self._gap = self.driver.grant(room)
            self._gap_size = room if self._gap != 0 else 0
            self._lower_stop = self._stop = self._gap + self._gap_size
            self._is_granted = True

    def _gap_has(self, rounded: int, alignment: int, stop: int) -> bool:
        """Whether the central gap of XLA's heap has an aligned place for so many bytes before the address `stop`."""
        return self._up(self._gap, alignment) + rounded <= min(self._gap + self._gap_size, stop)

    def _extend(self, rounded: int, alignment: int) -> bool:
        """Map memory behind the upper end of XLA's heap, so that its last hole serves `rounded` bytes, or False."""
        room = self.driver.limit - self.driver.reserved
        hole = self._upper_holes.starts.find(self._stop)
        if hole == 0 and self._gap_size and self._gap + self._gap_size == self._stop:
            hole = self._gap  # no block of the upper end lies behind the gap
        first = self._up(hole or self._stop, alignment)
        needed = first + rounded - self._stop
        needed = (needed + GROWTH - 1) // GROWTH * GROWTH
        while self._growth < needed:
            self._growth *= 2
        size = min(self._growth, max(room // GROWTH * GROWTH, needed))
        if needed <= 0 or size > room or not self.driver.map(self._stop, size):
            return False
        self._growth *= 2
        if hole and hole == self._gap:
            self._gap_size += size
        else:
            self._upper_holes.add_merged(self._stop, size)
        self._stop += size
        return True

    def _from_low_end(self, hole: int, whole: int, rounded: int, from_gap: bool) -> int:
        """Take a block of XLA's from the low end of a hole that is in no table; returns its address."""
        padding = self._up(hole, self._alignment[0]) - hole
        if padding > 0:
            self._lower_holes.add(hole, padding)
        address = hole + padding
        whole -= padding
        if self._splits(whole, rounded, self._gap_exact[0] if from_gap else self._exact[0]):
            if from_gap:
                self._gap, self._gap_size = address + rounded, whole - rounded
            else:
                self._lower_holes.add(address + rounded, whole - rounded)
            whole = rounded
        self._lower.add(address)
        self.occupy(address, whole)
        return address

    def _from_high_end(self, hole: int, whole: int, rounded: int, from_gap: bool) -> int:
        """Take a block of XLA's from the high end of a hole that is in no table; returns its address."""
        is_exact = self._gap_exact[1] if from_gap else self._exact[1]
        alignment = self._alignment[1]
        address = (hole + whole - rounded) // alignment * alignment
        first = self._up(hole, alignment)
        if not is_exact and not self._splits(whole - (first - hole), rounded, False):
            address = first
        if address > hole:
            if from_gap:
                self._gap, self._gap_size = hole, address - hole
            else:
                self._upper_holes.add(hole, address - hole)
        whole -= address - hole
        if self._splits(whole, rounded, is_exact):
            self._upper_holes.add(address + rounded, whole - rounded)
            whole = rounded
        self._upper_starts[address + whole] = address
        self.occupy(address, whole)
        return address

    def _splits(self, whole: int, rounded: int, is_exact: bool) -> bool:
        """Whether XLA splits a hole of this size for a request of `rounded` bytes."""
        if is_exact:
            return whole > rounded
        return whole >= rounded * 2 or whole - rounded >= self._waste

    def _up(self, address: int, alignment: int) -> int:
        """The first aligned address from there on."""
        return (address + alignment - 1) // alignment * alignment
