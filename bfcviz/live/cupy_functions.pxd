# The functions CuPy calls for its memory (cupy_functions.h), declared to Cython.

from bfcviz.allocator.heap_functions cimport HeapFunctions, unpack
from bfcviz.live.numpy_functions cimport walk_of
from bfcviz.live.stack_walk cimport Walk
from bfcviz.native cimport u32, u64

cdef extern from "bfcviz/live/cupy_functions.h":
    ctypedef struct Gate "bfc_cu":
        int held
        int late
        int inside
        u64 out

    ctypedef size_t StreamOf "bfc_cu_stream_of"     # a C function's address

    Gate *bfc_cu_new(object, object, StreamOf, u32, Walk *)
    int bfc_cu_add(Gate *, const HeapFunctions *, object, int, long long)
    void move "bfc_cu_move"(Gate *, int, long long, long long)
    void delete "bfc_cu_delete"(Gate *) noexcept
    void end "bfc_cu_end"(Gate *) noexcept
    void bfc_cu_give_back(Gate *, void *, int)
    void *bfc_cu_malloc(void *, size_t, int)
    void bfc_cu_free(void *, void *, int)
    long long stream "bfc_cu_stream"(Gate *, int) except? -1

cdef inline Gate *new(object owner, object stream_heaps, size_t stream_of, u32 labels, object walker) except NULL:
    cdef Gate *made = bfc_cu_new(owner, stream_heaps, <StreamOf>stream_of, labels, walk_of(walker))
    if made == NULL:
        raise MemoryError()
    return made

cdef inline object add(Gate *made, object allocator, int device, long long stream):
    functions = allocator.heap_functions()
    if bfc_cu_add(made, unpack(functions), allocator, device, stream):
        raise MemoryError()

# For CFunctionAllocator: `param`, `malloc`, `free`.
cdef inline tuple functions(Gate *made):
    return <size_t>made, <size_t>&bfc_cu_malloc, <size_t>&bfc_cu_free

cdef inline void give_back(Gate *made, size_t pointer, int device) noexcept:
    bfc_cu_give_back(made, <void *>pointer, device)

# -- observed

cdef extern from "bfcviz/live/cupy_functions.h":
    ctypedef size_t DeviceOf "bfc_cu_device_of"     # a C function's address

    object bfc_cu_watch_new(StreamOf, DeviceOf, u32, object, Walk *)
    object methods "bfc_cu_methods"(object)
    int watch_add "bfc_cu_watch_add"(object, int, object) except -1
    void watch_stream "bfc_cu_watch_stream"(object, long long, int)
    void watch_open "bfc_cu_watch_open"(object, object)
    void watch_grants "bfc_cu_watch_grants"(object, int)

cdef inline object watch(size_t stream_of, size_t device_of, u32 labels, object walker):
    return bfc_cu_watch_new(<StreamOf>stream_of, <DeviceOf>device_of, labels, walker, walk_of(walker))
