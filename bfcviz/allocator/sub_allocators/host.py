"""HostSubAllocator: real memory of this machine, straight from the operating system."""
# ruff: noqa: D102  grant and take_back are told in base

from bfcviz.allocator.sub_allocators import pages
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.errors import InvalidRequest


class HostSubAllocator(SubAllocator):
    """Regions of zeroed host memory, page-aligned; a released region goes back to the operating system at once.

    Adjacent grants are never joined: each is one mapping.

    Args:
        capacity: bytes that can be granted at one time; None = what the machine gives.
    """

    def __init__(self, capacity: int | None = None) -> None:
        SubAllocator.__init__(self)
        if capacity is not None and not 0 <= capacity < 1 << 64:
            raise InvalidRequest(f"capacity {capacity} was given; give a number from 0 to 2^64 - 1")
        self.capacity = (1 << 64) - 1 if capacity is None else capacity
        self.used = 0
        self.page = pages.page_size()

    def grant(self, alignment: int, num_bytes: int) -> int:
        need = (num_bytes + self.page - 1) // self.page * self.page
        if need > self.capacity or self.used > self.capacity - need:
            return 0
        address = pages.map_pages(need, alignment if alignment > self.page else self.page)
        if address != 0:
            self.used += need
            # The heap gets what it asked for: its regions must not depend on the page size.
            self.received = num_bytes
        return address

    def take_back(self, address: int, num_bytes: int) -> None:
        need = (num_bytes + self.page - 1) // self.page * self.page
        pages.unmap_pages(address, need)
        self.used -= need
