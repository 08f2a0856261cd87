cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation.free_blocks cimport FreeBlocks
from bfcviz.whatif.simulation.simulated_pool cimport SimulatedPool


cdef class CupyPool(SimulatedPool):
    cdef dict _arenas
    cdef dict _segments
    cdef dict _owners

    @cython.locals(rounded=i64, address=i64, arena=FreeBlocks)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    @cython.locals(arena=FreeBlocks)
    cpdef object free(self, i64 address)
    @cython.locals(address=i64)
    cdef i64 _grant(self, i64 rounded)
    @cython.locals(arena=FreeBlocks, address=i64, size=i64)
    cdef object _free_all_blocks(self)
