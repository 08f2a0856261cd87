cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation cimport FreeBlocks
from bfcviz.whatif.simulation cimport SimulatedPool


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
