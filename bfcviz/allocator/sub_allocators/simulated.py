"""SimulatedSubAllocator: addresses without memory, for experiments, replays and teaching."""
# ruff: noqa: D102  base documents grant and take_back

from typing import Literal, NamedTuple

from bfcviz import native
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.errors import InvalidRequest
from bfcviz.units import parse_bytes

BASE = 0x7F0000000000
DESCENDING_TOP = BASE + (1 << 44)

Mode = Literal["contiguous", "gapped", "descending"]


class Call(NamedTuple):
    """One call of a simulated sub-allocator; `kind` 0 granted, 1 refused, 2 released; sizes in bytes."""

    operation: int
    kind: int
    alignment: int
    requested: int
    received: int
    address: int


class SimulatedSubAllocator(SubAllocator):
    """Regions of a simulated address space; released addresses are never used again.

    Args:
        mode: `contiguous` puts each region directly after the last one, `gapped` leaves a gap between them,
            `descending` goes down from a high address.
        capacity: the most that can be granted at one time, in bytes or as text; None = no limit.
        granule: every grant is rounded up to a multiple of this, in bytes or as text.
        supports_coalescing: let the heap join adjacent regions.
        base: the first address (ascending), or the upper end of all addresses (descending).
        gap: between regions in mode `gapped`, in bytes or as text.
        journal: record every call in `calls`, a list of `Call`.

    Raises:
        InvalidRequest: a number is out of range, or the mode is unknown.
        ValueError: a text is not a size.
    """

    def __init__(
        self,
        mode: Mode = "contiguous",
        *,
        capacity: int | str | None = None,
        granule: int | str = 1,
        supports_coalescing: bool = False,
        base: int | None = None,
        gap: int | str = "1GiB",
        journal: bool = False,
    ) -> None:
        SubAllocator.__init__(self, supports_coalescing=supports_coalescing)
        if mode not in ("contiguous", "gapped", "descending"):
            raise InvalidRequest(f"mode {mode!r} is unknown; give 'contiguous', 'gapped' or 'descending'")
        most = (1 << 64) - 1 if capacity is None else parse_bytes(capacity, "capacity")
        granule, gap = parse_bytes(granule, "granule"), parse_bytes(gap, "gap")
        for name, number, least, bits in (
            ("granule", granule, 1, 63), ("gap", gap, 0, 63), ("capacity", most, 0, 64), ("base", base, 1, 63),
        ):  # fmt: skip
            if number is not None and not least <= number < 1 << bits:
                raise InvalidRequest(f"{name} is {number}; give a number from {least} to 2^{bits} - 1")
        self.mode = mode
        self.descending = mode == "descending"
        self.capacity = most
        self.granule = granule
        self.gap = gap if mode == "gapped" else 0
        self.used = 0
        self.journal = journal
        self.calls: list[Call] = []
        start = DESCENDING_TOP if self.descending else BASE
        self.top = start if base is None else base

    def grant(self, alignment: int, num_bytes: int) -> int:
        need = (num_bytes + self.granule - 1) // self.granule * self.granule
        if need > self.capacity or self.used > self.capacity - need:
            return self.refuse(alignment, num_bytes)
        address = self.place(alignment if alignment > 256 else 256, need)
        if address == 0:
            return self.refuse(alignment, num_bytes)
        self.used += need
        self.received = need
        if self.journal:
            self.note(0, alignment, num_bytes, need, address)
        return address

    def refuse(self, alignment: int, num_bytes: int) -> int:
        """Return no address; the journal records the refusal."""
        if self.journal:
            self.note(1, alignment, num_bytes, 0, 0)
        return 0

    def place(self, alignment: int, need: int) -> int:
        """The next address, or 0 where the address space ends: at 2^63, or at 0."""
        if self.descending:
            lower = (self.top - need) // alignment * alignment if need <= self.top else 0
            if lower != 0:
                self.top = lower
            return lower
        if self.top > native.HALF_SPACE:
            return 0
        address = (self.top + alignment - 1) // alignment * alignment
        if address > native.HALF_SPACE or need > native.HALF_SPACE - address:
            return 0
        self.top = address + need + self.gap
        return address

    def take_back(self, address: int, num_bytes: int) -> None:
        self.used -= num_bytes
        if self.journal:
            self.note(2, 0, 0, num_bytes, address)

    def note(self, kind: int, alignment: int, requested: int, received: int, address: int) -> None:
        self.calls.append(Call(self.operation, kind, alignment, requested, received, address))
