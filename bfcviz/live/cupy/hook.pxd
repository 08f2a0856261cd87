cimport cython

from bfcviz.live.cupy cimport cupy_functions
from bfcviz.native cimport u32


@cython.no_gc_clear  # the gate, which goes last, needs the desk
cdef class CupyHook:
    cdef cupy_functions.Gate *gate
    cdef readonly object desk
    cdef readonly object walker
    cdef public object malloc
    cdef public object plain
    cdef public bint is_open
    cdef object __weakref__

    cpdef object serve(self, size)
