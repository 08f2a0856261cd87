cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class SortedAddresses:
    cdef Py_ssize_t _longest
    cdef list _lists
    cdef list _lowest

    @cython.locals(at=Py_ssize_t, half=Py_ssize_t, addresses=list)
    cpdef object add(self, int64_t address)
    @cython.locals(at=Py_ssize_t, addresses=list)
    cpdef object remove(self, int64_t address)
    @cython.locals(at=Py_ssize_t, place=Py_ssize_t, addresses=list)
    cpdef int64_t at_or_before(self, int64_t address) except? -2
    cdef Py_ssize_t _list_of(self, int64_t address) except -1


@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, here=int64_t)
cdef Py_ssize_t _up_to(list addresses, int64_t address) except -1
