cimport cython

from bfcviz cimport native
from bfcviz.native cimport i64


@cython.final
cdef class Skyline:
    cdef i64 _leaves
    cdef i64[::1] _best
    cdef i64[::1] _all

    @cython.locals(low=i64, high=i64, found=i64, node=i64, end=i64)
    cpdef i64 top(self, i64 start, i64 stop)
    @cython.locals(low=i64, high=i64, node=i64, end=i64)
    cpdef void lift(self, i64 start, i64 stop, i64 value)
    cdef void _lift_node(self, i64 node, i64 value) noexcept


@cython.locals(count=i64, placed=i64[:, ::1], block=i64, low=i64, at=i64, row=i64)
cpdef object fill_gaps(const i64[::1] start, const i64[::1] stop, const i64[::1] size, i64[::1] offset)

@cython.locals(block=i64, low=i64)
cpdef object stack(Skyline skyline, const i64[::1] start, const i64[::1] stop, const i64[::1] size, i64[::1] offset)

@cython.locals(block=i64)
cpdef i64 first_overlap(Skyline skyline, const i64[::1] start, const i64[::1] stop, const i64[::1] offset, const i64[::1] end)
