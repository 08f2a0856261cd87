"""An allocator that tracks nothing, as one around `malloc` would: the minimum of the protocol."""

from bfcviz.allocator.interface import Stats, bytes_of

BASE = 0x10000


class PlainAllocator:
    """Allocates consecutive addresses and accepts every free."""

    name = "plain"

    def __init__(self, *, empties=False):
        self.empties = empties
        self.top = BASE
        self.live = set()

    def allocate(self, num_bytes, alignment=256, label=None, *, attributes=None):
        if num_bytes == 0 and not self.empties:
            return 0
        address = -(-self.top // alignment) * alignment
        self.top = address + max(num_bytes, 1)
        self.live.add(address)
        return address

    def try_allocate(self, num_bytes, alignment=256, label=None, *, attributes=None):
        return self.allocate(num_bytes, alignment)

    def allocate_elements(self, dtype, count, alignment=256, label=None, *, attributes=None):
        return self.allocate(bytes_of(dtype, count), alignment)

    def free(self, address):
        self.live.remove(address)

    def tracks_allocation_sizes(self):
        return False

    def requested_size(self, address):
        raise AssertionError("it said that it cannot tell")

    allocated_size = allocation_id = requested_size

    def should_allocate_empty(self):
        return self.empties

    def stats(self):
        return Stats(*[0] * 12)

    def clear_stats(self):
        """It counts nothing."""

    def set_safe_frontier(self, count):
        """It has none."""

    def check_invariants(self):
        """It has no books."""

    def close(self):
        self.live.clear()
