cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.free_blocks cimport FreeBlocks
from bfcviz.whatif.simulated_pool cimport SimulatedPool


cdef class XLAPool(SimulatedPool):
    cdef bytes _ends
    cdef i64 _asked
    cdef tuple _descending
    cdef tuple _exact
    cdef tuple _gap_exact
    cdef tuple _alignment
    cdef i64 _waste
    cdef FreeBlocks _lower_holes
    cdef FreeBlocks _upper_holes
    cdef set _lower
    cdef dict _upper_starts
    cdef i64 _gap
    cdef i64 _gap_size
    cdef bint _is_granted
    cdef i64 _preallocated
    cdef i64 _lower_stop
    cdef i64 _stop
    cdef i64 _growth

    @cython.locals(at=i64, upper=cython.bint, rounded=i64, holes=FreeBlocks, hole=i64, from_gap=cython.bint, whole=i64, alignment=i64)
    cpdef i64 allocate(self, i64 size, int stream) except -1
    @cython.locals(lower=cython.bint, size=i64, end=i64, is_border=cython.bint, holes=FreeBlocks, start=i64, whole=i64)
    cpdef object free(self, i64 address)
    cdef i64 largest_free(self) except -1
    @cython.locals(room=i64)
    cdef object _grant(self, i64 rounded)
    cdef bint _gap_has(self, i64 rounded, i64 alignment, i64 stop) noexcept
    @cython.locals(room=i64, hole=i64, first=i64, needed=i64, size=i64)
    cdef bint _extend(self, i64 rounded, i64 alignment) except -1
    @cython.locals(padding=i64, address=i64)
    cdef i64 _from_low_end(self, i64 hole, i64 whole, i64 rounded, bint from_gap) except -1
    @cython.locals(is_exact=cython.bint, address=i64, first=i64, alignment=i64)
    cdef i64 _from_high_end(self, i64 hole, i64 whole, i64 rounded, bint from_gap) except -1
    cdef bint _splits(self, i64 whole, i64 rounded, bint is_exact) noexcept
    cdef i64 _up(self, i64 address, i64 alignment) noexcept
