# The memory of a heap: arrays of C structs, and pages from the operating system; heap_memory.py is the same in plain
# Python (see bfcviz/native.pxd).

from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove

from bfcviz.native cimport u8, u16, u32, u64

# One cache line a chunk. Invariants: `prev` and `next` are its neighbours in the same region, NONE at its ends;
# `allocation_id` is 0 exactly when the chunk is free; `binned` is 1 exactly when it is in the bins.
cdef struct Chunk:
    u64 address
    u64 size
    u64 requested       # of the last allocation: not cleared on free, as in TensorFlow
    u64 allocation_id
    u64 freed_at        # value of the timing counter when it was freed, 0 = safe to merge
    u32 born            # low bits of the number of its ALLOCATE event
    u32 prev
    u32 next            # in a free handle: the next free handle
    u32 label
    u16 region          # slot
    u16 thread
    u16 stream
    u8 binned

cdef struct Key:        # sort key of the bins
    u64 size
    u64 address

cdef struct Region:
    u64 address
    u64 size
    u32 first           # handle of its first chunk
    u16 slot

cdef inline Chunk *chunk_at(Chunk *chunks, u32 handle) noexcept nogil:
    return chunks + handle

cdef inline Key *key_at(Key *keys, u32 handle) noexcept nogil:
    return keys + handle

cdef inline Region *region_at(Region *regions, u32 index) noexcept nogil:
    return regions + index

# Grow arrays. NULL means that the machine has no memory; the old array is then still valid.
cdef inline Chunk *grow_chunks(Chunk *old, u64 count) noexcept nogil:
    return <Chunk *>realloc(old, count * sizeof(Chunk))

cdef inline Key *grow_keys(Key *old, u64 count) noexcept nogil:
    return <Key *>realloc(old, count * sizeof(Key))

cdef inline Region *grow_regions(Region *old, u64 count) noexcept nogil:
    return <Region *>realloc(old, count * sizeof(Region))

cdef inline u32 *grow_u32(u32 *old, u64 count) noexcept nogil:
    return <u32 *>realloc(old, count * sizeof(u32))

cdef inline u8 *new_u8(u64 count) noexcept nogil:     # zeros
    return <u8 *>calloc(count, 1)

cdef inline bint is_null(void *array) noexcept nogil:
    return array == NULL

cdef inline void release(void *array) noexcept nogil:
    free(array)

cdef inline Chunk *no_chunks() noexcept nogil:
    return NULL

cdef inline Key *no_keys() noexcept nogil:
    return NULL

cdef inline Region *no_regions() noexcept nogil:
    return NULL

cdef inline u8 *no_u8() noexcept nogil:
    return NULL

cdef inline u32 *no_u32() noexcept nogil:
    return NULL

# Move regions[index:count] up by one, or regions[index + 1:count + 1] down.
cdef inline void open_gap(Region *regions, u64 index, u64 count) noexcept nogil:
    memmove(regions + index + 1, regions + index, (count - index) * sizeof(Region))

cdef inline void close_gap(Region *regions, u64 index, u64 count) noexcept nogil:
    memmove(regions + index, regions + index + 1, (count - index) * sizeof(Region))

# Pages from the operating system (pages.h).
cdef extern from "bfcviz/allocator/pages.h" nogil:
    u64 page_size "bfc_page_size"() noexcept
    u64 map_pages "bfc_map_pages"(u64 num_bytes, u64 alignment) noexcept
    void unmap_pages "bfc_unmap_pages"(u64 address, u64 num_bytes) noexcept
    void discard_pages "bfc_discard_pages"(u64 address, u64 num_bytes) noexcept
    u64 available_memory "bfc_available_memory"() noexcept
