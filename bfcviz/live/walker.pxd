cimport cython

from bfcviz.live cimport walk


@cython.no_gc_clear  # the walk, which goes last, needs what tells
cdef class Walker:
    cdef object tell
    cdef walk.Walk *walk
