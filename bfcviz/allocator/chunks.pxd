cimport cython
from bfcviz cimport native
from bfcviz.allocator cimport structs
from bfcviz.allocator.bins cimport Bins
from bfcviz.allocator.regions cimport RegionTable
from bfcviz.events cimport event_record
from bfcviz.events.log cimport EventLog
from bfcviz.native cimport u8, u16, u32, u64

@cython.final
cdef class ChunkTable:
    cdef structs.Chunk *chunks
    cdef u32 *slots         # open addressing: handles of chunks in use, by address
    cdef u64 room           # number of chunks that have memory
    cdef u64 count          # handles ever used: chunks[count:] are unused
    cdef u64 mask           # slots - 1
    cdef int shift          # 64 - log2(slots)
    cdef u64 found          # slot of the last find
    cdef u32 unused         # head of the list of deleted handles

    cdef bint reserve(self, u64 more) noexcept nogil
    @cython.locals(chunks="structs.Chunk *", slots="u32 *", bits=int, i=u64, h=u32)
    cdef bint grow(self, u64 room) noexcept nogil
    @cython.locals(h=u32)
    cdef u32 new(self) noexcept nogil
    cdef void delete(self, u32 h) noexcept nogil
    @cython.locals(i=u64)
    cdef void forget(self) noexcept nogil
    @cython.locals(i=u64)
    cdef void enter(self, u32 h, u64 address) noexcept nogil
    @cython.locals(i=u64, h=u32)
    cdef u32 find(self, u64 address) noexcept nogil
    @cython.locals(i=u64, j=u64, home=u64, other=u32)
    cdef void leave(self, u32 h, u64 address) noexcept nogil

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
    @cython.locals(c="structs.Chunk *")
    cdef void put_in_bin(self, u32 h) noexcept nogil
    cdef void take_from_bin(self, u32 h) noexcept nogil
    @cython.locals(c="structs.Chunk *", o="structs.Chunk *", other=u32)
    cdef u32 split(self, u32 h, u64 front, u8 flags) noexcept nogil
    @cython.locals(c="structs.Chunk *", o="structs.Chunk *", other=u32)
    cdef void merge_next(self, u32 h) noexcept nogil
    @cython.locals(c="structs.Chunk *")
    cdef void mark_allocated(self, u32 h, u64 requested, u32 label, u16 stream, int bin) noexcept nogil
    @cython.locals(c="structs.Chunk *")
    cdef void mark_free(self, u32 h, u64 freed_at) noexcept nogil
    @cython.locals(c="structs.Chunk *", r="structs.Region *", h=u32, last=u32, index=u64)
    cdef u32 extend(self, u64 address, u64 size, u64 requested, bint join) noexcept nogil
    @cython.locals(r="structs.Region *", h=u32, following=u32, size=u64, slot=u16)
    cdef void release(self, u64 index) noexcept nogil
    @cython.locals(h=u32)
    cdef bint is_free(self, u64 index) noexcept nogil
    @cython.locals(index=u64, h=u32, c="structs.Chunk *")
    cdef int diagnose(self, u64 address) noexcept nogil
    cdef void forget_chunks(self) noexcept nogil
    @cython.locals(h=u32)
    cdef u64 largest_free(self) noexcept nogil
