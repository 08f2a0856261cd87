cimport cython
from libc.stdint cimport uint64_t


cdef class PickleBytes:
    cdef object _path
    cdef bytes _data
    cdef const unsigned char *_bytes
    cdef Py_ssize_t _at
    cdef Py_ssize_t _stop

    @cython.locals(number=uint64_t, place=Py_ssize_t)
    cdef uint64_t _number(self, int size) except? 0xFFFFFFFFFFFFFFFF
    @cython.locals(start=Py_ssize_t)
    cdef bytes _slice(self, uint64_t length)
    cdef int _slice_length(self, uint64_t length) except -1
    @cython.locals(end=Py_ssize_t, start=Py_ssize_t)
    cdef bytes _line(self, Py_ssize_t longest)
    cdef object _damage(self, object reason, Py_ssize_t back=*)
