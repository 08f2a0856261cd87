# The functions NumPy calls for its memory (numpy_functions.h), declared to Cython.

from bfcviz._live cimport Walker
from bfcviz.allocator.heap_functions cimport HeapFunctions, Totals, unpack
from bfcviz.live.stack_walk cimport Walk
from bfcviz.native cimport u32, u64

cdef extern from "bfcviz/live/failure.h":
    ctypedef struct Failure "bfc_failure":
        u64 requested
        Totals totals

cdef extern from "bfcviz/live/numpy_functions.h":
    ctypedef struct PlainHandler "bfc_handler":
        pass

    ctypedef struct Gate "bfc_gate":
        bint is_open "open"
        u64 passed
        u64 unfit
        u64 failures
        Failure last_failure "failure"

    Gate *bfc_gate_new(const HeapFunctions *, const PlainHandler *, size_t, u32, Walk *)
    void delete "bfc_gate_delete"(Gate *) noexcept
    object capsule "bfc_capsule"(Gate *, object)
    void settle "bfc_give_late_ones_back"(Gate *) noexcept

cdef extern from "bfcviz/live/thread_label.h":
    object label_words "bfc_label_words"(object)
    void begin_labels "bfc_label_begin"(object, size_t) noexcept
    void set_label "bfc_label_set"(u64) noexcept

# NULL: no stacks.
cdef inline Walk *walk_of(object walker) except? NULL:
    return NULL if walker is None else (<Walker?>walker).walk

cdef inline Gate *new(object allocator, size_t plain, size_t small, u32 labels, object walker) except NULL:
    functions = allocator.heap_functions()
    cdef Gate *made = bfc_gate_new(unpack(functions), <const PlainHandler *>plain, small, labels, walk_of(walker))
    if made == NULL:
        raise MemoryError()
    return made

cdef inline tuple failure(Gate *gate):
    last = gate.last_failure
    return gate.failures, last.requested, last.totals.pool, last.totals.in_use, last.totals.largest_free
