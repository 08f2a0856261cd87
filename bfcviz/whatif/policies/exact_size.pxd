cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation cimport SimulatedPool


cdef class ExactSizePool(SimulatedPool):
    cdef i64 _unit
    cdef dict _free
    cdef dict _streams
    cdef list _sizes
    cdef i64 _largest
    cdef bint _is_largest_known

    @cython.locals(rounded=i64, address=i64, key=tuple, same=list)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    @cython.locals(size=i64, key=tuple, same=list)
    cpdef object free(self, i64 address)
    cdef i64 largest_free(self) except -1
    @cython.locals(key=tuple, same=list, address=i64)
    cdef object _release_all(self)
