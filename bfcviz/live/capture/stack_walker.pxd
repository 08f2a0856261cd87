cimport cython

from bfcviz.live.capture cimport stack_walk


@cython.no_gc_clear  # the walk, which goes last, needs what tells
cdef class Walker:
    cdef object tell
    cdef stack_walk.Walk *walk
