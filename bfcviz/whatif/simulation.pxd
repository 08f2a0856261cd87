cimport cython
from bfcviz cimport native
from bfcviz.native cimport i64
from bfcviz.native cimport i64, u8, u16

@cython.final
cdef class DriverMemory:
    cdef public i64 limit
    cdef readonly i64 reserved
    cdef readonly i64 grants
    cdef readonly i64 refusals
    cdef readonly i64 releases
    cdef readonly list ranges
    cdef public list calls
    cdef public int order
    cdef i64 _top
    cdef i64 _bottom

    @cython.locals(whole=i64, address=i64, place=i64)
    cpdef i64 reserve(self, i64 num_bytes)
    cpdef i64 grant(self, i64 num_bytes)
    cpdef bint map(self, i64 address, i64 num_bytes)
    cpdef object release(self, i64 address, i64 num_bytes)
    cdef bint _fits(self, i64 num_bytes)
    cdef object _granted(self, i64 address, i64 num_bytes, bint join)

@cython.final
cdef class FreeBlocks:
    cdef public dict sizes
    cdef public dict starts
    cdef public i64 total
    cdef public i64 merged
    cdef list _distinct
    cdef dict _by_size
    cdef i64 _recent_from
    cdef set _recent

    @cython.locals(same=list)
    cpdef object add(self, i64 address, i64 size)
    @cython.locals(size=i64, same=list)
    cpdef i64 remove(self, i64 address)
    @cython.locals(at=Py_ssize_t)
    cpdef i64 best_fit(self, i64 size)
    @cython.locals(at=Py_ssize_t, whole=i64, same=list, number=Py_ssize_t, address=i64)
    cpdef i64 aligned_fit(self, i64 size, i64 alignment, bint descending)
    @cython.locals(at=Py_ssize_t, found=i64, address=i64)
    cpdef i64 first_fit(self, i64 size)
    @cython.locals(at=Py_ssize_t, factor=i64, address=i64, found=i64, least=i64, rank=i64)
    cpdef i64 shuffled_fit(self, i64 size, i64 seed)
    @cython.locals(at=Py_ssize_t, same=list)
    cpdef i64 next_larger(self, i64 address)
    cpdef i64 largest(self)
    @cython.locals(found=i64, at=Py_ssize_t, size=i64, room=i64)
    cpdef i64 largest_before(self, i64 end)
    cpdef list take_recent(self)
    @cython.locals(whole=i64)
    cpdef object take_front(self, i64 address, i64 size)
    cpdef i64 add_merged(self, i64 address, i64 size)
    cpdef i64 merge_around(self, i64 address, i64 size)

@cython.final
cdef class SegmentCache:
    cdef public FreeBlocks free
    cdef public dict segments
    cdef public set whole
    cdef i64 _least

    cpdef object add_segment(self, i64 address, i64 size)
    @cython.locals(start=i64, merged=i64)
    cpdef i64 put(self, i64 address, i64 size)
    @cython.locals(size=i64)
    cpdef i64 take(self, i64 address)
    @cython.locals(whole=i64)
    cpdef object take_front(self, i64 address, i64 size)
    @cython.locals(size=i64)
    cpdef i64 release(self, DriverMemory driver, i64 address)
    @cython.locals(address=i64)
    cpdef object release_whole(self, DriverMemory driver)

cdef class SimulatedPool:
    cdef readonly DriverMemory driver
    cdef public i64 in_use
    cdef public i64 block_size
    cdef dict _used
    cdef list _free_lists

    cpdef i64 allocate(self, i64 size, int stream) except -1
    cpdef object free(self, i64 address)
    @cython.locals(found=i64, blocks=FreeBlocks, largest=i64)
    cdef i64 largest_free(self) except -1
    @cython.locals(blocks=FreeBlocks)
    cpdef FreeBlocks new_free_blocks(self, i64 recent_from=*)
    cdef object occupy(self, i64 address, i64 size)
    @cython.locals(size=i64)
    cdef i64 vacate(self, i64 address) except -1


@cython.locals(i=i64, address=i64)
cpdef i64 serve_requests(
    SimulatedPool pool, i64 start, i64 stop, bint stop_at_failure, const u8[::1] kind, const i64[::1] slot,
    const i64[::1] size, const u16[::1] stream, i64[::1] live, i64[::1] address_out, i64[::1] size_out,
    i64[::1] in_use_out, i64[::1] reserved_out, i64[::1] largest_free_out,
) except -1
