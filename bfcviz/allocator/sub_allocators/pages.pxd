# Pages from the operating system (pages.h), declared to Cython. pages.py is the same in plain Python.

from bfcviz.native cimport u64

cdef extern from "bfcviz/allocator/sub_allocators/pages.h" nogil:
    u64 page_size "bfc_page_size"() noexcept
    u64 map_pages "bfc_map_pages"(u64 num_bytes, u64 alignment) noexcept
    void unmap_pages "bfc_unmap_pages"(u64 address, u64 num_bytes) noexcept
    void discard_pages "bfc_discard_pages"(u64 address, u64 num_bytes) noexcept
    u64 available_memory "bfc_available_memory"() noexcept
