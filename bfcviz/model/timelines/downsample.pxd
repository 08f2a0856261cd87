cimport cython
from libc.stdint cimport int64_t, uint64_t

from bfcviz.model.state cimport array_access

@cython.locals(
    made=Py_ssize_t, series=Py_ssize_t, i=Py_ssize_t, first=bint, at=Py_ssize_t, number=Py_ssize_t, low=Py_ssize_t,
    high=Py_ssize_t, less=bint, more=bint,
)
cpdef Py_ssize_t fold(const uint64_t[:, ::1] rows, const double[:, ::1] ratios, const int64_t[::1] groups, uint64_t[:, ::1] out, double[:, ::1] out_ratios)
