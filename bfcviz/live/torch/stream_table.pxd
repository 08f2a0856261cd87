from bfcviz.live.torch cimport torch_functions
from bfcviz.native cimport u32


cdef class StreamTable:
    cdef readonly u32 service
    cdef readonly u32 labels
