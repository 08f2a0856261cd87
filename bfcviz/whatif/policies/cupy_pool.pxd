cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation cimport FreeBlocks
from bfcviz.whatif.simulation cimport SegmentCache
from bfcviz.whatif.simulation cimport SimulatedPool


cdef class CupyPool(SimulatedPool):
    cdef dict _arenas
    cdef dict _owners
    cdef i64 _ties

    @cython.locals(rounded=i64, address=i64, arena=SegmentCache, free=FreeBlocks)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    @cython.locals(arena=SegmentCache)
    cpdef object free(self, i64 address)
    @cython.locals(address=i64)
    cdef i64 _grant(self, SegmentCache arena, i64 rounded)
    @cython.locals(arena=SegmentCache)
    cdef object _free_all_blocks(self)
