cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from bfcviz cimport native
from bfcviz.events cimport event_record
from bfcviz.events.log cimport EventLog


@cython.final
cdef class SortedAddresses:
    cdef Py_ssize_t _longest
    cdef list _lists
    cdef list _lowest

    @cython.locals(at=Py_ssize_t, half=Py_ssize_t, addresses=list)
    cpdef object add(self, int64_t address)
    @cython.locals(at=Py_ssize_t, addresses=list)
    cpdef object remove(self, int64_t address)
    @cython.locals(at=Py_ssize_t, place=Py_ssize_t, addresses=list)
    cpdef int64_t at_or_before(self, int64_t address) except? -2
    cdef Py_ssize_t _list_of(self, int64_t address) except -1


@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, here=int64_t)
cdef Py_ssize_t _up_to(list addresses, int64_t address) except -1

@cython.final
@cython.no_gc  # `rest` holds numbers
cdef class ObservedChunk:
    cdef readonly int64_t address
    cdef readonly int64_t size
    cdef readonly uint32_t handle
    cdef readonly uint16_t slot
    cdef readonly int64_t before
    cdef readonly bint is_free
    cdef readonly int64_t requested
    cdef readonly uint32_t label
    cdef readonly uint16_t thread
    cdef readonly uint16_t stream
    cdef readonly uint64_t born
    cdef readonly object rest


@cython.locals(chunk=ObservedChunk)
cdef ObservedChunk _new_chunk(int64_t address, int64_t size, uint32_t handle, uint16_t slot, int64_t before)


@cython.final
cdef class SpareNumbers:
    cdef uint32_t _next
    cdef int64_t _latest
    cdef list _spare

    @cython.locals(number=int64_t)
    cdef uint32_t take(self) except? 0xFFFFFFFF
    cdef object give_back(self, uint32_t number)


cdef class Ledger:
    cdef public uint16_t thread
    cdef public uint16_t busy
    cdef readonly object waiting
    cdef readonly object inconsistencies
    cdef readonly dict chunks
    cdef readonly dict regions
    cdef readonly uint64_t num_allocs
    cdef readonly int64_t largest_alloc_size
    cdef readonly int64_t bytes_in_use
    cdef readonly int64_t requested_bytes_in_use
    cdef readonly int64_t peak_bytes_in_use
    cdef readonly int64_t pool_bytes
    cdef readonly int64_t peak_pool_bytes
    cdef EventLog _log
    cdef uint8_t _pool
    cdef list _recent
    cdef SortedAddresses _free_starts
    cdef SortedAddresses _region_starts
    cdef SpareNumbers _handles
    cdef SpareNumbers _slots
    cdef list _ends

    @cython.locals(stop=uint64_t, chunk=ObservedChunk, low=int64_t, high=int64_t, region=int64_t, here=int64_t)
    cpdef object allocate(self, uint64_t address, uint64_t size, int64_t requested, uint32_t label=*, uint16_t stream=*)
    @cython.locals(chunk=ObservedChunk)
    cpdef object free(self, int64_t address)
    cpdef object release(self, int64_t address)
    @cython.locals(at=int64_t, stop=int64_t, chunk=ObservedChunk)
    cpdef object lose(self, int64_t address)
    cpdef object cover(self, uint64_t address, uint64_t size)
    @cython.locals(chunk=ObservedChunk)
    cpdef bint is_in_use(self, object address) except -1
    @cython.locals(chunk=ObservedChunk)
    cpdef int64_t free_size(self, object address) except? -2
    cpdef object oom(self, int64_t requested, uint32_t label=*, uint16_t stream=*)
    @cython.locals(start=int64_t)
    cdef int64_t _region_ending_at(self, int64_t address) except? -2
    @cython.locals(chunk=ObservedChunk)
    cdef bint _is_wholly_free(self, int64_t region) except -1
    @cython.locals(new=int64_t, low=int64_t, high=int64_t, region=int64_t, last=int64_t, begin=int64_t, size=int64_t)
    cdef bint _cover(self, int64_t start, int64_t stop, bint asked) except -1
    cdef bint _joins(self, int64_t last, int64_t begin) except -1
    @cython.locals(slot=uint16_t)
    cdef object _extend(self, int64_t address, int64_t size, int64_t requested, bint granted)
    cdef object _grow(self, int64_t start, int64_t size, int64_t requested)
    @cython.locals(chunk=ObservedChunk, end=ObservedChunk)
    cdef object _add(self, int64_t address, int64_t size, uint16_t slot, int64_t requested, int flags)
    @cython.locals(chunk=ObservedChunk)
    cdef object _remove(self, int64_t start)
    @cython.locals(place=Py_ssize_t, recent=ObservedChunk, chunk=ObservedChunk)
    cdef ObservedChunk _chunk_at(self, int64_t address)
    @cython.locals(chunk=ObservedChunk, largest=int64_t)
    cdef int64_t _largest_free(self) except? -2
    @cython.locals(start=int64_t, chunk=ObservedChunk)
    cdef int64_t _free_chunk_around(self, int64_t low, int64_t high) except? -2
    @cython.locals(region=int64_t, starts=SortedAddresses)
    cdef int64_t _free_start_before(self, int64_t address) except? -2
    @cython.locals(start=int64_t, chunk=ObservedChunk, bin=int)
    cdef object _occupy_within(self, int64_t low, int64_t high, int64_t requested, uint32_t label, uint16_t stream, rest)
    cdef object _occupy(self, ObservedChunk chunk, int64_t low, int64_t high, int bin, int64_t requested, uint32_t label, uint16_t stream, rest)
    @cython.locals(after=ObservedChunk)
    cdef object _vacate(self, int64_t address, ObservedChunk chunk)
    @cython.locals(rest=ObservedChunk, size=int64_t)
    cdef object _split(self, int64_t start, ObservedChunk parent, int64_t at, int flags)
    @cython.locals(before=ObservedChunk)
    cdef object _merge_with_previous(self, int64_t address, ObservedChunk chunk)
    cdef object _merge(self, ObservedChunk kept, int64_t survivor, ObservedChunk gone, int64_t absorbed)
    @cython.locals(after=ObservedChunk)
    cdef object _link(self, ObservedChunk old, ObservedChunk new, int64_t before, int64_t address)
    cdef object _note_free(self, int64_t start)
    cdef object _note_used(self, int64_t start)


from bfcviz.events cimport c_reports  # they need the class
