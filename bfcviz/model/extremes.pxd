cimport cython
from libc.stdint cimport int64_t, uint64_t

from bfcviz.model cimport raw

@cython.final
cdef class Extremes:
    cdef bint open
    cdef object _store
    cdef raw.Extremes* _rows
    cdef double _ratio_low
    cdef double _ratio_high
    cdef uint64_t _ratio_low_step
    cdef uint64_t _ratio_high_step
    cdef int64_t _ratio_low_time
    cdef int64_t _ratio_high_time

    cdef void fold(self, int series, uint64_t value, uint64_t step, int64_t time) noexcept
    # Compiled, `/` of two integers would drop the fraction.
    @cython.locals(whole=double, part=double, ratio=double)
    cdef void fold_fragmentation(self, uint64_t free_bytes, uint64_t largest, uint64_t step, int64_t time) noexcept
