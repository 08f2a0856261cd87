cimport cython

from bfcviz cimport native
from bfcviz.allocator cimport structs
from bfcviz.native cimport u32, u64


@cython.final
cdef class HeldQueue:
    cdef u32 *waiting       # handles, oldest first
    cdef u32 *due           # handles that `select` removed, in order
    cdef u64 count          # number of waiting handles
    cdef u64 room

    @cython.locals(waiting="u32 *", due="u32 *", room=u64)
    cdef bint reserve(self) noexcept nogil
    cdef void push(self, u32 h) noexcept nogil
    @cython.locals(i=u64, h=u32, c="structs.Chunk *", kept=u64, taken=u64)
    cdef u64 select(self, structs.Chunk *chunks, u64 frontier, bint every) noexcept nogil
