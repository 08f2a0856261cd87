cimport cython
from libc.stdint cimport uint64_t

from bfcviz.model cimport array_access

@cython.locals(count=Py_ssize_t, places=uint64_t, i=Py_ssize_t, e="array_access.Event *", records="array_access.Event *", bytes_held="double *", byte_steps="double *", noted="uint64_t *", change=double)
cpdef Py_ssize_t add_byte_steps(block, int pool, uint64_t stop, totals, seen) except -1
