cimport cython

from bfcviz.live.cupy cimport cupy_functions
from bfcviz.native cimport u32


@cython.no_gc_clear  # the gate is freed last and needs stream_heaps
cdef class CupyHook:
    cdef cupy_functions.Gate *gate
    cdef readonly object stream_heaps
    cdef readonly object walker
    cdef public object malloc
    cdef public object plain
    cdef public bint is_open
    cdef object __weakref__

    cpdef object serve(self, size)


cdef class HookReports:
    cdef object watch
