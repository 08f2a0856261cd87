cimport cython

from bfcviz.live cimport stack_walk


@cython.no_gc_clear  # the walk is freed last and needs name_stack
cdef class Walker:
    cdef object name_stack
    cdef stack_walk.Walk *walk
