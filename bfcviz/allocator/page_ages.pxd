cimport cython

from bfcviz cimport native
from bfcviz.allocator cimport heap_memory
from bfcviz.allocator.chunks cimport ChunkSpace
from bfcviz.allocator.sub_allocators cimport SubAllocator
from bfcviz.native cimport i64, u8, u32, u64


@cython.final
cdef class PageAges:
    cdef u8 *ages
    cdef bint is_on
    cdef u8 period          # 1 to 255
    cdef u64 keep           # bytes in use may fall by this much before all free pages are returned
    cdef u64 most           # the largest `keep`
    cdef u64 low            # bytes in use at the last return of all pages
    cdef u64 high           # the most bytes in use since then
    cdef i64 returned_at    # time of that return, in nanoseconds
    cdef i64 next_pass      # time at which the next period begins
    cdef u64 stopped_at     # block after the last one that `discard` checked

    @cython.locals(first=u64, last=u64, block=u64)
    cdef void note(self, u64 address, u64 size, u64 in_use) noexcept nogil
    cdef int due(self, u64 in_use, i64 now) noexcept nogil
    cdef void begin_period(self) noexcept nogil
    @cython.locals(age=u8)
    cdef bint is_idle(self, u64 block, bint any_age) noexcept nogil
    @cython.locals(begin=u64, last=u64)
    cdef u64 discard(self, SubAllocator source, u64 first, u64 end, bint any_age) noexcept nogil
    @cython.locals(returned=u64, size=u64, address=u64, block=u64, end=u64, h=u32, c="heap_memory.Chunk *")
    cdef u64 return_pages(self, ChunkSpace space, SubAllocator source, bint any_age) noexcept nogil
