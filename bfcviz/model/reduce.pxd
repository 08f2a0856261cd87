cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from bfcviz.model cimport raw

@cython.final
cdef class ChunkTable:
    cdef readonly int pool
    cdef readonly int pools
    cdef readonly uint64_t step
    cdef readonly uint64_t peaks_step
    cdef readonly uint64_t bytes_in_use
    cdef readonly uint64_t requested_bytes_in_use
    cdef readonly uint64_t pool_bytes
    cdef readonly uint64_t free_bytes
    cdef readonly uint64_t num_allocs
    cdef readonly uint64_t ooms
    cdef readonly uint64_t chunks_in_use
    cdef readonly uint64_t chunks_free
    cdef readonly uint64_t live_regions
    cdef readonly uint64_t peak_bytes_in_use
    cdef readonly uint64_t peak_pool_bytes
    cdef readonly uint64_t largest_alloc_size

    # Stores (NumPy arrays) and the pointers into them; a pointer is valid as long as its store is not replaced.
    cdef object _chunk_store
    cdef object _region_store
    cdef object _order_store
    cdef object _tree_store
    cdef object _series_store
    cdef raw.Chunk* _chunks
    cdef raw.Region* _regions
    cdef uint64_t* _order
    cdef uint64_t* _tree
    cdef raw.Extremes* _series
    cdef uint64_t _capacity
    cdef uint64_t _slots
    cdef uint64_t _leaves
    cdef uint64_t _first_leaf

    cdef bint _measuring
    cdef double _ratio_low
    cdef double _ratio_high
    cdef uint64_t _ratio_low_step
    cdef uint64_t _ratio_high_step
    cdef int64_t _ratio_low_time
    cdef int64_t _ratio_high_time

    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, code=int)
    cpdef apply(self, block)
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, code=int)
    cpdef undo(self, block)
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, code=int)
    cpdef measure(self, block)

    @cython.locals(code=int)
    cdef int _forward(self, raw.Event* e) except -1
    @cython.locals(code=int)
    cdef int _back(self, raw.Event* e) except -1
    cdef int _check(self, raw.Event* e, uint64_t seq) noexcept
    @cython.locals(code=int, kind=int)
    cdef int _do(self, raw.Event* e) except -1
    @cython.locals(code=int, kind=int)
    cdef int _undo(self, raw.Event* e) except -1
    cdef int _look(self, uint64_t handle, uint64_t region, int state) noexcept

    @cython.locals(code=int)
    cdef int _allocate(self, raw.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _undo_allocate(self, raw.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _free(self, raw.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _undo_free(self, raw.Event* e) noexcept
    @cython.locals(high=uint64_t)
    cdef uint64_t _born(self, raw.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _owned(self, raw.Event* e, uint64_t born) noexcept
    cdef void _hand_out(self, raw.Event* e, uint64_t born) noexcept
    cdef void _take_back(self, raw.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _cut(self, raw.Event* e) except -1
    @cython.locals(code=int)
    cdef int _join(self, raw.Event* e) noexcept

    @cython.locals(code=int, grew=int)
    cdef int _extend(self, raw.Event* e) except -1
    @cython.locals(code=int, at=uint64_t, i=uint64_t)
    cdef int _grant(self, raw.Event* e) except -1
    @cython.locals(code=int, at=uint64_t)
    cdef int _grow_region(self, raw.Event* e) except -1
    cdef int _grantable(self, raw.Event* e) noexcept
    @cython.locals(code=int)
    cdef int _undo_extend(self, raw.Event* e) noexcept
    @cython.locals(code=int, i=uint64_t)
    cdef int _release(self, raw.Event* e) noexcept

    cdef int _vacant(self, uint64_t handle, uint64_t seq) noexcept
    cdef void _add_grant(self, raw.Event* e) except *
    cdef void _drop_grant(self, raw.Event* e) noexcept
    cdef void _add_chunk(self, uint64_t handle, uint64_t address, uint64_t size, uint64_t region) noexcept
    cdef void _drop_chunk(self, uint64_t handle) noexcept
    @cython.locals(capacity=uint64_t)
    cdef void _reserve_chunk(self, uint64_t handle) except *
    @cython.locals(slots=uint64_t)
    cdef void _reserve_slot(self, uint64_t slot) except *

    cdef uint64_t _start(self, uint64_t at) noexcept
    cdef uint64_t _end(self, uint64_t at) noexcept
    @cython.locals(low=uint64_t, high=uint64_t, middle=uint64_t)
    cdef uint64_t _place(self, uint64_t address) noexcept

    @cython.locals(node=uint64_t, old=uint64_t)
    cdef void _set_free_size(self, uint64_t handle, uint64_t size) noexcept
    @cython.locals(first=uint64_t, best=uint64_t, i=uint64_t)
    cdef uint64_t _largest_below(self, uint64_t node) noexcept
    @cython.locals(handle=uint64_t)
    cdef void _grow_tree(self) except *

    # Compiled, `/` of two integers would drop the fraction.
    @cython.locals(largest=uint64_t, whole=double, part=double, ratio=double, fresh=int)
    cdef void _note(self, int64_t time) noexcept
    cdef void _fold(self, int series, uint64_t value, int64_t time, int fresh) noexcept
