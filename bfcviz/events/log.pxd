cimport cython
from libc.stdint cimport int64_t, uint32_t

from bfcviz cimport native
from bfcviz.events cimport event_record, log_memory
from bfcviz.native cimport i64, u8, u16, u32, u64


@cython.final
cdef class EventLog:
    cdef event_record.Event *window   # address of record number `base`
    cdef native.SpinLock *lock  # of the heaps that write
    cdef u64 base               # number of the first record of the window
    cdef u64 end                # number of the first record beyond it
    cdef u64 written            # records published so far
    cdef native.Clock *clock
    cdef i64 time               # of the current operation, nanoseconds since the start
    cdef u32 thread             # of the current operation; 32 bits: see log_memory.h
    cdef bint replaying         # operations bring their own time and thread
    cdef u32 pool               # of the current operation
    cdef readonly int pools
    cdef readonly int used_pools
    cdef bint on_file           # records go to the file `fd`; else to a ring in memory
    cdef int fd
    cdef readonly int error     # errno that ended recording to disk, 0 = none
    cdef readonly bint truncated
    cdef readonly u64 capacity
    cdef readonly u64 on_disk            # records written to the file before `error`
    cdef event_record.Event *slots  # the first slots of the file, mapped at once
    cdef u64 place              # of the window in the file, in records
    cdef u64 extent             # of the file: the records of its windows so far
    cdef bint has_ring          # the window is the ring, for the rest of its life
    cdef readonly object path   # of the file, or None

    @cython.locals(ticks=u64)
    cdef inline void lock_and_tick(self, u8 pool) noexcept nogil
    cdef void at(self, i64 time, u16 thread) noexcept nogil
    @cython.locals(records=u64)
    cdef void roll(self) noexcept nogil
    cdef void use_ring(self) noexcept nogil
    cdef bint is_short(self) noexcept nogil
    cdef u64 used_extent(self) noexcept nogil
    cdef void unmap_window(self) noexcept nogil
    cdef void unmap(self) noexcept nogil
    cdef void leave_file(self) noexcept nogil
    cdef void detach(self) noexcept nogil
    @cython.locals(extent=u64, was_on_file=cython.bint)
    cdef object _end_file(self, bint lost)
    @cython.locals(is_short=cython.bint)
    cdef bint _became_short(self)
    cpdef object close(self)
    cdef u64 _copy_from_file(self, into, u64 start) except? 0xFFFFFFFFFFFFFFFF

    # Short fields are 32 bits here: see log_memory.h.
    cdef inline void write(
        self, u32 kind, u32 chunk, u32 region, u64 address, u64 size, u64 requested, u32 other, u32 label, u32 thread, u32 stream, int bin, u32 flags
    ) noexcept nogil
    cdef inline void note_pool(self) noexcept nogil
    cdef void extend(self, u32 chunk, u32 region, u64 address, u64 size, u64 requested, int bin, u32 flags) noexcept nogil
    cdef inline void split(self, u32 chunk, u32 region, u32 other, u64 address, u64 size, int bin, u32 flags) noexcept nogil
    cdef inline void allocate(self, u32 chunk, u32 region, u64 address, u64 size, u64 requested, u64 allocation_id, u32 label, u32 stream, int bin) noexcept nogil
    cdef inline void free(self, u32 chunk, u32 region, u64 address, u64 size, u64 requested, u64 born, u32 label, u32 thread, u32 stream, int bin, u32 flags) noexcept nogil
    cdef inline void merge(self, u32 chunk, u32 region, u32 other, u64 address, u64 size, int bin) noexcept nogil
    cdef void release(self, u32 chunk, u32 region, u64 address, u64 size, int bin) noexcept nogil
    cdef void oom(self, u64 requested, u64 free_bytes, u64 largest, u32 label, u32 stream, int bin) noexcept nogil
    cdef void mark(self, u32 label, u64 value) noexcept nogil

    cpdef int begin_operation(self, i64 time, int thread=*)

    @cython.locals(seq=u64)
    cpdef u64 put(self, u8 kind, u32 chunk, u16 region, u64 address, u64 size, u64 requested, u32 other, u32 label, u16 thread, u16 stream, int bin, u8 flags, u8 pool=*, int by=*) except? 0xFFFFFFFFFFFFFFFF

@cython.locals(found=int64_t, i=Py_ssize_t)
cpdef int64_t highest_label(const uint32_t[:] labels)
