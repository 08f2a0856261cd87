cimport cython

from bfcviz cimport native
from bfcviz.native cimport u64


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
