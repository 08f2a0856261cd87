cimport cython

from bfcviz cimport native
from bfcviz.native cimport i64
from bfcviz.whatif.simulation cimport FreeBlocks
from bfcviz.whatif.simulation cimport SimulatedPool



cdef class FirstFitPool(SimulatedPool):
    cdef i64 _granule
    cdef FreeBlocks _free
    cdef i64 _end

    @cython.locals(rounded=i64, address=i64)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    cpdef object free(self, i64 address)
    @cython.locals(last=i64, missing=i64, more=i64, room=i64)
    cdef i64 _grow(self, i64 rounded)
