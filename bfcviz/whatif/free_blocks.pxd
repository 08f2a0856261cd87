cimport cython
from bfcviz cimport native
from bfcviz.native cimport i64

cdef i64[::1] numbers_of(i64 count)
@cython.locals(found=i64[::1], at=i64)
cdef i64[::1] longer(i64[::1] numbers)

@cython.final
cdef class AddressTable:
    cdef i64 _used
    cdef int _shift
    cdef i64[::1] _keys
    cdef i64[::1] _values

    cpdef i64 find(self, i64 address) noexcept
    @cython.locals(at=i64)
    cpdef int put(self, i64 address, i64 value) except -1
    @cython.locals(at=i64, value=i64, mask=i64, after=i64, key=i64)
    cpdef i64 take(self, i64 address) noexcept
    @cython.locals(key=i64)
    cpdef list addresses(self)
    cdef i64 _home(self, i64 address) noexcept
    @cython.locals(mask=i64, at=i64)
    cdef i64 _place(self, i64 address) noexcept
    @cython.locals(keys=i64[::1], values=i64[::1], at=i64, place=i64)
    cdef int _grow(self) except -1

@cython.final
cdef class SizeTree:
    cdef i64 _root
    cdef i64 _spare
    cdef i64 _nodes
    cdef i64[::1] _size
    cdef i64[::1] _address
    cdef i64[::1] _left
    cdef i64[::1] _right
    cdef i64[::1] _lowest
    cdef i64 _low
    cdef i64 _high

    @cython.locals(node=i64)
    cdef int add(self, i64 address, i64 size) except -1
    cdef void remove(self, i64 address, i64 size) noexcept
    @cython.locals(node=i64, found=i64)
    cdef i64 at_least(self, i64 size, i64 address) noexcept
    @cython.locals(node=i64, found=i64)
    cdef i64 before(self, i64 size, i64 address) noexcept
    @cython.locals(node=i64)
    cdef i64 last(self) noexcept
    @cython.locals(node=i64, found=i64, low=i64)
    cdef i64 lowest_from(self, i64 size) noexcept
    cdef i64 size_of(self, i64 node) noexcept
    cdef i64 address_of(self, i64 node) noexcept
    @cython.locals(whole=i64)
    cdef bint _is_before(self, i64 node, i64 size, i64 address) noexcept
    cdef i64 _priority(self, i64 node) noexcept
    @cython.locals(below=i64)
    cdef void _update(self, i64 node) noexcept
    cdef i64 _lowest_of(self, i64 one, i64 other) noexcept
    cdef i64 _added(self, i64 tree, i64 node) noexcept
    cdef void _split(self, i64 tree, i64 size, i64 address) noexcept
    @cython.locals(found=i64)
    cdef i64 _removed(self, i64 tree, i64 size, i64 address) noexcept
    cdef i64 _joined(self, i64 low, i64 high) noexcept
    cdef int _grow(self) except -1

@cython.final
cdef class FreeBlocks:
    cdef readonly AddressTable sizes
    cdef readonly AddressTable starts
    cdef public i64 total
    cdef public i64 merged
    cdef SizeTree _tree
    cdef i64 _recent_from
    cdef set _recent

    cpdef object add(self, i64 address, i64 size)
    @cython.locals(size=i64)
    cpdef i64 remove(self, i64 address) except -1
    cpdef i64 best_fit(self, i64 size) noexcept
    @cython.locals(tree=SizeTree, node=i64, whole=i64, address=i64)
    cpdef i64 aligned_fit(self, i64 size, i64 alignment, bint descending)
    cpdef i64 first_fit(self, i64 size) noexcept
    @cython.locals(tree=SizeTree, node=i64, whole=i64, factor=i64, address=i64, found=i64, least=i64, rank=i64)
    cpdef i64 shuffled_fit(self, i64 size, i64 seed)
    cpdef i64 next_larger(self, i64 address) noexcept
    cpdef i64 largest(self) noexcept
    @cython.locals(found=i64, tree=SizeTree, size=i64, room=i64)
    cpdef i64 largest_before(self, i64 end) noexcept
    cpdef list take_recent(self)
    @cython.locals(whole=i64)
    cpdef object take_front(self, i64 address, i64 size)
    cpdef i64 add_merged(self, i64 address, i64 size) except -1
    @cython.locals(before=i64)
    cpdef i64 merge_around(self, i64 address, i64 size) except -1
