cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation cimport SegmentCache
from bfcviz.whatif.simulation cimport SimulatedPool


cdef class StreamOrderedPool(SimulatedPool):
    cdef i64 _keep
    cdef bint _shared
    cdef i64 _segment
    cdef dict _caches
    cdef dict _owners

    @cython.locals(rounded=i64, address=i64, cache=SegmentCache)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    @cython.locals(start=i64, cache=SegmentCache)
    cpdef object free(self, i64 address)
    @cython.locals(size=i64, address=i64)
    cdef i64 _grow(self, SegmentCache cache, i64 rounded)
    @cython.locals(cache=SegmentCache)
    cdef object _trim(self)
