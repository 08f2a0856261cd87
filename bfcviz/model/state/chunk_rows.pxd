cimport cython
from libc.stdint cimport uint64_t

from bfcviz.model.state cimport array_access
from bfcviz.model.state.max_tree cimport MaxTree

@cython.final
cdef class ChunkRows:
    cdef uint64_t capacity
    cdef uint64_t free
    cdef MaxTree free_sizes
    # The store is a NumPy array; the pointer into it is valid as long as the store is not replaced.
    cdef object _store
    cdef array_access.Chunk* chunks

    cdef int look(self, uint64_t handle, uint64_t region, int state) noexcept
    cdef int vacant(self, uint64_t handle, uint64_t seq) noexcept
    @cython.locals(capacity=uint64_t)
    cdef void reserve(self, uint64_t handle) except *
    cdef void add(self, uint64_t handle, uint64_t address, uint64_t size, uint64_t region) noexcept
    cdef void drop(self, uint64_t handle) noexcept
