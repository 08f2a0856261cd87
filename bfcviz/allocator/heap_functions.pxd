# The C functions that a framework's memory functions call (heap_functions.h), declared to Cython.

from libc.stdint cimport uint32_t, uint64_t

cdef extern from "bfcviz/allocator/heap_functions.h":
    ctypedef struct Totals "bfc_totals":
        uint64_t pool
        uint64_t in_use
        uint64_t largest_free

    ctypedef struct HeapFunctions "bfc_heap_functions":
        void *heap
        void *(*serve)(void *, size_t, uint32_t) noexcept nogil
        void *(*serve_if_it_fits)(void *, size_t, uint32_t) noexcept nogil
        int (*take_back)(void *, void *) noexcept nogil
        uint64_t (*requested)(void *, void *) noexcept nogil
        void (*totals)(void *, Totals *) noexcept nogil

    object pack "bfc_heap_functions_pack"(const HeapFunctions *)
    const HeapFunctions *unpack "bfc_heap_functions_unpack"(object) except NULL
