cimport cython

from bfcviz.live.numpy cimport numpy_functions


@cython.no_gc_clear  # the gate is freed last and needs the heap
cdef class NumpyHandler:
    cdef readonly object allocator
    cdef readonly object walker
    cdef numpy_functions.Gate *gate
