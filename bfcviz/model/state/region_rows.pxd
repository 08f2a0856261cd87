cimport cython
from libc.stdint cimport uint64_t

from bfcviz.model.state cimport array_access

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
