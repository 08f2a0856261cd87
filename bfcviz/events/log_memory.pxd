# The memory that a log writes to (log_memory.h), declared to Cython. log_memory.py is the same in plain Python.

from bfcviz.events.event_record cimport Event
from bfcviz.native cimport u8, u64

cdef extern from "bfcviz/events/log_memory.h" nogil:
    Event *new_window "bfc_new_window"(u64) noexcept
    const u64 SLOT "BFC_SLOT"
    Event *map_slots "bfc_map_slots"(int) noexcept
    void unmap_slots "bfc_unmap_slots"(Event *) noexcept
    bint is_in_slots "bfc_is_in_slots"(const Event *, const Event *) noexcept
    u64 free_slot "bfc_free_slot"(const Event *, int, u64) noexcept
    Event *map_window "bfc_map_window"(Event *, int, u64, u64) noexcept
    void unmap_window "bfc_unmap_window"(Event *, u64) noexcept
    void prefetch "bfc_prefetch"(const Event *, u64) noexcept
    void clear_kind "bfc_clear_kind"(Event *) noexcept
    void publish_kind "bfc_publish_kind"(Event *, u8) noexcept
    bint is_cut "bfc_is_cut"(const Event *) noexcept
    u64 file_size "bfc_file_size"(int) noexcept
    void cut_file "bfc_cut_file"(int, u64) noexcept
    void close_file "close"(int) noexcept
    int last_error "bfc_errno"() noexcept
    bint is_limit "bfc_is_limit"() noexcept

# The memoryview is valid only while the window exists.
cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char *, Py_ssize_t, int)

cdef inline object buffer_of(Event *window, u64 num_bytes):
    return PyMemoryView_FromMemory(<char *>window, num_bytes, 0x200)    # PyBUF_WRITE

cdef inline Event *no_window() noexcept nogil:
    return NULL

cdef inline bint is_no_window(Event *window) noexcept nogil:
    return window == NULL

cdef inline Event *record_at(Event *window, u64 index) noexcept nogil:
    return window + index
