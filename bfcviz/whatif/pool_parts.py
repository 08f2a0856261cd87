"""The parts of simulated allocators: the driver's memory, free blocks, cached segments, the loop over requests."""

from array import array
from collections.abc import Iterator, MutableSequence
from typing import Any, NamedTuple

from bfcviz import native

FIRST_SEGMENT = 0x7F0000000000
LAST_SEGMENT = 1 << 60
"""Descending addresses end here."""

SHUFFLED_STEP = 1 << 39
"""Bytes of addresses between two ranges in shuffled order; larger ranges descend."""

ORDER_PRIME = 1048573
"""Multiples of a number modulo this prime are in an order without a pattern."""

ORDER_FACTOR = 812827

SEGMENT_ALIGNMENT = 2 << 20
"""In bytes: the granularity of CUDA's virtual memory."""

SEGMENT_GAP = 1 << 30
"""Bytes of addresses between segments: two segments are never adjacent."""


class DriverCall(NamedTuple):
    """One segment that the driver of a simulated pool granted or released.

    Attributes:
        address: of its first byte.
        size: bytes granted; below 0: released.
        join: it extends the segment that ends there.
    """

    address: int
    size: int
    join: bool


class DriverMemory:
    """Grants segments of a simulated address space; two that are granted at one time are never adjacent.

    Args:
        limit: the most that can be granted at one time, in bytes.

    Attributes:
        limit: the argument; a pool that checks a lower limit itself sets it to the memory of the device.
        reserved: bytes granted now.
        grants, refusals, releases: number of calls.
        order: of new ranges: 0: each lies above those before; -1: below; 1 and more: in an order without a pattern,
            which this number makes. A pool sets it before its first request. Drivers give addresses in an order of
            their own, and allocators choose by address among free blocks of one size.
        reuses: whether the addresses of returned segments are used again, with order 0 the lowest that suffice, with
            -1 the highest; else no address is. A pool sets it with the order.
        ranges: the first address of each range of addresses that was reserved, in order; segments have one each.
        keeps_calls: whether `calls` gets them.
        calls: granted and released segments in order; who reads them may clear the list.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0
        self.grants = 0
        self.refusals = 0
        self.releases = 0
        self.order = 0
        self.reuses = False
        self.ranges: list[int] = []
        self.keeps_calls = True
        self.calls: list[DriverCall] = []
        self._top = FIRST_SEGMENT
        self._bottom = LAST_SEGMENT
        self._holes = (
            FreeBlocks()
        )  # addresses of returned segments; with order -1 counted from `LAST_SEGMENT` down

    def reserve(self, num_bytes: int) -> int:
        """Addresses for `num_bytes` without memory."""
        if self.reuses:
            address = self._lowest_hole(num_bytes)
            self.ranges.append(address)
            return address
        whole = (num_bytes + SEGMENT_ALIGNMENT - 1) // SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT + SEGMENT_GAP
        if self.order > 0 and whole <= SHUFFLED_STEP and len(self.ranges) < ORDER_PRIME:
            place = (len(self.ranges) + 1) * (self.order * ORDER_FACTOR % ORDER_PRIME) % ORDER_PRIME
            address = FIRST_SEGMENT + place * SHUFFLED_STEP
        elif self.order != 0:
            self._bottom -= whole
            address = self._bottom
        else:
            address = self._top
            self._top += whole
        self.ranges.append(address)
        return address

    def grant(self, num_bytes: int) -> int:
        """A new segment; 0 if it would exceed the limit."""
        if not self._fits(num_bytes):
            return 0
        address = self.reserve(num_bytes)
        self._granted(address, num_bytes, False)
        return address

    def map(self, address: int, num_bytes: int) -> bool:
        """Memory for reserved addresses; it extends the memory that ends there. False if it would exceed the limit."""
        if not self._fits(num_bytes):
            return False
        self._granted(address, num_bytes, True)
        return True

    def release(self, address: int, num_bytes: int) -> None:
        """Return a segment, or the memory of mapped addresses."""
        if self.reuses:
            low = self._mirrored(address, num_bytes)
            self._holes.add_merged(low, num_bytes + SEGMENT_ALIGNMENT)
        self.releases += 1
        self.reserved -= num_bytes
        if self.keeps_calls:
            self.calls.append(DriverCall(address, -num_bytes, False))

    def _lowest_hole(self, num_bytes: int) -> int:
        """The first addresses for a segment that no segment has, with a gap after them."""
        whole = num_bytes + SEGMENT_ALIGNMENT
        low = self._holes.first_fit(whole)
        if low:
            self._holes.take_front(low, whole)
        else:
            low = self._top
            self._top += whole
        return self._mirrored(low, num_bytes)

    def _mirrored(self, address: int, num_bytes: int) -> int:
        """The address itself; with falling ones, where the segment lies if the address space is turned round."""
        return address if self.order == 0 else LAST_SEGMENT - address - num_bytes

    def _fits(self, num_bytes: int) -> bool:
        fits = num_bytes < native.MAX_REQUEST and self.reserved + num_bytes <= self.limit
        self.refusals += not fits
        return fits

    def _granted(self, address: int, num_bytes: int, join: bool) -> None:
        self.grants += 1
        self.reserved += num_bytes
        if self.keeps_calls:
            self.calls.append(DriverCall(address, num_bytes, join))


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
        """The number of an address, or the default."""
        return self.find(address) or default

    def find(self, address: int) -> int:
        """The number of an address; 0: it has none."""
        return self._values[self._place(address)]

    def put(self, address: int, value: int) -> None:
        """Give an address a number."""
        at = self._place(address)
        if self._keys[at] == 0:
            self._used += 1
            self._keys[at] = address
        self._values[at] = value
        if 2 * self._used > len(self._keys):
            self._grow()

    def take(self, address: int) -> int:
        """Remove an address; returns its number, 0 if it had none."""
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
        """All addresses, ascending."""
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
    """Blocks by (size, address): a treap whose nodes know the lowest address below them.

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
        """Add a block that is not there."""
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
        """Remove a block that is there."""
        self._root = self._removed(self._root, size, address)

    def at_least(self, size: int, address: int) -> int:
        """The first block that is not before (size, address), as a node; 0: there is none."""
        node, found = self._root, 0
        while node != 0:
            if self._is_before(node, size, address):
                node = self._right[node]
            else:
                found = node
                node = self._left[node]
        return found

    def before(self, size: int, address: int) -> int:
        """The last block before (size, address), as a node; 0: there is none."""
        node, found = self._root, 0
        while node != 0:
            if self._is_before(node, size, address):
                found = node
                node = self._right[node]
            else:
                node = self._left[node]
        return found

    def last(self) -> int:
        """The last block, as a node; 0: there is none."""
        node = self._root
        while node != 0 and self._right[node] != 0:
            node = self._right[node]
        return node

    def lowest_from(self, size: int) -> int:
        """The lowest address of all blocks of at least this size; 0: there are none."""
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
        """Bytes of a node's block; 0 of no node."""
        return self._size[node]

    def address_of(self, node: int) -> int:
        """Address of a node's block; 0 of no node."""
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
        """The tree with a node more."""
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
        """The tree without a block."""
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
        """Add a block that is not there."""
        self.sizes.put(address, size)
        self.starts.put(address + size, address)
        self._tree.add(address, size)
        self.total += size
        if size >= self._recent_from:
            self._recent.add(address)

    def remove(self, address: int) -> int:
        """Remove the block at `address`; returns its size."""
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
        """The smallest block of at least `size` bytes, of these the one with the lowest address; 0: there is none."""
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
        """The block of at least `size` bytes with the lowest address; 0: there is none."""
        return self._tree.lowest_from(size)

    def next_larger(self, address: int) -> int:
        """The block after the one at `address` in the order of sizes, then addresses; 0: it is the last."""
        return self._tree.address_of(self._tree.at_least(self.sizes.find(address), address + 1))

    def largest(self) -> int:
        """Bytes of the largest block; 0 if there is none."""
        return self._tree.size_of(self._tree.last())

    def largest_before(self, end: int) -> int:
        """The most bytes of one block that lie below the address `end`; 0 if there are none."""
        found = 0
        tree = self._tree
        size = self.largest()
        while size > found:
            room = end - tree.address_of(tree.at_least(size, 0))
            found = max(found, min(size, room))
            size = tree.size_of(tree.before(size, 0))
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
        before = self.starts.find(address)
        if before != 0:
            size += self.remove(before)
            address = before
        if self.sizes.find(address + size) != 0:
            size += self.remove(address + size)
        self.merged = size
        return address


class SegmentCache:
    """Free blocks of a simulated pool, and which segments are wholly free: a refusal looks at no other block.

    Args:
        free: the free blocks; this changes them.

    Attributes:
        free: the argument.
        segments: bytes of each segment, by its address.
        whole: the addresses of the segments that are wholly free.
    """

    def __init__(self, free: FreeBlocks) -> None:
        self.free = free
        self.segments: dict[int, int] = {}
        self.whole: set[int] = set()
        self._least = NO_SIZE  # bytes of the smallest segment so far: no smaller block can be a whole one

    def add_segment(self, address: int, size: int) -> None:
        """Know a new segment; its memory is not free yet."""
        self.segments[address] = size
        self._least = min(self._least, size)

    def put(self, address: int, size: int) -> int:
        """Add a free block, as one with the blocks that touch it; returns its address."""
        start = self.free.add_merged(address, size)
        merged = self.free.merged
        if merged >= self._least and self.segments.get(start) == merged:
            self.whole.add(start)
        return start

    def take(self, address: int) -> int:
        """Remove the free block at `address`; returns its size."""
        size = self.free.remove(address)
        if size >= self._least:
            self.whole.discard(address)
        return size

    def take_front(self, address: int, size: int) -> None:
        """Remove the first `size` bytes of the free block at `address`."""
        whole = self.take(address)
        if whole > size:
            self.free.add(address + size, whole - size)

    def release(self, driver: DriverMemory, address: int) -> int:
        """Return a segment that is wholly free; returns its size."""
        size = self.segments.pop(address)
        self.take(address)
        driver.release(address, size)
        return size

    def release_whole(self, driver: DriverMemory) -> None:
        """Return all segments that are wholly free, in the order of addresses."""
        for address in sorted(self.whole):
            self.release(driver, address)


class SimulatedPool:
    """An allocator without memory: it decides only which addresses a request gets.

    Args:
        driver: grants the segments.

    Attributes:
        driver: the argument.
        in_use: bytes of the blocks in use, after rounding.
        block_size: bytes of the block that the last call allocated or freed.
    """

    def __init__(self, driver: DriverMemory) -> None:
        self.driver = driver
        self.in_use = 0
        self.block_size = 0
        self._used = AddressTable()  # sizes of the blocks in use
        self._free_lists: list[FreeBlocks] = []

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block of at least `size` bytes (1 or more); 0 if the memory does not suffice."""
        raise NotImplementedError

    def free(self, address: int) -> None:
        """Free the block at `address`."""
        raise NotImplementedError

    def largest_free(self) -> int:
        """Bytes of the largest free block that has memory; 0 if there is none.

        Free blocks that touch are two if the pool keeps them so, for one request cannot get both.
        """
        found = 0
        for blocks in self._free_lists:
            largest = blocks.largest()
            found = max(found, largest)
        return found

    def new_free_blocks(self, recent_from: int = 4611686018427387904) -> FreeBlocks:  # NO_SIZE
        """A list of free blocks with memory; a subclass makes each of its own with this, or replaces `largest_free`."""
        blocks = FreeBlocks(recent_from)
        self._free_lists.append(blocks)
        return blocks

    def occupy(self, address: int, size: int) -> None:
        """Count a block as in use; a subclass calls this for each that it allocates."""
        self._used.put(address, size)
        self.in_use += size
        self.block_size = size

    def vacate(self, address: int) -> int:
        """Count the block at `address` as free; a subclass calls this for each; returns its size."""
        size = self._used.take(address)
        self.in_use -= size
        self.block_size = size
        return size


def serve_requests(
    pool: SimulatedPool, start: int, stop: int, stop_at_failure: bool, kind: Any, slot: Any, size: Any, stream: Any,
    live: Any, address_out: Any, size_out: Any, in_use_out: Any, reserved_out: Any, largest_free_out: Any,
) -> int:  # fmt: skip
    """Serve requests [start, stop); returns the index after the last one that was served.

    Args:
        pool: serves them.
        start: the first index.
        stop: the index after the last one.
        stop_at_failure: whether to end after the first refused one.
        kind: of `RequestStream`, u1[n].
        size: of `RequestStream`, i8[n].
        stream: of `RequestStream`, u2[n].
        slot: i8[n]; the row of the block in `live`.
        live: i8[m]; the address of each block in use, 0: none.
        address_out: i8[n]; receives the address of each block allocated or freed, 0: none.
        size_out: i8[n]; receives its size after rounding.
        in_use_out: i8[n]; receives the bytes in use after each request.
        reserved_out: i8[n]; receives the bytes of all segments after each request.
        largest_free_out: i8[n]; receives the bytes of the largest free block after each request.
    """
    for i in range(start, stop):
        address = 0
        if kind[i] == 0:  # ALLOCATE
            if size[i] > 0:
                address = pool.allocate(size[i], stream[i])
            live[slot[i]] = address
        elif kind[i] == 1:  # FREE
            address = int(live[slot[i]])
            live[slot[i]] = 0
            if address != 0:
                pool.free(address)
        address_out[i] = address
        size_out[i] = pool.block_size if address != 0 else 0
        in_use_out[i] = pool.in_use
        reserved_out[i] = pool.driver.reserved
        largest_free_out[i] = pool.largest_free()
        if stop_at_failure and address == 0 and kind[i] == 0 and size[i] > 0:
            return i + 1
    return stop
