# The memory that a log writes to (log_memory.h), declared to Cython. log_memory.py is the same in plain Python.

from bfcviz.events.event_record cimport Event
from bfcviz.native cimport i64, u8, u32, u64

cdef extern from "bfcviz/events/log_memory.h" nogil:
    Event *new_window "bfc_new_window"(u64) noexcept
    const u64 SLOT "BFC_SLOT"
    Event *map_slots "bfc_map_slots"(int) noexcept
    void unmap_slots "bfc_unmap_slots"(Event *) noexcept
    bint is_in_slots "bfc_is_in_slots"(const Event *, const Event *) noexcept
    u64 free_slot "bfc_free_slot"(const Event *, int, u64) noexcept
    Event *map_window "bfc_map_window"(Event *, int, u64, u64) noexcept
    void unmap_window "bfc_unmap_window"(Event *, u64) noexcept
    void write_record "bfc_write_record"(
        Event *window, u64 index, u64 seq, i64 time, u64 address, u64 size, u64 requested, u32 chunk, u32 other,
        u32 label, u32 thread, u32 stream, u32 region, u32 by, u32 kind, int bin, u32 flags, u32 pool
    ) noexcept
    void bfc_copy_records(void *, const Event *, u64) noexcept
    bint is_cut "bfc_is_cut"(const Event *) noexcept
    u64 file_size "bfc_file_size"(int) noexcept
    void cut_file "bfc_cut_file"(int, u64) noexcept
    void close_file "close"(int) noexcept
    int last_error "bfc_errno"() noexcept
    bint is_limit "bfc_is_limit"() noexcept
    bint note_term "bfc_note_term_of"(const char *path, u64 count_field) noexcept
    void forget_term "bfc_forget_term_of"(u64 count_field) noexcept

# Copy records [first, first + count) of a ring into memory. The GIL is released for copies that take longer than 0.1 ms
# only: a renderer beside a busy thread would wait 5 ms to get it back.
cdef inline void copy_records(u8[::1] into, Event *ring, u64 first, u64 count):
    if count <= 16384:
        bfc_copy_records(&into[0], ring + first, count)
    else:
        with nogil:
            bfc_copy_records(&into[0], ring + first, count)

cdef inline Event *no_window() noexcept nogil:
    return NULL

cdef inline bint is_no_window(Event *window) noexcept nogil:
    return window == NULL
