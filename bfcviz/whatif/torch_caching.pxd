cimport cython
from bfcviz cimport native
from bfcviz.native cimport i64
from bfcviz.whatif.driver_memory cimport DriverMemory
from bfcviz.whatif.free_blocks cimport FreeBlocks
from bfcviz.whatif.simulated_pool cimport SegmentCache
from bfcviz.whatif.simulated_pool cimport SimulatedPool

@cython.final
cdef class ExpandableSegments:
    cdef DriverMemory _driver
    cdef FreeBlocks _free
    cdef i64 _granule
    cdef i64 _segment_size
    cdef list _segments
    cdef FreeBlocks _unmapped

    @cython.locals(larger=i64, size=i64)
    cpdef i64 least_growing(self, i64 address)
    @cython.locals(address=i64, there=i64, end=i64, room=i64)
    cpdef i64 grow(self, i64 size)
    @cython.locals(address=i64, size=i64, base=i64, low=i64, high=i64)
    cpdef object unmap_free(self)
    @cython.locals(size=i64)
    cdef i64 _could_become(self, i64 address)
    @cython.locals(place=i64, start=i64, end=i64, more=i64)
    cdef i64 _lowest_place(self, i64 size)
    @cython.locals(room=i64, start=i64, whole=i64)
    cdef i64 _map(self, i64 address, i64 size)
    @cython.locals(start=i64, whole=i64)
    cdef object _unmap(self, i64 address, i64 size, i64 low, i64 high)
    @cython.locals(address=i64)
    cdef i64 _reserve(self)

@cython.final
cdef class TorchCache:
    cdef public SegmentCache blocks
    cdef public FreeBlocks free
    cdef public ExpandableSegments expandable
    cdef public dict used_at


cdef class TorchCachingPool(SimulatedPool):
    cdef bint _expandable
    cdef i64 _max_split
    cdef i64 _allowed
    cdef i64 _non_split_rounding
    cdef i64 _large_segment
    cdef const i64[::1] _steps
    cdef i64 _collect_above
    cdef i64 _searches
    cdef dict _caches
    cdef dict _owners

    @cython.locals(rounded=i64, address=i64, cache=TorchCache)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    @cython.locals(start=i64, cache=TorchCache)
    cpdef object free(self, i64 address)
    @cython.locals(cache=TorchCache)
    cpdef object release_cached(self)
    @cython.locals(step=i64)
    cdef i64 _round_up(self, i64 size)
    @cython.locals(cache=TorchCache, free=FreeBlocks, granule=i64)
    cdef TorchCache _cache_of(self, int stream, bint small)
    @cython.locals(address=i64, size=i64)
    cdef i64 _find(self, TorchCache cache, i64 rounded)
    @cython.locals(size=i64, address=i64)
    cdef i64 _extend(self, TorchCache cache, i64 rounded)
    @cython.locals(whole=i64, rest=i64, splits=bint)
    cdef i64 _cut(self, TorchCache cache, i64 address, i64 rounded)
    @cython.locals(wanted=i64, address=i64, released=i64)
    cdef bint _release_oversize(self, TorchCache cache, i64 rounded)
    @cython.locals(target=i64, address=i64, age=i64, average=double, cache=TorchCache)
    cdef object _collect_garbage(self)
