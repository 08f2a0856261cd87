cimport cython

from bfcviz cimport native
from bfcviz.allocator cimport structs
from bfcviz.native cimport u32, u64


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
    @cython.locals(chunks="structs.Chunk *", slots="u32 *", bits=int, old_slots="u64", i=u64, h=u32)
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
