# Which Python stack this is, as a number (stack_walk.h), declared to Cython.

from bfcviz.native cimport u32, u64

cdef extern from "bfcviz/live/stack_walk.h":
    ctypedef struct Walk "bfc_walk":
        size_t count
        u64 missed

    ctypedef void *FrameBack "bfc_frame_back"       # C functions
    ctypedef void *FrameLasti "bfc_frame_lasti"

    Walk *bfc_walk_new(FrameBack, FrameLasti, object, u32, size_t)
    void delete "bfc_walk_delete"(Walk *) noexcept
    u32 number "bfc_walk_number"(void *, u32)

cdef inline Walk *new(object api, object name_stack, u32 depth, size_t most) except NULL:
    back, lasti = api
    cdef Walk *made = bfc_walk_new(<FrameBack><size_t>back, <FrameLasti><size_t>lasti, name_stack, depth, most)
    if made == NULL:
        raise MemoryError()
    return made

cdef inline tuple hook(Walk *walk):
    return <size_t><void *>walk, <size_t>&number
