cimport cython

from bfcviz.live cimport cupy_gate
from bfcviz.native cimport u32


@cython.no_gc_clear  # the gate, which goes last, needs the desk
cdef class CupyHook:
    cdef cupy_gate.Gate *gate
    cdef readonly object desk
    cdef readonly object walker
    cdef public object malloc
    cdef public object plain
    cdef public bint is_open
    cdef object __weakref__

    cpdef object serve(self, size)
