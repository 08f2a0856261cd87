"""Free blocks of a simulated allocator, by address and by size."""

from array import array
from collections.abc import Iterator, MutableSequence

from bfcviz import native

ORDER_PRIME = 1048573
"""Multiples of a number modulo this prime are in an order without a pattern."""

ORDER_FACTOR = 812827


def numbers_of(count: int) -> MutableSequence[int]:
    """So many zeros, for the tables and trees of a simulated pool."""
    return array("q", bytes(8 * count))


def longer(numbers: MutableSequence[int]) -> MutableSequence[int]:
    """The same numbers of a table or tree of a simulated pool, and as many zeros."""
    found = numbers_of(2 * len(numbers))
    for at in range(len(numbers)):
        found[at] = numbers[at]
    return found


class AddressTable:
    """Numbers of simulated blocks by address, both above 0: an open-addressing table; a dict is too slow.

    A key lies at its home, or after it with no empty place between; so a lookup ends at an empty place.
    """

    def __init__(self) -> None:
        self._used = 0
        self._shift = 58
        self._keys = numbers_of(64)
        self._values = numbers_of(64)

    def __len__(self) -> int:
        return self._used

    def __contains__(self, address: int) -> bool:
        return self.find(address) != 0

    def __getitem__(self, address: int) -> int:
        value = self.find(address)
        if value == 0:
            raise KeyError(address)
        return value

    def __iter__(self) -> Iterator[int]:
        return iter(self.addresses())

    def get(self, address: int, default: int = 0) -> int:
        """The number of a simulated block by its address, or the default."""
        return self.find(address) or default

    def find(self, address: int) -> int:
        """The number of a simulated block by its address; 0: it has none."""
        return self._values[self._place(address)]

    def put(self, address: int, value: int) -> None:
        """Give the address of a simulated block a number."""
        at = self._place(address)
        if self._keys[at] == 0:
            self._used += 1
            self._keys[at] = address
        self._values[at] = value
        if 2 * self._used > len(self._keys):
            self._grow()

    def take(self, address: int) -> int:
        """Remove the address of a simulated block; returns its number, 0 if it had none."""
        at = self._place(address)
        value = self._values[at]
        if value == 0:
            return 0
        self._used -= 1
        mask = len(self._keys) - 1
        after = at
        while True:  # move back what lies behind, unless it would come before its home
            after = (after + 1) & mask
            key = self._keys[after]
            if key == 0:
                break
            if ((after - self._home(key)) & mask) >= ((after - at) & mask):
                self._keys[at] = key
                self._values[at] = self._values[after]
                at = after
        self._keys[at] = self._values[at] = 0
        return value

    def addresses(self) -> list[int]:
        """All addresses of simulated blocks, ascending."""
        return sorted([key for key in self._keys if key != 0])

    def _home(self, address: int) -> int:
        return native.spread(address, self._shift)

    def _place(self, address: int) -> int:
        """Where the address is, or the empty place where it would be."""
        mask = len(self._keys) - 1
        at = self._home(address)
        while self._keys[at] != address and self._keys[at] != 0:
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._shift -= 1
        self._keys = numbers_of(2 * len(keys))
        self._values = numbers_of(2 * len(keys))
        for at in range(len(keys)):
            if keys[at] != 0:
                place = self._place(keys[at])
                self._keys[place] = keys[at]
                self._values[place] = values[at]


class SizeTree:
    """Free blocks by (size, address): a treap whose nodes know the lowest address below them.

    Node 0 is no node. The priority of a node is a hash of its number, so that the same steps make the same tree.
    """

    def __init__(self) -> None:
        self._root = 0
        self._spare = 0  # nodes that are free, linked by `_left`
        self._nodes = 1
        self._size = numbers_of(64)
        self._address = numbers_of(64)
        self._left = numbers_of(64)
        self._right = numbers_of(64)
        self._lowest = numbers_of(64)
        self._low = self._high = 0  # what `_split` returns

    def add(self, address: int, size: int) -> None:
        """Add a free block that is not in the tree."""
        node = self._spare
        if node != 0:
            self._spare = self._left[node]
        else:
            node = self._nodes
            self._nodes += 1
            if node == len(self._size):
                self._grow()
        self._size[node] = size
        self._address[node] = self._lowest[node] = address
        self._left[node] = self._right[node] = 0
        self._root = self._added(self._root, node)

    def remove(self, address: int, size: int) -> None:
        """Remove a free block that is in the tree."""
        self._root = self._removed(self._root, size, address)

    def at_least(self, size: int, address: int) -> int:
        """The first free block that is not before (size, address), as a node; 0: there is none."""
        node, found = self._root, 0
        while node != 0:
            if self._is_before(node, size, address):
                node = self._right[node]
            else:
                found = node
                node = self._left[node]
        return found

    def before(self, size: int, address: int) -> int:
        """The last free block before (size, address), as a node; 0: there is none."""
        node, found = self._root, 0
        while node != 0:
            if self._is_before(node, size, address):
                found = node
                node = self._right[node]
            else:
                node = self._left[node]
        return found

    def last(self) -> int:
        """The largest free block, as a node; 0: there is none."""
        node = self._root
        while node != 0 and self._right[node] != 0:
            node = self._right[node]
        return node

    def lowest_from(self, size: int) -> int:
        """The lowest address of all free blocks of at least this size; 0: there are none."""
        node, found = self._root, 0
        while node != 0:
            if self._size[node] < size:
                node = self._right[node]
                continue
            low = self._lowest_of(self._address[node], self._lowest[self._right[node]])
            found = self._lowest_of(found, low)
            node = self._left[node]
        return found

    def size_of(self, node: int) -> int:
        """Bytes of the free block of a node; 0 of no node."""
        return self._size[node]

    def address_of(self, node: int) -> int:
        """Address of the free block of a node; 0 of no node."""
        return self._address[node]

    def _is_before(self, node: int, size: int, address: int) -> bool:
        whole = self._size[node]
        return whole < size or (whole == size and self._address[node] < address)

    def _priority(self, node: int) -> int:
        return native.scramble(node)

    def _update(self, node: int) -> None:
        below = self._lowest_of(self._lowest[self._left[node]], self._lowest[self._right[node]])
        self._lowest[node] = self._lowest_of(self._address[node], below)

    def _lowest_of(self, one: int, other: int) -> int:
        """The lower one of two addresses; 0 is none."""
        return other if one == 0 or 0 < other < one else one

    def _added(self, tree: int, node: int) -> int:
        """The tree of free blocks with a node more."""
        if tree == 0:
            return node
        if self._priority(node) > self._priority(tree):
            self._split(tree, self._size[node], self._address[node])
            self._left[node], self._right[node] = self._low, self._high
            self._update(node)
            return node
        if self._is_before(tree, self._size[node], self._address[node]):
            self._right[tree] = self._added(self._right[tree], node)
        else:
            self._left[tree] = self._added(self._left[tree], node)
        if self._address[node] < self._lowest[tree]:
            self._lowest[tree] = self._address[node]
        return tree

    def _split(self, tree: int, size: int, address: int) -> None:
        """Cut a tree in two: before (size, address), in `_low`, and the others, in `_high`."""
        if tree == 0:
            self._low = self._high = 0
        elif self._is_before(tree, size, address):
            self._split(self._right[tree], size, address)
            self._right[tree] = self._low
            self._update(tree)
            self._low = tree
        else:
            self._split(self._left[tree], size, address)
            self._left[tree] = self._high
            self._update(tree)
            self._high = tree

    def _removed(self, tree: int, size: int, address: int) -> int:
        """The tree of free blocks without one."""
        if self._address[tree] == address:
            found = self._joined(self._left[tree], self._right[tree])
            self._left[tree] = self._spare
            self._spare = tree
            return found
        if self._is_before(tree, size, address):
            self._right[tree] = self._removed(self._right[tree], size, address)
        else:
            self._left[tree] = self._removed(self._left[tree], size, address)
        self._update(tree)
        return tree

    def _joined(self, low: int, high: int) -> int:
        """Two trees as one; all of `low` is before `high`."""
        if low == 0 or high == 0:
            return low + high
        if self._priority(low) > self._priority(high):
            self._right[low] = self._joined(self._right[low], high)
            self._update(low)
            return low
        self._left[high] = self._joined(low, self._left[high])
        self._update(high)
        return high

    def _grow(self) -> None:
        self._size = longer(self._size)
        self._address = longer(self._address)
        self._left = longer(self._left)
        self._right = longer(self._right)
        self._lowest = longer(self._lowest)


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
        self.sizes = AddressTable()
        self.starts = AddressTable()
        self.total = 0
        self.merged = 0
        self._tree = SizeTree()
        self._recent_from = recent_from
        self._recent: set[int] = set()

    def add(self, address: int, size: int) -> None:
        """Add a free block that is not there."""
        self.sizes.put(address, size)
        self.starts.put(address + size, address)
        self._tree.add(address, size)
        self.total += size
        if size >= self._recent_from:
            self._recent.add(address)

    def remove(self, address: int) -> int:
        """Remove the free block at `address`; returns its size."""
        size = self.sizes.take(address)
        if size == 0:
            raise KeyError(address)
        self.starts.take(address + size)
        self._tree.remove(address, size)
        self.total -= size
        if size >= self._recent_from:
            self._recent.discard(address)
        return size

    def best_fit(self, size: int) -> int:
        """The smallest free block of at least `size` bytes, of equal ones that with the lowest address; 0: none."""
        return self._tree.address_of(self._tree.at_least(size, 0))

    def shuffled_fit(self, size: int, seed: int) -> int:
        """As `best_fit`, but of several blocks of one size the first in an order of all addresses that a seed makes."""
        tree = self._tree
        node = tree.at_least(size, 0)
        whole = tree.size_of(node)
        factor = seed % ORDER_PRIME * ORDER_FACTOR % ORDER_PRIME + 1
        found, least = 0, NO_SIZE
        while node != 0 and tree.size_of(node) == whole:
            address = tree.address_of(node)
            rank = address // 512 % ORDER_PRIME * factor % ORDER_PRIME
            if rank < least:
                found, least = address, rank
            node = tree.at_least(whole, address + 1)
        return found

    def aligned_fit(self, size: int, alignment: int, descending: bool) -> int:
        """The smallest block with `size` bytes from an aligned address on; of equal ones the first; 0: there is none.

        Args:
            size: in bytes.
            alignment: a power of two, in bytes.
            descending: whether the first one of equal blocks is that with the highest address.
        """
        tree = self._tree
        node = tree.at_least(size, 0)
        while node != 0:
            whole = tree.size_of(node)
            if descending:
                node = tree.before(whole, NO_SIZE)
            while node != 0 and tree.size_of(node) == whole:
                address = tree.address_of(node)
                if (address + alignment - 1) // alignment * alignment + size <= address + whole:
                    return address
                node = tree.before(whole, address) if descending else tree.at_least(whole, address + 1)
            if descending:
                node = tree.at_least(whole + 1, 0)
        return 0

    def first_fit(self, size: int) -> int:
        """The free block of at least `size` bytes with the lowest address; 0: there is none."""
        return self._tree.lowest_from(size)

    def next_larger(self, address: int) -> int:
        """The free block after the one at `address` in the order of sizes, then addresses; 0: it is the last."""
        return self._tree.address_of(self._tree.at_least(self.sizes.find(address), address + 1))

    def largest(self) -> int:
        """Bytes of the largest free block; 0 if there is none."""
        return self._tree.size_of(self._tree.last())

    def largest_before(self, end: int) -> int:
        """The most bytes of one free block that lie below the address `end`; 0 if there are none."""
        found = 0
        tree = self._tree
        size = self.largest()
        while size > found:
            room = end - tree.address_of(tree.at_least(size, 0))
            found = max(found, min(size, room))
            size = tree.size_of(tree.before(size, 0))
        return found

    def take_recent(self) -> list[int]:
        """The free blocks of at least `recent_from` bytes that were added since the last call and are still there."""
        found = sorted(self._recent)
        self._recent.clear()
        return found

    def take_front(self, address: int, size: int) -> None:
        """Remove the first `size` bytes of the free block at `address`."""
        whole = self.remove(address)
        if whole > size:
            self.add(address + size, whole - size)

    def add_merged(self, address: int, size: int) -> int:
        """Add a free block, as one with the free blocks that touch it; returns its address."""
        address = self.merge_around(address, size)
        self.add(address, self.merged)
        return address

    def merge_around(self, address: int, size: int) -> int:
        """Remove the free blocks that touch [address, address + size); returns the address of all together."""
        before = self.starts.find(address)
        if before != 0:
            size += self.remove(before)
            address = before
        if self.sizes.find(address + size) != 0:
            size += self.remove(address + size)
        self.merged = size
        return address
