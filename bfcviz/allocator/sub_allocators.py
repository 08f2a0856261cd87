"""Sub-allocators grant a heap's regions, and take them back.

In: an alignment and a number of bytes. Out: an address, or a refusal. `SimulatedSubAllocator` grants addresses without
memory, `HostSubAllocator` memory of this machine; `cuda` has those of a GPU's memory.

The heap calls `grant` and `take_back` without its lock and, compiled, without the GIL, from one thread at a time.
To write one in Python, derive from `PythonSubAllocator`.
"""
# ruff: noqa: ARG002, D102  the base refuses everything; it documents grant, take_back and discard

from typing import Literal, NamedTuple

from bfcviz import native
from bfcviz.allocator import heap_memory
from bfcviz.errors import InvalidRequest
from bfcviz.units import parse_bytes


class SubAllocator:
    """Grants regions.

    Attributes:
        supports_coalescing: a region that begins where another ends may be joined to it; both are then released as
            one.
        discards: whether it can discard the pages of free memory (`discard`).
        operation: number of the operation being replayed, set by `BFCAllocator.replay`.
    """

    def __init__(self, *, supports_coalescing: bool = False) -> None:
        self.supports_coalescing = supports_coalescing
        self.discards = False
        self.operation = 0
        self.received = 0
        self.error: BaseException | None = None
        self.refusal: BaseException | None = None

    def grant(self, alignment: int, num_bytes: int) -> int:
        """Address of a region of at least `num_bytes`; sets `received` to its size. 0 = refused."""
        return 0

    def take_back(self, address: int, num_bytes: int) -> None:
        """Take a whole region back."""

    def discard(self, address: int, num_bytes: int) -> None:
        """Discard the contents of these bytes of a region. All are free; they may read as zeros from now on.

        Called with the heap's lock held, unlike the other two: it must be fast, and never wait.
        """


class PythonSubAllocator(SubAllocator):
    """Base class of sub-allocators written in Python: override `allocate` and `free`."""

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:
        """Grant a region.

        Args:
            alignment: the address must be a multiple of this power of two, in bytes.
            num_bytes: the smallest size of the region.

        Returns:
            Address and number of bytes granted, or None to refuse. An exception refuses too; the heap's `allocate`
            raises it.
        """
        raise NotImplementedError

    def free(self, address: int, num_bytes: int) -> None:
        """Take a region back, whole (with coalescing: several joined ones as one)."""
        raise NotImplementedError

    def grant(self, alignment: int, num_bytes: int) -> int:
        return self.call_allocate(alignment, num_bytes)

    def take_back(self, address: int, num_bytes: int) -> None:
        self.call_free(address, num_bytes)

    def call_allocate(self, alignment: int, num_bytes: int) -> int:
        try:
            granted = self.allocate(alignment, num_bytes)
            if granted is None:
                return 0
            address, received = granted
            self.received = native.to_u64(received)
            where = native.to_u64(address)
        except BaseException as error:  # noqa: BLE001  no exception may cross the heap: kept, raised by `allocate`
            self.error = self.refusal = error
            return 0
        if self.error is self.refusal:
            self.error = None  # of the larger grants refused before this one
        return where

    def call_free(self, address: int, num_bytes: int) -> None:
        try:
            self.free(address, num_bytes)
        except BaseException as error:  # noqa: BLE001  as in call_allocate
            if self.error is None:
                self.error = error


# ------------------------------------------------------------------------------
# SimulatedSubAllocator: addresses without memory, for experiments, replays and teaching.


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


# ------------------------------------------------------------------------------
# HostSubAllocator: memory of this machine, directly from the operating system.


class HostSubAllocator(SubAllocator):
    """Regions of zeroed host memory, page-aligned; a released region is returned to the operating system at once.

    Adjacent regions are never joined: each is one mapping.

    Args:
        capacity: the most that can be granted at one time, in bytes or as text; None = no limit of its own.
        keep_available: a grant is refused unless the machine has this much memory available afterwards (the kernel's
            MemAvailable), in bytes or as text. 0 = not checked. The attribute, in bytes, may change at any time.

    Raises:
        InvalidRequest: a number of bytes is out of range.
        ValueError: a text is not a size.
    """

    def __init__(self, capacity: int | str | None = None, *, keep_available: int | str = 0) -> None:
        SubAllocator.__init__(self)
        self.discards = True
        most = (1 << 64) - 1 if capacity is None else parse_bytes(capacity, "capacity")
        if not 0 <= most < 1 << 64:
            raise InvalidRequest(f"capacity is {capacity}; give a number from 0 to 2^64 - 1")
        keep_available = parse_bytes(keep_available, "keep_available")
        if not 0 <= keep_available < 1 << 62:
            raise InvalidRequest(f"keep_available is {keep_available}; give a number from 0 to 2^62 - 1")
        self.keep_available = keep_available
        self.capacity = most
        self.used = 0
        self.page = heap_memory.page_size()

    def grant(self, alignment: int, num_bytes: int) -> int:
        need = (num_bytes + self.page - 1) // self.page * self.page
        if need > self.capacity or self.used > self.capacity - need:
            return 0
        if self.keep_available > 0 and heap_memory.available_memory() < need + self.keep_available:
            return 0
        address = heap_memory.map_pages(need, alignment if alignment > self.page else self.page)
        if address != 0:
            self.used += need
            # The heap gets the requested size: its regions must not depend on the page size.
            self.received = num_bytes
        return address

    def take_back(self, address: int, num_bytes: int) -> None:
        need = (num_bytes + self.page - 1) // self.page * self.page
        heap_memory.unmap_pages(address, need)
        self.used -= need

    def discard(self, address: int, num_bytes: int) -> None:
        heap_memory.discard_pages(address, num_bytes)
