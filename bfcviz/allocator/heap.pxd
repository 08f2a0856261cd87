cimport cython
from bfcviz cimport native
from bfcviz.allocator cimport heap_memory
from bfcviz.allocator.chunks cimport ChunkSpace
from bfcviz.allocator.free_signal cimport FreeSignal
from bfcviz.allocator.page_ages cimport PageAges
from bfcviz.allocator.sub_allocators cimport SubAllocator
from bfcviz.events cimport event_record
from bfcviz.native cimport u8, u16, u32, u64

cdef u64 round_up(u64 num_bytes) noexcept nogil
@cython.locals(less=u64)
cdef u64 smaller(u64 num_bytes) noexcept nogil
cdef u64 double(u64 num_bytes) noexcept nogil
@cython.locals(padding=u64)
cdef u64 padding_of(u64 address, u64 alignment) noexcept nogil

@cython.final
cdef class HeldQueue:
    cdef u32 *waiting       # handles, oldest first
    cdef u32 *due           # handles that `select` removed, in order
    cdef u64 count          # number of waiting handles
    cdef u64 room

    @cython.locals(waiting="u32 *", due="u32 *", room=u64)
    cdef bint reserve(self) noexcept nogil
    cdef void push(self, u32 h) noexcept nogil
    @cython.locals(i=u64, h=u32, c="heap_memory.Chunk *", kept=u64, taken=u64)
    cdef u64 select(self, heap_memory.Chunk *chunks, u64 frontier, bint every) noexcept nogil

@cython.final
cdef class Heap:
    cdef ChunkSpace space
    cdef readonly u8 pool       # its number among the heaps that write to its log
    cdef SubAllocator source
    cdef native.SpinLock *lock  # the log's: guards everything but the sub-allocator
    cdef native.Mutex *growth   # its holder may call the sub-allocator, add and release regions
    cdef u64 limit
    cdef u64 first_region       # size of the first region to request
    cdef u64 next_region        # size of the next region to request
    cdef u64 max_waste          # a chunk is split if it would waste this many bytes or more
    cdef bint collects
    cdef bint exact_growth      # the last size to request is the request's own
    cdef bint honours_alignment
    cdef bint timestamps
    cdef u64 timing_count       # frees so far, with timestamps
    cdef u64 frontier
    cdef HeldQueue held         # freed chunks not yet safe to merge
    cdef PageAges page_ages     # on if the sub-allocator discards pages
    cdef bint bad_grant
    cdef readonly u64 rejected_frees    # failed frees through the C pointer, which cannot raise
    cdef u16 grower             # thread that is in the sub-allocator now, 0 = none
    cdef u64 generation         # of the process in which that thread entered it
    cdef readonly bint closed
    cdef readonly FreeSignal frees  # for threads that wait for memory

    cdef u64 allocate(self, u64 requested, u64 alignment, u64 freed_before, u32 label, u16 stream) noexcept nogil
    @cython.locals(rounded=u64, h=u32, address=u64)
    cdef u64 request(
        self, u64 requested, u64 alignment, u64 freed_before, u32 label, u16 stream, bint is_final
    ) noexcept nogil
    @cython.locals(h=u32, address=u64, reason=int, due=int)
    cdef int free(self, u64 address) noexcept nogil

    @cython.locals(h=u32, c="heap_memory.Chunk *")
    cdef inline u32 find(self, u64 rounded, u64 alignment, u64 freed_before) noexcept nogil
    cdef inline u32 find_now(self, u64 rounded, u64 alignment, u64 freed_before) noexcept nogil
    @cython.locals(h=u32)
    cdef u32 find_by_growing(self, u64 rounded, u64 alignment, u64 freed_before) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *", bin=int, padding=u64, aligned=u32)
    cdef inline u64 serve(self, u32 h, u64 rounded, u64 requested, u64 alignment, u32 label, u16 stream) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *", p=u32)
    cdef inline u32 coalesce(self, u32 h, bint ignore_held) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *")
    cdef inline bint mergeable(self, u32 h, bint ignore_held) noexcept nogil

    cpdef void put_mark(self, u32 label, u64 value) noexcept nogil
    cpdef void set_safe_frontier(self, u64 count) noexcept nogil
    cpdef void clear_stats(self) noexcept nogil
    cpdef void set_replaying(self, bint on) noexcept nogil
    @cython.locals(address=u64, size=u64)
    cpdef void release_all(self) noexcept nogil
    cdef u64 return_pages(self, bint any_age) noexcept nogil

    cdef inline bint has_room(self) noexcept nogil
    cdef bint make_room(self) noexcept nogil
    @cython.locals(address=u64)
    cdef u64 request_region(self, u64 alignment, u64 num_bytes) noexcept nogil
    cdef void return_region(self, u64 address, u64 num_bytes) noexcept nogil
    cpdef bint is_growing_here(self) noexcept nogil
    cdef bint was_forked_while_growing(self) noexcept nogil
    @cython.locals(available=u64, increased=cython.bint, num_bytes=u64, less=u64, address=u64, h=u32)
    cdef bint extend(self, u64 rounded, u64 alignment) noexcept nogil
    @cython.locals(i=u64, total=u64)
    cdef bint collect(self, u64 rounded) noexcept nogil
    @cython.locals(i=u64, address=u64, size=u64)
    cdef void release_free_regions(self) noexcept nogil

    @cython.locals(i=u64, h=u32, c="heap_memory.Chunk *", count=u64, merged=u32, satisfied=cython.bint)
    cdef bint merge_held(self, u64 needed) noexcept nogil
