# C functions of the heap; c_api.py is the same through ctypes (see bfcviz/native.pxd).

from bfcviz cimport native
from bfcviz._heap cimport Heap, requested_at
from bfcviz.allocator.heap_functions cimport HeapFunctions, Totals, pack
from bfcviz.native cimport u32, u64

# The context is a borrowed Heap: its allocator keeps it alive.
cdef inline void *c_allocate(void *context, size_t alignment, size_t num_bytes) noexcept nogil:
    cdef u64 address = (<Heap>context).allocate(num_bytes, alignment if alignment else 1, 0, 0, 0)
    return <void *>address if address >= 256 else NULL

# A C callback cannot raise.
cdef inline void count_rejected_free(Heap heap) noexcept nogil:
    native.spin_lock(heap.lock)
    heap.rejected_frees += 1
    native.spin_unlock(heap.lock)

cdef inline void c_free(void *context, void *pointer) noexcept nogil:
    if pointer != NULL and (<Heap>context).free(<u64>pointer) != 0:
        count_rejected_free(<Heap>context)

# For bfcviz.live (heap_functions.h).
cdef inline void *c_serve(void *context, size_t num_bytes, u32 label) noexcept nogil:
    cdef u64 address = (<Heap>context).allocate(num_bytes, 1, 0, label, 0)
    return <void *>address if address >= 256 else NULL

# The caller gets the memory elsewhere if there is none.
cdef inline void *c_serve_if_it_fits(void *context, size_t num_bytes, u32 label) noexcept nogil:
    cdef u64 address = (<Heap>context).request(num_bytes, 1, 0, label, 0, False)
    return <void *>address if address >= 256 else NULL

# 0, or why no chunk in use begins at the pointer; a closed heap has no chunks.
cdef inline int c_take_back(void *context, void *pointer) noexcept nogil:
    return native.FREE_FOREIGN if (<Heap>context).closed else (<Heap>context).free(<u64>pointer)

cdef inline u64 c_requested(void *context, void *pointer) noexcept nogil:
    return requested_at(<Heap>context, <u64>pointer)

cdef inline void c_totals(void *context, Totals *totals) noexcept nogil:
    native.spin_lock((<Heap>context).lock)
    totals.pool = (<Heap>context).space.pool_bytes
    totals.in_use = (<Heap>context).space.bytes_in_use
    totals.largest_free = (<Heap>context).space.largest_free()
    native.spin_unlock((<Heap>context).lock)

cdef inline object heap_functions(Heap heap):
    cdef HeapFunctions made = HeapFunctions(<void *>heap, c_serve, c_serve_if_it_fits, c_take_back, c_requested, c_totals)
    return pack(&made)

cdef inline tuple functions(Heap heap):
    return <size_t><void *>heap, <size_t>&c_allocate, <size_t>&c_free
