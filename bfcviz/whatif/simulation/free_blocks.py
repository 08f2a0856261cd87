"""FreeBlocks: the free blocks of a simulated pool, found by size or by address."""

from bisect import bisect_left, bisect_right, insort


class FreeBlocks:
    """Free blocks that do not overlap; sizes in bytes, addresses above 0.

    Attributes:
        sizes: size of each block, by its address.
        starts: address of each block, by its end.
        total: bytes of all blocks.
    """

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.total = 0
        self._distinct: list[int] = []  # the sizes that occur, ascending
        self._by_size: dict[int, list[int]] = {}  # addresses of the blocks of each size, ascending

    def add(self, address: int, size: int) -> None:
        """Add a block that is not there."""
        self.sizes[address] = size
        self.starts[address + size] = address
        self.total += size
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

    def take_front(self, address: int, size: int) -> None:
        """Remove the first `size` bytes of the block at `address`."""
        whole = self.remove(address)
        if whole > size:
            self.add(address + size, whole - size)

    def add_merged(self, address: int, size: int) -> int:
        """Add a block, as one with the blocks that touch it; returns its address."""
        address, size = self.merge_around(address, size)
        self.add(address, size)
        return address

    def merge_around(self, address: int, size: int) -> tuple[int, int]:
        """Remove the blocks that touch [address, address + size); returns the address and size of all together."""
        before = self.starts.get(address)
        if before is not None:
            size += self.remove(before)
            address = before
        if address + size in self.sizes:
            size += self.remove(address + size)
        return address, size
