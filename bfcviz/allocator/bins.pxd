cimport cython

from bfcviz cimport native
from bfcviz.allocator cimport structs
from bfcviz.native cimport u32, u64


@cython.final
cdef class Bins:
    cdef u32 *links         # TREES roots, then two children a handle
    cdef structs.Key *keys   # size and address of each handle in a tree
    cdef u64 room
    cdef u64 found          # the link to the node that at_least found, until a change; 0 = unknown
    cdef u32 *steps         # one bit mask per row: which of its 32 trees are not empty
    cdef u64 rows           # which rows are not empty

    @cython.locals(links="u32 *", keys="structs.Key *")
    cdef bint reserve(self, u64 room) noexcept nogil
    @cython.locals(i=u64)
    cdef void forget(self) noexcept nogil
    @cython.locals(top=int)
    cdef u32 tree_of(self, u64 size) noexcept nogil
    @cython.locals(k="structs.Key *")
    cdef bint before(self, u32 h, u64 size, u64 address) noexcept nogil
    @cython.locals(k="structs.Key *", tree=u32, ref=u64, left=u64, right=u64, node=u32, priority=u32)
    cdef void insert(self, u32 h, u64 size, u64 address) noexcept nogil
    @cython.locals(size=u64, address=u64, tree=u32, ref=u64, node=u32, left=u32, right=u32)
    cdef void remove(self, u32 h) noexcept nogil
    @cython.locals(tree=u32, node=u32, best=u32, ref=u64)
    cdef u32 at_least(self, u64 size, u64 address) noexcept nogil
    @cython.locals(row=u64, later=u64)
    cdef u32 next_tree(self, u32 tree) noexcept nogil
    @cython.locals(row=u64, node=u32)
    cdef u32 largest(self) noexcept nogil
