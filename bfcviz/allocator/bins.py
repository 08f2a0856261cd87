"""Bins: find a free chunk by exact best fit: the smallest size that fits, then the lowest address.

TensorFlow keeps a sorted set for each of 21 bins and walks them upwards; as the bins' sizes ascend, that is one
order by (size, address) over all free chunks. Here each power of two is a *row* of 32 size steps, each step is a
small treap, and bit masks find the next non-empty step:

::

    rows        ...1..1.1        a bit a row: size 256, 512, 1 KiB, ...
    steps[row]  ..1.....1...     a bit a step: 32 in each row
    links       root of each tree | left and right child of each handle

Row r holds the chunks of TensorFlow's bin r. TensorFlow's last bin holds all chunks from 256 MiB; here rows continue.
"""

from bfcviz import native
from bfcviz.allocator import structs


class Bins:
    """Free chunks by handle; the size and address of a handle must not change while it is in the bins."""

    def __init__(self) -> None:
        self.links = structs.no_u32()
        self.keys = structs.no_keys()
        self.room = 0
        self.rows = 0
        self.steps = structs.grow_u32(structs.no_u32(), native.ROWS)
        if structs.is_null(self.steps) or not self.reserve(256):
            raise MemoryError
        self.forget()

    def __dealloc__(self) -> None:
        structs.release(self.links)
        structs.release(self.keys)
        structs.release(self.steps)

    def reserve(self, room: int) -> bool:
        """Allocate memory for handles below `room`; False where there is none."""
        if room <= self.room:
            return True
        links = structs.grow_u32(self.links, native.TREES + 2 * room)
        if structs.is_null(links):
            return False
        self.links = links
        keys = structs.grow_keys(self.keys, room)
        if structs.is_null(keys):
            return False
        self.keys = keys
        self.room = room
        return True

    def forget(self) -> None:
        """Remove all chunks."""
        self.rows = 0
        self.found = 0
        for i in range(native.ROWS):
            self.steps[i] = 0
        for i in range(native.TREES):
            self.links[i] = native.NONE

    def tree_of(self, size: int) -> int:
        """The tree for a size: 32 trees per power of two."""
        if size < native.MIN_CHUNK:
            return 0  # only the end of a region whose size is no multiple of 256
        top = native.high_bit(size)
        return (top - 8) * 32 + ((size >> (top - 5)) & 31)

    def before(self, h: int, size: int, address: int) -> bool:
        """Whether h comes before (size, address)."""
        k: structs.Key = structs.key_at(self.keys, h)
        return k.size < size or (k.size == size and k.address < address)

    def insert(self, h: int, size: int, address: int) -> None:
        """Add a free chunk: descend to the place of its priority, then split the subtree there around it."""
        self.found = 0
        k = structs.key_at(self.keys, h)
        k.size = size
        k.address = address
        tree = self.tree_of(size)
        priority = native.scramble(h)
        ref = tree
        node = self.links[ref]
        while node != native.NONE and native.scramble(node) >= priority:
            ref = native.TREES + 2 * node + self.before(node, size, address)
            node = self.links[ref]
        self.links[ref] = h
        left = native.TREES + 2 * h
        right = left + 1
        while node != native.NONE:
            if self.before(node, size, address):
                self.links[left] = node
                left = native.TREES + 2 * node + 1
                node = self.links[left]
            else:
                self.links[right] = node
                right = native.TREES + 2 * node
                node = self.links[right]
        self.links[left] = native.NONE
        self.links[right] = native.NONE
        self.steps[tree >> 5] |= native.bit_32(tree & 31)
        self.rows |= native.bit_64(tree >> 5)

    def remove(self, h: int) -> None:
        """Remove a chunk; its two subtrees are joined in its place."""
        size = self.keys[h].size
        address = self.keys[h].address
        tree = self.tree_of(size)
        ref = self.found  # 0, unknown, is the root of tree 0
        self.found = 0
        node = self.links[ref]
        if node != h:
            ref = tree
            node = self.links[ref]
        while node != h:
            ref = native.TREES + 2 * node + self.before(node, size, address)
            node = self.links[ref]
        left = self.links[native.TREES + 2 * h]
        right = self.links[native.TREES + 2 * h + 1]
        while left != native.NONE and right != native.NONE:
            if native.scramble(left) > native.scramble(right):
                self.links[ref] = left
                ref = native.TREES + 2 * left + 1
                left = self.links[ref]
            else:
                self.links[ref] = right
                ref = native.TREES + 2 * right
                right = self.links[ref]
        self.links[ref] = right if left == native.NONE else left
        if self.links[tree] == native.NONE:
            self.steps[tree >> 5] &= ~native.bit_32(tree & 31)
            if self.steps[tree >> 5] == 0:
                self.rows &= ~native.bit_64(tree >> 5)

    def at_least(self, size: int, address: int) -> int:
        """The first chunk not before (size, address), or NONE."""
        tree = self.tree_of(size)
        best = native.NONE
        ref = tree
        node = self.links[ref]
        while node != native.NONE:
            if self.before(node, size, address):
                ref = native.TREES + 2 * node + 1
            else:
                best = node
                self.found = ref
                ref = native.TREES + 2 * node
            node = self.links[ref]
        if best != native.NONE:
            return best
        tree = self.next_tree(tree)
        if tree == native.NONE:
            return native.NONE
        ref = tree
        node = self.links[ref]
        while self.links[native.TREES + 2 * node] != native.NONE:
            ref = native.TREES + 2 * node
            node = self.links[ref]
        self.found = ref
        return node

    def next_tree(self, tree: int) -> int:
        """The first non-empty tree after this one, or NONE."""
        row = tree >> 5
        later = self.steps[row] & native.above(tree & 31)
        if later == 0:
            later = self.rows & native.above(row)
            if later == 0:
                return native.NONE
            row = native.low_bit(later)
            later = self.steps[row]
        return row * 32 + native.low_bit(later)

    def largest(self) -> int:
        """The last chunk in (size, address) order, or NONE."""
        if self.rows == 0:
            return native.NONE
        row = native.high_bit(self.rows)
        node = self.links[row * 32 + native.high_bit(self.steps[row])]
        while self.links[native.TREES + 2 * node + 1] != native.NONE:
            node = self.links[native.TREES + 2 * node + 1]
        return node
