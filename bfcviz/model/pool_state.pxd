cimport cython
from libc.stdint cimport int64_t, uint64_t

from bfcviz.model cimport array_access
from bfcviz.model.extremes cimport Extremes
from bfcviz.model.pool_rows cimport ChunkRows, LargestFreeTree, RegionRows


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
