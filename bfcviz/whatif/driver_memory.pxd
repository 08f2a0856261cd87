cimport cython
from bfcviz cimport native
from bfcviz.native cimport i64
from bfcviz.whatif.free_blocks cimport FreeBlocks

@cython.final
cdef class DriverMemory:
    cdef public i64 limit
    cdef readonly i64 reserved
    cdef readonly i64 grants
    cdef readonly i64 refusals
    cdef readonly i64 releases
    cdef readonly list ranges
    cdef public list calls
    cdef public bint keeps_calls
    cdef public int order
    cdef public bint reuses
    cdef i64 _top
    cdef i64 _bottom
    cdef FreeBlocks _holes

    @cython.locals(whole=i64, address=i64, place=i64)
    cpdef i64 reserve(self, i64 num_bytes)
    cpdef i64 grant(self, i64 num_bytes)
    cpdef bint map(self, i64 address, i64 num_bytes)
    @cython.locals(low=i64)
    cpdef object release(self, i64 address, i64 num_bytes)
    @cython.locals(whole=i64, low=i64)
    cdef i64 _lowest_hole(self, i64 num_bytes)
    cdef i64 _mirrored(self, i64 address, i64 num_bytes)
    cdef bint _fits(self, i64 num_bytes)
    cdef object _granted(self, i64 address, i64 num_bytes, bint join)
