cimport cython

from bfcviz cimport native
from bfcviz.allocator cimport heap_memory
from bfcviz.native cimport i64, u64


cdef class SubAllocator:
    cdef readonly bint supports_coalescing
    cdef bint discards
    cdef public u64 operation   # number of the replayed operation that calls it, for its journal
    cdef u64 received           # bytes of the last grant
    cdef public object error    # exception of a sub-allocator written in Python
    cdef object refusal         # the same, if it was raised instead of a grant

    cdef u64 grant(self, u64 alignment, u64 num_bytes) noexcept nogil
    cdef void take_back(self, u64 address, u64 num_bytes) noexcept nogil
    cdef void discard(self, u64 address, u64 num_bytes) noexcept nogil


cdef class PythonSubAllocator(SubAllocator):
    @cython.locals(where=u64)
    cdef u64 call_allocate(self, u64 alignment, u64 num_bytes) noexcept with gil
    cdef void call_free(self, u64 address, u64 num_bytes) noexcept with gil

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
