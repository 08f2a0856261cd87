cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation.free_blocks cimport FreeBlocks
from bfcviz.whatif.simulation.simulated_pool cimport SimulatedPool


cdef class StreamOrderedPool(SimulatedPool):
    cdef i64 _keep
    cdef bint _shared
    cdef i64 _segment
    cdef dict _segments
    cdef dict _free
    cdef dict _owners

    @cython.locals(rounded=i64, address=i64, blocks=FreeBlocks)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    @cython.locals(size=i64, start=i64, whole=i64, blocks=FreeBlocks)
    cpdef object free(self, i64 address)
    @cython.locals(size=i64, address=i64)
    cdef i64 _grow(self, FreeBlocks blocks, i64 rounded)
    @cython.locals(blocks=FreeBlocks, address=i64, size=i64)
    cdef object _trim(self)
