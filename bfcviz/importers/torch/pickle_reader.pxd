cimport cython
from libc.stdint cimport uint64_t

from bfcviz.importers.torch cimport pickle_opcodes as ops
from bfcviz.importers.torch.pickle_stack cimport DICT, LIST, SET, OpenContainer, PickleStack


@cython.final
cdef class PickleReader(PickleStack):
    cdef readonly object cut

    cdef bint _carry_out_all(self) except -1
    cdef object _whole(self)
    cdef bint _carry_out(self, int op) except -1
    @cython.locals(number=uint64_t, length=uint64_t)
    cdef bint _read_number(self, int op) except -1
    cdef int _read_printed(self, int op, bytes text) except -1
    @cython.locals(size=int, quote=bytes)
    cdef bint _read_text(self, int op) except -1
    cdef bint _build(self, int op) except -1
    cdef bint _build_tuple(self, int op) except -1
    @cython.locals(version=int, number=object)
    cdef bint _remember(self, int op) except -1
    @cython.locals(made=OpenContainer)
    cdef object _unfinished(self)
    cdef bint _grows(self, Py_ssize_t place) except -1
    cdef bint _is_whole(self, Py_ssize_t place) except -1
    @cython.locals(made=OpenContainer)
    cdef bint _is_open(self, Py_ssize_t place) except -1
    @cython.locals(made=OpenContainer)
    cdef object _whole_items(self, Py_ssize_t place)
    cdef object _refused(self, int op)
