cimport cython

from bfcviz cimport native
from bfcviz.allocator.heap cimport Heap
from bfcviz.native cimport i64, u64

@cython.locals(before=u64, released=u64)
cpdef object trim_heap(Heap heap)

@cython.locals(state="void *", returned=u64)
cpdef object return_free_pages(Heap heap, bint only_idle)

cpdef object wait_for_growth(Heap heap, i64 patience)
