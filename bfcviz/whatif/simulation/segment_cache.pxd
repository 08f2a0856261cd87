cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation.driver_memory cimport DriverMemory
from bfcviz.whatif.simulation.free_blocks cimport FreeBlocks


@cython.final
cdef class SegmentCache:
    cdef public FreeBlocks free
    cdef public dict segments
    cdef public set whole
    cdef i64 _least

    cpdef object add_segment(self, i64 address, i64 size)
    @cython.locals(start=i64, merged=i64)
    cpdef i64 put(self, i64 address, i64 size)
    @cython.locals(size=i64)
    cpdef i64 take(self, i64 address)
    @cython.locals(whole=i64)
    cpdef object take_front(self, i64 address, i64 size)
    @cython.locals(size=i64)
    cpdef i64 release(self, DriverMemory driver, i64 address)
    @cython.locals(address=i64)
    cpdef object release_whole(self, DriverMemory driver)
