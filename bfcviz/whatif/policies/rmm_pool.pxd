cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation cimport FreeBlocks
from bfcviz.whatif.simulation cimport SimulatedPool


cdef class RmmPool(SimulatedPool):
    cdef i64 _initial
    cdef FreeBlocks _free

    @cython.locals(rounded=i64, address=i64, initial=i64)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    cpdef object free(self, i64 address)
    @cython.locals(size=i64)
    cdef bint _grow(self, i64 rounded) except -1
    @cython.locals(address=i64)
    cdef bint _extend(self, i64 size) except -1
