cimport cython

from bfcviz.live cimport gate


@cython.no_gc_clear  # the gate, which goes last, needs the heap
cdef class Handler:
    cdef readonly object allocator
    cdef readonly object walker
    cdef gate.Gate *gate
