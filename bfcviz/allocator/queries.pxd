cimport cython

from bfcviz cimport native
from bfcviz.allocator cimport heap_memory
from bfcviz.allocator.chunks cimport ChunkSpace
from bfcviz.allocator.heap cimport Heap
from bfcviz.native cimport u32, u64


@cython.locals(i=u64, n=u64, room=u64, h=u32, c="heap_memory.Chunk *")
cdef u64 copy_chunks(Heap heap, u64[:, ::1] rows) noexcept

@cython.locals(count=u64)
cpdef object read_regions(Heap heap)

@cython.locals(n=u64)
cpdef u64 fill_regions(Heap heap, u64[:, ::1] rows)

@cython.locals(i=u64, n=u64, room=u64, r="heap_memory.Region *")
cdef u64 copy_regions(Heap heap, u64[:, ::1] rows) noexcept

cpdef object read_moment(Heap heap)

@cython.locals(s=ChunkSpace)
cpdef void fill_moment(Heap heap, u64[:, ::1] chunks, u64[:, ::1] regions, u64[::1] numbers)

cpdef object read_tables(Heap heap)

@cython.locals(i=u64, n=u64, room=u64, h=u32, c="heap_memory.Chunk *")
cdef void copy_found(Heap heap, u64[::1] found) noexcept

cpdef void fill_tables(Heap heap, u64[:, ::1] chunks, u64[:, ::1] regions, u64[:, ::1] binned, u64[::1] found, u64[::1] totals, u64[::1] counts)

@cython.locals(h=u32, k="heap_memory.Key *", n=u64, room=u64)
cdef u64 copy_bins(Heap heap, u64[:, ::1] rows) noexcept

@cython.locals(h=u32, c="heap_memory.Chunk *", reason=int, requested=u64, size=u64, allocation_id=u64)
cpdef object chunk_facts(Heap heap, u64 address)

@cython.locals(h=u32, requested=u64)
cdef u64 requested_at(Heap heap, u64 address) noexcept nogil

cpdef object read_totals(Heap heap)

cpdef object stats_of(Heap heap, object totals)

cpdef void fill_totals(Heap heap, u64[::1] totals)

@cython.locals(s=ChunkSpace)
cdef void copy_totals(Heap heap, u64[::1] totals) noexcept

@cython.locals(next_region=u64, handles=u64, next_id=u64, held=u64, frees=u64)
cpdef object read_internals(Heap heap)
