cimport cython
from libc.stdint cimport int64_t, uint32_t

@cython.locals(found=int64_t, i=Py_ssize_t)
cpdef int64_t highest(const uint32_t[:] numbers)
