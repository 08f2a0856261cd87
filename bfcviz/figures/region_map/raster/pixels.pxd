cimport cython
from libc.stdint cimport uint8_t

from bfcviz.model.state cimport array_access

@cython.locals(
    in_use="const double[:, :]", waste="const double[:, :]", region="const double[:, :]", colour="const double[:, :, :]",
    row=Py_ssize_t, i=Py_ssize_t, channel=int, used=double, spilled=double, scale=double, free=double, mixed=double,
)
cpdef paint(held, const double[:, ::1] states, double faintest, uint8_t[:, :, ::1] out)
