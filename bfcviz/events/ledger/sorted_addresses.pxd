cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class SortedAddresses:
    cdef Py_ssize_t _longest
    cdef list _lists
    cdef list _lowest

    @cython.locals(at=Py_ssize_t, half=Py_ssize_t, addresses=list)
    cpdef object add(self, object address)
    @cython.locals(at=Py_ssize_t, addresses=list)
    cpdef object remove(self, object address)
    @cython.locals(at=Py_ssize_t, place=Py_ssize_t, addresses=list)
    cpdef int64_t at_or_before(self, int64_t address) except? -2
