cimport cython

from bfcviz cimport native
from bfcviz.allocator.heap cimport Heap
from bfcviz.native cimport u64

@cython.locals(before=u64, released=u64)
cpdef object trim_heap(Heap heap)
