cimport cython

from bfcviz cimport native
from bfcviz.allocator cimport structs
from bfcviz.native cimport u16, u32, u64


@cython.final
cdef class RegionTable:
    cdef structs.Region *regions
    cdef u64 room
    cdef readonly u64 count
    cdef u32 *spare         # slots of released regions, a stack
    cdef u64 spares
    cdef u64 slots          # slots ever used

    @cython.locals(regions="structs.Region *", spare="u32 *")
    cdef bint reserve(self) noexcept nogil
    @cython.locals(i=u64, r="structs.Region *")
    cdef u64 insert(self, u64 address, u64 size, u32 first) noexcept nogil
    cdef void remove(self, u64 index) noexcept nogil
    @cython.locals(low=u64, high=u64, middle=u64)
    cdef u64 count_below(self, u64 address) noexcept nogil
    @cython.locals(i=u64, r="structs.Region *")
    cdef u64 containing(self, u64 address) noexcept nogil
    @cython.locals(i=u64)
    cdef bint overlaps(self, u64 address, u64 size) noexcept nogil
