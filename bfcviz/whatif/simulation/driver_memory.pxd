cimport cython

from bfcviz cimport native
from bfcviz.native cimport i64



@cython.final
cdef class DriverMemory:
    cdef readonly i64 limit
    cdef readonly i64 reserved
    cdef readonly i64 grants
    cdef readonly i64 refusals
    cdef readonly i64 releases
    cdef readonly list ranges
    cdef public list calls
    cdef i64 _top

    cpdef i64 reserve(self, i64 num_bytes)
    cpdef i64 grant(self, i64 num_bytes)
    cpdef bint map(self, i64 address, i64 num_bytes)
    cpdef object release(self, i64 address, i64 num_bytes)
    cdef bint _fits(self, i64 num_bytes)
    cdef object _granted(self, i64 address, i64 num_bytes, bint join)
