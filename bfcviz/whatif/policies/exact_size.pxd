cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation cimport AddressTable
from bfcviz.whatif.simulation cimport SimulatedPool


cdef class ExactSizePool(SimulatedPool):
    cdef i64 _unit
    cdef AddressTable _last_freed
    cdef AddressTable _freed_before
    cdef AddressTable _heaped
    cdef AddressTable _streams
    cdef list _keys

    @cython.locals(rounded=i64, address=i64, key=i64)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    @cython.locals(key=i64, before=i64)
    cpdef object free(self, i64 address)
    @cython.locals(key=i64)
    cdef i64 largest_free(self) except -1
    @cython.locals(before=i64)
    cdef object _take(self, i64 key, i64 address)
    @cython.locals(key=i64, address=i64)
    cdef object _release_all(self)
