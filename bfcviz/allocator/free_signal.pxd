cimport cython

from bfcviz cimport native
from bfcviz.native cimport u64


@cython.final
cdef class FreeSignal:
    cdef native.SpinLock *lock      # guards `waiters`
    cdef readonly int waiters
    cdef readonly u64 wakes
    cdef readonly object freed      # threading.Condition: a free notifies the waiting threads

    @cython.locals(before=u64)
    cpdef object try_after_frees(self, object attempt, double seconds, object seen=*)
    cpdef bint wait_for_free(self, u64 seen, double deadline) except -1
    cpdef void wake_waiters(self) noexcept with gil
    cpdef void count_waiter(self, int change) noexcept nogil
