cimport cython

from bfcviz.allocator.sub_allocators.base cimport SubAllocator
from bfcviz cimport native
from bfcviz.native cimport i64, u64


cdef class SimulatedSubAllocator(SubAllocator):
    cdef readonly str mode
    cdef readonly u64 capacity
    cdef readonly u64 granule
    cdef readonly u64 gap
    cdef readonly u64 used
    cdef readonly object calls
    cdef bint descending
    cdef bint journal
    cdef u64 top            # ascending: the next address; descending: the lowest granted address

    @cython.locals(need=u64, address=u64)
    cdef u64 grant(self, u64 alignment, u64 num_bytes) noexcept nogil
    cdef void take_back(self, u64 address, u64 num_bytes) noexcept nogil
    cdef u64 refuse(self, u64 alignment, u64 num_bytes) noexcept nogil
    @cython.locals(address=u64, lower=u64)
    cdef u64 place(self, u64 alignment, u64 need) noexcept nogil
    cdef void note(self, int kind, u64 alignment, u64 requested, u64 received, u64 address) noexcept with gil
