# The heap for C callers; cface.py beside this file is the same through ctypes (see bfcviz/native.pxd).

from bfcviz._heap cimport Heap
from bfcviz.native cimport u64

# The context is a borrowed Heap: whoever handed it out keeps it alive.
cdef inline void *c_allocate(void *context, size_t alignment, size_t num_bytes) noexcept nogil:
    cdef u64 address = (<Heap>context).allocate(num_bytes, alignment if alignment else 1, 0, 0, 0)
    return <void *>address if address >= 256 else NULL

cdef inline void c_free(void *context, void *pointer) noexcept nogil:
    if pointer != NULL and (<Heap>context).free(<u64>pointer) != 0:
        (<Heap>context).reject()

cdef inline tuple functions(Heap heap):
    return <size_t><void *>heap, <size_t>&c_allocate, <size_t>&c_free
