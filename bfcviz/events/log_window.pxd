# The memory a log writes to. log_window.py beside this file is the same in plain Python; the C stands in native.pxd.

from bfcviz.events.event_record cimport Event
from bfcviz.native cimport u8, u64

cdef extern from *:
    void bfc_prefetch(Event *) noexcept nogil
    void bfc_publish_kind(Event *, u8) noexcept nogil
    Event *bfc_map_window(int, u64, u64) noexcept nogil
    Event *bfc_new_window(u64) noexcept nogil
    void bfc_unmap_window(Event *, u64) noexcept nogil
    int close(int) noexcept nogil
    bint bfc_is_cut(const Event *) noexcept nogil
    u64 bfc_file_size(int) noexcept nogil
    void bfc_cut_file(int, u64) noexcept nogil
    int bfc_errno() noexcept nogil

cdef inline Event *new_window(u64 num_bytes) noexcept nogil:
    return bfc_new_window(num_bytes)

# Only as long as the window is there.
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

cdef inline void prefetch(Event *window, u64 index) noexcept nogil:
    bfc_prefetch(window + index)

cdef inline void publish_kind(Event *record, u8 kind) noexcept nogil:
    bfc_publish_kind(record, kind)

cdef inline Event *map_window(int fd, u64 offset, u64 num_bytes) noexcept nogil:
    return bfc_map_window(fd, offset, num_bytes)

cdef inline void unmap_window(Event *window, u64 num_bytes) noexcept nogil:
    bfc_unmap_window(window, num_bytes)

# Whether a record of the window was lost because the file was truncated.
cdef inline bint is_cut(Event *window) noexcept nogil:
    return bfc_is_cut(window)

cdef inline u64 file_size(int fd) noexcept nogil:
    return bfc_file_size(fd)

# Cut a file after its last whole record, to `num_bytes` at most. It never grows.
cdef inline void cut_file(int fd, u64 num_bytes) noexcept nogil:
    bfc_cut_file(fd, num_bytes)

cdef inline void close_file(int fd) noexcept nogil:
    close(fd)

cdef inline int last_error() noexcept nogil:
    return bfc_errno()
