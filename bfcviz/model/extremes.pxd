cimport cython
from libc.stdint cimport int64_t, uint64_t

from bfcviz.model cimport array_access


@cython.final
cdef class Extremes:
    cdef bint _empty
    cdef bint _first
    cdef uint64_t _step
    cdef int64_t _time
    cdef object _store
    cdef object _ratio_store
    cdef array_access.Extremes* _rows
    cdef array_access.Ratios* _ratios

    cdef void begin(self, uint64_t step, int64_t time) noexcept
    cdef void fold_use(self, uint64_t in_use, uint64_t requested, uint64_t pool) noexcept
    cdef void fold_free(self, uint64_t free, uint64_t largest, uint64_t too_small) noexcept
    cdef void _fold(self, int series, uint64_t value) noexcept
    # Compiled, `/` of two integers would drop the fraction.
    @cython.locals(numerator=double, denominator=double, value=double)
    cdef void _fold_ratio(self, int series, uint64_t part, uint64_t whole) noexcept

@cython.locals(
    made=Py_ssize_t, series=Py_ssize_t, i=Py_ssize_t, first=bint, at=Py_ssize_t, number=Py_ssize_t, low=Py_ssize_t,
    high=Py_ssize_t, less=bint, more=bint,
)
cpdef Py_ssize_t fold(const uint64_t[:, ::1] rows, const double[:, ::1] ratios, const int64_t[::1] groups, uint64_t[:, ::1] out, double[:, ::1] out_ratios)

@cython.locals(count=Py_ssize_t, places=uint64_t, i=Py_ssize_t, e="array_access.Event *", records="array_access.Event *", bytes_held="double *", byte_steps="double *", noted="uint64_t *", change=double)
cpdef Py_ssize_t add_byte_steps(block, int pool, uint64_t stop, totals, seen) except -1
