cimport cython

from bfcviz cimport native
from bfcviz.allocator cimport heap_memory
from bfcviz.events cimport event_record
from bfcviz.events.log cimport EventLog
from bfcviz.native cimport u8, u16, u32, u64


@cython.final
cdef class Bins:
    cdef u32 *links         # TREES roots, then two children a handle
    cdef heap_memory.Key *keys   # size and address of each handle in a tree
    cdef u64 room
    cdef u64 found          # the link to the node that at_least found, until a change; 0 = unknown
    cdef u32 *steps         # one bit mask per row: which of its 32 trees are not empty
    cdef u64 rows           # which rows are not empty

    @cython.locals(links="u32 *", keys="heap_memory.Key *")
    cdef bint reserve(self, u64 room) noexcept nogil
    @cython.locals(i=u64)
    cdef void forget(self) noexcept nogil
    @cython.locals(top=int)
    cdef inline u32 tree_of(self, u64 size) noexcept nogil
    @cython.locals(k="heap_memory.Key *")
    cdef inline bint before(self, u32 h, u64 size, u64 address) noexcept nogil
    @cython.locals(k="heap_memory.Key *", tree=u32)
    cdef inline void insert(self, u32 h, u64 size, u64 address) noexcept nogil
    @cython.locals(ref=u64, left=u64, right=u64, node=u32, priority=u32)
    cdef void add_to_tree(self, u32 tree, u32 h, u64 size, u64 address) noexcept nogil
    @cython.locals(tree=u32, ref=u64, left=u32, right=u32)
    cdef inline void remove(self, u32 h, u64 size, u64 address) noexcept nogil
    @cython.locals(ref=u64, node=u32)
    cdef u64 link_to(self, u32 tree, u32 h, u64 size, u64 address) noexcept nogil
    cdef void join(self, u64 ref, u32 left, u32 right) noexcept nogil
    @cython.locals(tree=u32, node=u32, best=u32, ref=u64)
    cdef inline u32 at_least(self, u64 size, u64 address) noexcept nogil
    @cython.locals(row=u64, later=u32, rows=u64)
    cdef inline u32 first_tree(self, u32 tree) noexcept nogil
    @cython.locals(row=u64, node=u32)
    cdef u32 largest(self) noexcept nogil

@cython.final
cdef class RegionTable:
    cdef heap_memory.Region *regions
    cdef u64 room
    cdef readonly u64 count
    cdef u32 *spare         # slots of released regions, a stack
    cdef u64 spares
    cdef u64 slots          # slots ever used

    @cython.locals(regions="heap_memory.Region *", spare="u32 *")
    cdef bint reserve(self) noexcept nogil
    @cython.locals(i=u64, r="heap_memory.Region *")
    cdef u64 insert(self, u64 address, u64 size, u32 first) noexcept nogil
    cdef void remove(self, u64 index) noexcept nogil
    @cython.locals(low=u64, high=u64, middle=u64)
    cdef u64 count_below(self, u64 address) noexcept nogil
    @cython.locals(i=u64, r="heap_memory.Region *")
    cdef u64 containing(self, u64 address) noexcept nogil
    @cython.locals(i=u64)
    cdef bint overlaps(self, u64 address, u64 size) noexcept nogil

@cython.final
cdef class ChunkTable:
    cdef heap_memory.Chunk *chunks
    cdef u32 *slots         # open addressing: handles of chunks in use, by address
    cdef u64 room           # number of chunks that have memory
    cdef u64 count          # handles ever used: chunks[count:] are unused
    cdef u64 mask           # slots - 1
    cdef int shift          # 64 - log2(slots)
    cdef u64 found          # slot of the last find
    cdef u32 unused         # head of the list of deleted handles

    cdef bint reserve(self, u64 more) noexcept nogil
    @cython.locals(chunks="heap_memory.Chunk *", slots="u32 *", places=u64, i=u64, h=u32)
    cdef bint grow(self, u64 room) noexcept nogil
    @cython.locals(h=u32)
    cdef inline u32 new(self) noexcept nogil
    cdef inline void delete(self, u32 h) noexcept nogil
    @cython.locals(i=u64)
    cdef void forget(self) noexcept nogil
    @cython.locals(i=u64)
    cdef inline void enter(self, u32 h, u64 address) noexcept nogil
    @cython.locals(i=u64, h=u32)
    cdef inline u32 find(self, u64 address) noexcept nogil
    @cython.locals(i=u64, j=u64, home=u64, other=u32)
    cdef inline void leave(self) noexcept nogil

@cython.final
cdef class ChunkSpace:
    cdef ChunkTable table
    cdef Bins bins
    cdef RegionTable regions
    cdef EventLog log
    cdef u64 next_id            # allocation id of the next success; the first is 1
    cdef u64 num_allocs
    cdef u64 bytes_in_use
    cdef u64 requested_in_use
    cdef u64 peak_in_use
    cdef u64 largest_alloc
    cdef u64 pool_bytes
    cdef u64 peak_pool
    cdef u64 chunks_in_use

    cdef bint reserve(self) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *")
    cdef inline void put_in_bin(self, u32 h) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *")
    cdef inline void take_from_bin(self, u32 h) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *", o="heap_memory.Chunk *", other=u32)
    cdef inline u32 split(self, u32 h, u64 front, u8 flags) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *", o="heap_memory.Chunk *", other=u32)
    cdef inline void merge_next(self, u32 h) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *")
    cdef inline void mark_allocated(self, u32 h, u64 requested, u32 label, u16 stream, int bin) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *")
    cdef inline void mark_free(self, u32 h, u64 freed_at) noexcept nogil
    @cython.locals(c="heap_memory.Chunk *", r="heap_memory.Region *", h=u32, last=u32, index=u64)
    cdef u32 extend(self, u64 address, u64 size, u64 requested, bint join) noexcept nogil
    @cython.locals(r="heap_memory.Region *", h=u32, following=u32, size=u64, slot=u16)
    cdef void release(self, u64 index) noexcept nogil
    @cython.locals(h=u32)
    cdef bint is_free(self, u64 index) noexcept nogil
    @cython.locals(index=u64, h=u32, c="heap_memory.Chunk *")
    cdef int diagnose(self, u64 address) noexcept nogil
    cdef void forget_chunks(self) noexcept nogil
    @cython.locals(h=u32)
    cdef u64 largest_free(self) noexcept nogil
