"""FreeBlocks: the free blocks of a simulated pool, found by size or by address."""

from bisect import bisect_left, bisect_right, insort

NO_SIZE = 1 << 62
"""In bytes: larger than every block."""


class FreeBlocks:
    """Free blocks that do not overlap; sizes in bytes, addresses above 0.

    Args:
        recent_from: `take_recent` finds blocks of so many bytes and more, in the order of addresses.

    Attributes:
        sizes: size of each block, by its address.
        starts: address of each block, by its end.
        total: bytes of all blocks.
        merged: bytes of the block that the last `merge_around` or `add_merged` made.
    """

    def __init__(self, recent_from: int = NO_SIZE) -> None:
        self.sizes: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.total = 0
        self.merged = 0
        self._distinct: list[int] = []  # the sizes that occur, ascending
        self._by_size: dict[int, list[int]] = {}  # addresses of the blocks of each size, ascending
        self._recent_from = recent_from
        self._recent: set[int] = set()

    def add(self, address: int, size: int) -> None:
        """Add a block that is not there."""
        self.sizes[address] = size
        self.starts[address + size] = address
        self.total += size
        if size >= self._recent_from:
            self._recent.add(address)
        same = self._by_size.get(size)
        if same is None:
            self._by_size[size] = [address]
            insort(self._distinct, size)
        else:
            insort(same, address)

    def remove(self, address: int) -> int:
        """Remove the block at `address`; returns its size."""
        size = self.sizes.pop(address)
        del self.starts[address + size]
        self.total -= size
        if size >= self._recent_from:
            self._recent.discard(address)
        same = self._by_size[size]
        if len(same) == 1:
            del self._by_size[size]
            del self._distinct[bisect_left(self._distinct, size)]
        else:
            del same[bisect_left(same, address)]
        return size

    def best_fit(self, size: int) -> int:
        """The smallest block of at least `size` bytes, of these the one with the lowest address; 0: there is none."""
        at = bisect_left(self._distinct, size)
        if at == len(self._distinct):
            return 0
        return self._by_size[self._distinct[at]][0]

    def aligned_fit(self, size: int, alignment: int, descending: bool) -> int:
        """The smallest block with `size` bytes from an aligned address on; of equal ones the first; 0: there is none.

        Args:
            size: in bytes.
            alignment: a power of two, in bytes.
            descending: whether the first one of equal blocks is that with the highest address.
        """
        for at in range(bisect_left(self._distinct, size), len(self._distinct)):
            whole = self._distinct[at]
            same = self._by_size[whole]
            for number in range(len(same)):
                address = same[len(same) - 1 - number if descending else number]
                if (address + alignment - 1) // alignment * alignment + size <= address + whole:
                    return address
        return 0

    def first_fit(self, size: int) -> int:
        """The block of at least `size` bytes with the lowest address; 0: there is none."""
        found = 0
        for at in range(bisect_left(self._distinct, size), len(self._distinct)):
            address = self._by_size[self._distinct[at]][0]
            if found == 0 or address < found:
                found = address
        return found

    def next_larger(self, address: int) -> int:
        """The block after the one at `address` in the order of sizes, then addresses; 0: it is the last."""
        same = self._by_size[self.sizes[address]]
        at = bisect_right(same, address)
        if at < len(same):
            return same[at]
        at = bisect_right(self._distinct, self.sizes[address])
        return self._by_size[self._distinct[at]][0] if at < len(self._distinct) else 0

    def largest(self) -> int:
        """Bytes of the largest block; 0 if there is none."""
        return self._distinct[len(self._distinct) - 1] if self._distinct else 0

    def largest_before(self, end: int) -> int:
        """The most bytes of one block that lie below the address `end`; 0 if there are none."""
        found = 0
        for at in range(len(self._distinct) - 1, -1, -1):
            size = self._distinct[at]
            if size <= found:
                break
            room = end - self._by_size[size][0]
            found = max(found, min(size, room))
        return found

    def take_recent(self) -> list[int]:
        """The blocks of at least `recent_from` bytes that were added since the last call and are still there."""
        found = sorted(self._recent)
        self._recent.clear()
        return found

    def take_front(self, address: int, size: int) -> None:
        """Remove the first `size` bytes of the block at `address`."""
        whole = self.remove(address)
        if whole > size:
            self.add(address + size, whole - size)

    def add_merged(self, address: int, size: int) -> int:
        """Add a block, as one with the blocks that touch it; returns its address."""
        address = self.merge_around(address, size)
        self.add(address, self.merged)
        return address

    def merge_around(self, address: int, size: int) -> int:
        """Remove the blocks that touch [address, address + size); returns the address of all together."""
        before = self.starts.get(address)
        if before is not None:
            size += self.remove(before)
            address = before
        if address + size in self.sizes:
            size += self.remove(address + size)
        self.merged = size
        return address
