# The functions PyTorch calls for its memory (torch_functions.h), declared to Cython.

from bfcviz.allocator.heap_functions cimport HeapFunctions, unpack
from bfcviz.native cimport u32, u64

cdef extern from "bfcviz/live/torch_error.h":
    ctypedef void (*Thrower "bfc_thrower")(const char *)

    ctypedef struct Cpp "bfc_cpp":
        void *allocate
        void *throw "raise"
        void *make_text
        void *drop_text
        void *make_error
        void **table

    Thrower bfc_out_of_memory_thrower(Cpp)

cdef extern from "bfcviz/live/torch_functions.h":
    void *bfc_torch_alloc(Py_ssize_t, int, void *) nogil
    void bfc_torch_free(void *, size_t, int, void *) nogil
    void bfc_torch_record(void *, void *) nogil
    void bfc_torch_heap_give_back(void *, int, void *) nogil
    int bfc_torch_heap_add(const HeapFunctions *, object, int, u32, u32)
    void bfc_torch_heaps_serve(u32, Thrower, object)
    bint remove "bfc_torch_heap_remove"(object)
    u64 tidy_begin "bfc_tidy_begin"()
    u64 bfc_tidy_wait(u64) nogil
    void tidy_end "bfc_tidy_end"()
    list heaps_of "bfc_torch_heaps_of"(u32)
    void count "bfc_torch_heaps_count"(int noted, int held)
    void end "bfc_torch_heaps_end"()

cdef inline tuple functions():
    return <size_t>&bfc_torch_alloc, <size_t>&bfc_torch_free, <size_t>&bfc_torch_record

cdef inline int add(object allocator, int device, u32 service, u32 labels) except -1:
    functions = allocator.heap_functions()
    if bfc_torch_heap_add(unpack(functions), allocator, device, service, labels):
        raise MemoryError()
    return 0

cdef inline size_t thrower(tuple parts) except 0:
    cdef Cpp cpp
    allocate, throw, make_text, drop_text, make_error, table = parts
    cpp.allocate = <void *><size_t>allocate
    cpp.throw = <void *><size_t>throw
    cpp.make_text = <void *><size_t>make_text
    cpp.drop_text = <void *><size_t>drop_text
    cpp.make_error = <void *><size_t>make_error
    cpp.table = <void **><size_t>table
    return <size_t>bfc_out_of_memory_thrower(cpp)

cdef inline void serve(u32 service, size_t thrower, object deferred):
    bfc_torch_heaps_serve(service, <Thrower>thrower, deferred)

cdef inline void give_back(size_t pointer, int device, size_t stream) noexcept:
    with nogil:
        bfc_torch_heap_give_back(<void *>pointer, device, <void *>stream)

cdef inline u64 tidy_wait(u64 done) noexcept:
    with nogil:
        done = bfc_tidy_wait(done)
    return done
