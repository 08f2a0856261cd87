cimport cython

from bfcviz cimport native
from bfcviz.allocator.heap cimport Heap
from bfcviz.native cimport u16, u32, u64

cpdef u64 allocate_after_free(Heap heap, double seconds, u64 num_bytes, u64 alignment, u64 freed_before, u32 label, u16 stream) except? 0xFFFFFFFFFFFFFFFE

@cython.locals(address=u64)
cpdef object try_heap(Heap heap, u64 num_bytes, u64 alignment, u64 freed_before, u32 label, u16 stream)
