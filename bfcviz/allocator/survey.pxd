cimport cython

from bfcviz cimport native
from bfcviz.allocator cimport memory
from bfcviz.allocator.heap cimport Heap
from bfcviz.allocator.space cimport Space
from bfcviz.native cimport u32, u64

@cython.locals(i=u64, h=u32, c="memory.Chunk *")
cpdef list chunk_rows(Heap heap)

@cython.locals(i=u64, r="memory.Region *")
cpdef list region_rows(Heap heap)

@cython.locals(h=u32, k="memory.Key *")
cpdef list binned_rows(Heap heap)

@cython.locals(h=u32)
cpdef object handle_of(Heap heap, u64 address)

@cython.locals(h=u32, c="memory.Chunk *")
cpdef object chunk_facts(Heap heap, u64 address)

@cython.locals(s=Space)
cpdef object read_totals(Heap heap)
cpdef object read_internals(Heap heap)
