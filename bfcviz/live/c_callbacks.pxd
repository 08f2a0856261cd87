cimport cython

from bfcviz.live cimport stack_walk
from bfcviz.native cimport u32


@cython.no_gc_clear  # the walk is freed last and needs name_stack
cdef class Walker:
    cdef object name_stack
    cdef stack_walk.Walk *walk


# After Walker, which numpy_functions reads.
from bfcviz.live cimport cupy_functions, numpy_functions, torch_functions


@cython.no_gc_clear  # the gate is freed last and needs the heap
cdef class NumpyHandler:
    cdef readonly object allocator
    cdef readonly object walker
    cdef numpy_functions.Gate *gate


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


cdef class StreamTable:
    cdef readonly u32 service
    cdef readonly u32 labels


cdef class UninterruptedCall:
    cdef object _function
    cdef object _is_finalizing
