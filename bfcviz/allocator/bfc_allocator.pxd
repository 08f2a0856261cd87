cimport cython
from bfcviz cimport native
from bfcviz.allocator cimport c_api
from bfcviz.allocator.heap cimport Heap
from bfcviz.events.log cimport EventLog
from bfcviz.native cimport i64, u16, u32, u64

cpdef object wait_for_growth(Heap heap, i64 patience)

cpdef u64 allocate_after_free(Heap heap, double seconds, u64 num_bytes, u64 alignment, u64 freed_before, u32 label, u16 stream) except? 0xFFFFFFFFFFFFFFFE

@cython.locals(address=u64)
cpdef object try_heap(Heap heap, u64 num_bytes, u64 alignment, u64 freed_before, u32 label, u16 stream)

@cython.locals(before=u64, released=u64)
cpdef object trim_heap(Heap heap)

@cython.locals(state="void *", returned=u64)
cpdef object return_free_pages(Heap heap, bint only_idle)

cdef class BFCAllocator:
    cdef readonly str name
    cdef readonly object options
    cdef readonly object labels
    cdef readonly object sub_allocator
    cdef readonly EventLog log
    cdef readonly Heap heap
    cdef readonly u64 limit
    cdef object finalizer
    cdef object __weakref__     # a viewer of a heap must not keep its memory alive

    @cython.locals(number=object)
    cdef u32 label_id(self, object label) except? 0

    @cython.locals(address=u64, number=u32, queue=u16)
    cpdef object allocate(self, object num_bytes, object alignment=*, object label=*, object freed_before=*, object stream=*, object attributes=*)

    @cython.locals(reason=int, where=u64)
    cpdef object free(self, object address)
