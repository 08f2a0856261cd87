cimport cython

from bfcviz.live.numpy cimport numpy_functions


@cython.no_gc_clear  # the gate, which goes last, needs the heap
cdef class Handler:
    cdef readonly object allocator
    cdef readonly object walker
    cdef numpy_functions.Gate *gate
