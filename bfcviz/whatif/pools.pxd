cimport cython
from bfcviz cimport native
from bfcviz.native cimport i64
from bfcviz.whatif.free_blocks cimport FreeBlocks
from bfcviz.whatif.simulated_pool cimport SimulatedPool
from bfcviz.whatif.free_blocks cimport AddressTable
from bfcviz.whatif.simulated_pool cimport SegmentCache


cdef class FirstFitPool(SimulatedPool):
    cdef i64 _granule
    cdef FreeBlocks _free
    cdef i64 _end

    @cython.locals(rounded=i64, address=i64)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    cpdef object free(self, i64 address)
    @cython.locals(last=i64, missing=i64, more=i64, room=i64)
    cdef i64 _grow(self, i64 rounded)


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


cdef class BuddyPool(SimulatedPool):
    cdef i64 _min_block
    cdef i64 _arena
    cdef i64 _granule
    cdef FreeBlocks _holes
    cdef list _bases
    cdef dict _sizes
    cdef i64 _end
    cdef i64 _stop
    cdef i64 _largest
    cdef bint _is_largest_known

    @cython.locals(rounded=i64, address=i64, whole=i64)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    @cython.locals(size=i64, base=i64, whole=i64, buddy=i64, mapped=i64)
    cpdef object free(self, i64 address)
    @cython.locals(holes=FreeBlocks)
    cdef i64 largest_free(self) except -1
    @cython.locals(power=i64)
    cdef i64 _power(self, i64 size) noexcept
    @cython.locals(size=i64, address=i64)
    cdef i64 _hole(self, i64 rounded) except -1
    @cython.locals(size=i64, address=i64)
    cdef i64 _new_arena(self, i64 rounded) except -1
    cdef object _add_arena(self, i64 base, i64 size)
    @cython.locals(more=i64, room=i64)
    cdef bint _map_to(self, i64 end) except -1


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
