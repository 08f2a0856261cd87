cimport cython

from bfcviz.allocator.sub_allocators.base cimport SubAllocator
from bfcviz.allocator.sub_allocators cimport pages
from bfcviz.native cimport u64


cdef class HostSubAllocator(SubAllocator):
    cdef readonly u64 capacity
    cdef readonly u64 used
    cdef public u64 keep_available
    cdef u64 page

    @cython.locals(need=u64, address=u64)
    cdef u64 grant(self, u64 alignment, u64 num_bytes) noexcept nogil
    @cython.locals(need=u64)
    cdef void take_back(self, u64 address, u64 num_bytes) noexcept nogil
    cdef void discard(self, u64 address, u64 num_bytes) noexcept nogil
