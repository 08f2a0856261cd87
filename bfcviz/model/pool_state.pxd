cimport cython
from libc.stdint cimport int64_t, uint64_t

from bfcviz.model cimport array_access
from bfcviz.model.extremes cimport Extremes


@cython.final
cdef class LargestFreeTree:
    cdef uint64_t _places
    cdef uint64_t _first
    cdef object _store
    cdef uint64_t* _nodes
    cdef uint64_t _limit
    cdef uint64_t below

    cdef uint64_t largest(self) noexcept
    @cython.locals(place=uint64_t, number=uint64_t)
    cdef void watch(self, uint64_t limit) noexcept
    cdef void reserve(self, uint64_t places) except *
    @cython.locals(node=uint64_t, old=uint64_t)
    cdef void set(self, uint64_t place, uint64_t number) noexcept
    @cython.locals(first=uint64_t, best=uint64_t, i=uint64_t)
    cdef uint64_t _largest_below(self, uint64_t node) noexcept
    @cython.locals(before=uint64_t, first=uint64_t, nodes=uint64_t, place=uint64_t)
    cdef void _grow(self) except *

@cython.final
cdef class ChunkRows:
    cdef uint64_t capacity
    cdef uint64_t free
    cdef LargestFreeTree free_sizes
    # The store is a NumPy array; the pointer into it is valid as long as the store is not replaced.
    cdef object _store
    cdef array_access.Chunk* chunks

    cdef int look(self, uint64_t handle, uint64_t region, int state) noexcept
    cdef int vacant(self, uint64_t handle, uint64_t seq) noexcept
    @cython.locals(capacity=uint64_t)
    cdef void reserve(self, uint64_t handle) except *
    cdef void add(self, uint64_t handle, uint64_t address, uint64_t size, uint64_t region) noexcept
    cdef void drop(self, uint64_t handle) noexcept

@cython.final
cdef class RegionRows:
    cdef readonly uint64_t count
    cdef uint64_t _slots
    # Stores (NumPy arrays) and the pointers into them; a pointer is valid as long as its store is not replaced.
    cdef object _region_store
    cdef object _order_store
    cdef array_access.Region* _regions
    cdef uint64_t* _order

    @cython.locals(at=uint64_t, i=uint64_t)
    cdef int add(self, uint64_t slot, uint64_t address, uint64_t size) except -1
    @cython.locals(at=uint64_t)
    cdef int lengthen(self, uint64_t slot, uint64_t address, uint64_t size) noexcept
    cdef int shorten(self, uint64_t slot, uint64_t address, uint64_t size) noexcept
    @cython.locals(i=uint64_t)
    cdef int remove(self, uint64_t slot, uint64_t address, uint64_t size) noexcept

    @cython.locals(slots=uint64_t)
    cdef void _reserve(self, uint64_t slot) except *
    cdef uint64_t _start(self, uint64_t at) noexcept
    cdef uint64_t _end(self, uint64_t at) noexcept
    @cython.locals(low=uint64_t, high=uint64_t, middle=uint64_t)
    cdef uint64_t _place(self, uint64_t address) noexcept

@cython.final
cdef class PoolState:
    cdef readonly int pool
    cdef public int pools
    cdef readonly uint64_t wanted
    cdef readonly uint64_t step
    cdef readonly uint64_t peaks_step
    cdef readonly uint64_t bytes_in_use
    cdef readonly uint64_t requested_bytes_in_use
    cdef readonly uint64_t pool_bytes
    cdef readonly uint64_t free_bytes
    cdef readonly uint64_t num_allocs
    cdef readonly uint64_t ooms
    cdef readonly uint64_t chunks_in_use
    cdef readonly uint64_t peak_bytes_in_use
    cdef readonly uint64_t peak_pool_bytes
    cdef readonly uint64_t largest_alloc_size
    cdef ChunkRows _chunks
    cdef RegionRows _regions
    cdef Extremes _extremes

    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, code=int)
    cdef void _run(self, block, bint noting) except *
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, code=int)
    cpdef undo(self, block)

    @cython.locals(code=int)
    cdef int _forward(self, array_access.Event* e) except -1
    @cython.locals(code=int)
    cdef int _back(self, array_access.Event* e) except -1
    cdef int _check(self, array_access.Event* e, uint64_t seq) noexcept
    @cython.locals(code=int, kind=int)
    cdef int _do(self, array_access.Event* e) except -1
    @cython.locals(code=int, kind=int)
    cdef int _undo(self, array_access.Event* e) except -1

    @cython.locals(code=int)
    cdef int _allocate(self, array_access.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _undo_allocate(self, array_access.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _free(self, array_access.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _undo_free(self, array_access.Event* e) noexcept
    @cython.locals(high=uint64_t, born=uint64_t)
    cdef uint64_t _born(self, array_access.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _matches_owner(self, array_access.Event* e, uint64_t born) noexcept
    cdef void _mark_in_use(self, array_access.Event* e, uint64_t born) noexcept
    cdef void _mark_free(self, array_access.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _split_off(self, array_access.Event* e) except -1
    @cython.locals(code=int)
    cdef int _append(self, array_access.Event* e) noexcept

    @cython.locals(code=int)
    cdef int _add_bytes(self, array_access.Event* e) except -1
    @cython.locals(code=int)
    cdef int _remove_bytes(self, array_access.Event* e) noexcept
    cdef int _addable(self, array_access.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _free_here(self, array_access.Event* e) noexcept

    @cython.locals(free_sizes=LargestFreeTree)
    cdef void _note(self, int64_t time) noexcept
