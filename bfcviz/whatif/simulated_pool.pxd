cimport cython
from bfcviz cimport native
from bfcviz.native cimport i64, u8, u16
from bfcviz.whatif.driver_memory cimport DriverMemory
from bfcviz.whatif.free_blocks cimport AddressTable
from bfcviz.whatif.free_blocks cimport FreeBlocks

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
    cdef AddressTable _used
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
