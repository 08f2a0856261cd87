"""HostSubAllocator: memory of this machine, directly from the operating system."""
# ruff: noqa: D102  base documents grant, take_back and discard

from bfcviz.allocator.sub_allocators import pages
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.errors import InvalidRequest
from bfcviz.units import parse_bytes


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
        self.page = pages.page_size()

    def grant(self, alignment: int, num_bytes: int) -> int:
        need = (num_bytes + self.page - 1) // self.page * self.page
        if need > self.capacity or self.used > self.capacity - need:
            return 0
        if self.keep_available > 0 and pages.available_memory() < need + self.keep_available:
            return 0
        address = pages.map_pages(need, alignment if alignment > self.page else self.page)
        if address != 0:
            self.used += need
            # The heap gets the requested size: its regions must not depend on the page size.
            self.received = num_bytes
        return address

    def take_back(self, address: int, num_bytes: int) -> None:
        need = (num_bytes + self.page - 1) // self.page * self.page
        pages.unmap_pages(address, need)
        self.used -= need

    def discard(self, address: int, num_bytes: int) -> None:
        pages.discard_pages(address, num_bytes)
