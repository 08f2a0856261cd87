# The C primitives (bfcviz/c/*.h), declared to Cython; native.py beside this file is the same in plain Python.
# A compiled module does `from bfcviz cimport native` in its .pxd and `from bfcviz import native` in its .py:
# `native.clock_at()` is then the C function when compiled and the Python one when not.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

ctypedef uint8_t u8
ctypedef uint16_t u16
ctypedef uint32_t u32
ctypedef uint64_t u64
ctypedef int64_t i64

cdef inline bint is_compiled() noexcept nogil:
    return True

cdef extern from "bfcviz/c/constants.h" nogil:
    enum:
        MIN_CHUNK "BFC_MIN_CHUNK"
        NUM_BINS "BFC_NUM_BINS"
        ROWS "BFC_ROWS"
        TREES "BFC_TREES"
        MAX_REGIONS "BFC_MAX_REGIONS"
        FIRST_REGION "BFC_FIRST_REGION"
        PAGES_FROM "BFC_PAGES_FROM"
        PAGE_BLOCK "BFC_PAGE_BLOCK"
        PAGE_BLOCKS "BFC_PAGE_BLOCKS"
        PAGE_SLICE "BFC_PAGE_SLICE"
        PAGE_LOOKS "BFC_PAGE_LOOKS"
        KEEP_PAGES "BFC_KEEP_PAGES"
        KEEP_MOST "BFC_KEEP_MOST"
        IDLE_PAGES "BFC_IDLE_PAGES"
        ALL_PAGES "BFC_ALL_PAGES"
        FAILED_MEMORY "BFC_FAILED_MEMORY"
        FAILED_SIZE "BFC_FAILED_SIZE"
        FAILED_ALIGNMENT "BFC_FAILED_ALIGNMENT"
        FAILED_TABLES "BFC_FAILED_TABLES"
        FAILED_GRANT "BFC_FAILED_GRANT"
        FAILED_CLOSED "BFC_FAILED_CLOSED"
        FAILED_FORKED "BFC_FAILED_FORKED"
        FREE_DOUBLE "BFC_FREE_DOUBLE"
        FREE_INTERIOR "BFC_FREE_INTERIOR"
        FREE_FOREIGN "BFC_FREE_FOREIGN"
        FREE_TABLES "BFC_FREE_TABLES"
    const u32 NONE "BFC_NONE"
    const u64 LOW_32 "BFC_LOW_32"
    const u64 MAX_REQUEST "BFC_MAX_REQUEST"
    const u64 HALF_SPACE "BFC_HALF_SPACE"
    const i64 SECOND "BFC_SECOND"
    const i64 LONG_AGO "BFC_LONG_AGO"

cdef extern from "bfcviz/c/clock.h" nogil:
    ctypedef struct Clock "bfc_clock":
        pass
    Clock *clock_new "bfc_clock_new"() noexcept
    void clock_delete "free"(Clock *) noexcept
    void clock_anchor "bfc_clock_anchor"(Clock *) noexcept
    i64 clock_at "bfc_clock_at"(const Clock *, u64, i64) noexcept

cdef extern from "bfcviz/c/thread_number.h" nogil:
    u16 thread_number "bfc_thread_number"() noexcept
    u16 named_threads "bfc_named_threads"() noexcept
    const char *thread_name "bfc_thread_name"(u16) noexcept

cdef extern from "bfcviz/c/mutex.h" nogil:
    ctypedef struct Mutex "bfc_mutex":
        pass
    void mutex_lock "bfc_mutex_lock"(Mutex *) noexcept
    void mutex_unlock "bfc_mutex_unlock"(Mutex *) noexcept
    void bfc_mutex_wait(Mutex *, i64) noexcept

# Wait until no other thread holds the mutex, for at most `patience` nanoseconds. The caller holds the GIL.
cdef inline void mutex_wait(Mutex *mutex, i64 patience) noexcept:
    with nogil:
        bfc_mutex_wait(mutex, patience)

cdef extern from "bfcviz/c/spinlock.h" nogil:
    ctypedef struct SpinLock "bfc_spinlock":
        pass
    void spin_lock "bfc_spin_lock"(SpinLock *) noexcept
    u64 spin_lock_timed "bfc_spin_lock_timed"(SpinLock *) noexcept
    void spin_unlock "bfc_spin_unlock"(SpinLock *) noexcept

cdef extern from "bfcviz/c/lock_list.h" nogil:
    Mutex *mutex_new "bfc_mutex_new"() noexcept
    void mutex_delete "bfc_mutex_delete"(Mutex *) noexcept
    SpinLock *spinlock_new "bfc_spinlock_new"() noexcept
    void spinlock_delete "bfc_spinlock_delete"(SpinLock *) noexcept
    u64 generation "bfc_generation"() noexcept

# release_gil and take_gil surround long calls from Python; no Python code may run between the two, and no reference may
# be counted: not even an attribute may be passed that is an object.
# check_signals raises the exception of Ctrl-C or of another signal's handler.
cdef extern from "Python.h":
    void *release_gil "PyEval_SaveThread"() noexcept nogil
    void take_gil "PyEval_RestoreThread"(void *) noexcept nogil
    int check_signals "PyErr_CheckSignals"() except -1
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1
    object PyNumber_Index(object)

cdef extern from "bfcviz/c/numbers.h" nogil:
    int low_bit "bfc_low_bit"(u64) noexcept
    int high_bit "bfc_high_bit"(u64) noexcept
    u32 bit_32 "bfc_bit_32"(int) noexcept
    u64 bit_64 "bfc_bit_64"(int) noexcept
    u64 above "bfc_above"(int) noexcept
    u64 wrap_64 "bfc_wrap_64"(u64) noexcept
    int bin_of "bfc_bin_of"(u64) noexcept
    u32 scramble "bfc_scramble"(u32) noexcept
    u64 spread "bfc_spread"(u64, int) noexcept
    u64 nine_tenths "bfc_nine_tenths"(u64) noexcept

cdef extern from "bfcviz/c/numbers.h":
    u64 bfc_u64(object) noexcept

# The integer, or 2^64 - 1 if it does not fit; no size or address has that value. Raises TypeError without an integer.
# The signed conversion is several times as fast as the unsigned one.
cdef inline u64 to_u64(object x) except? 0xFFFFFFFFFFFFFFFE:
    cdef int overflow
    cdef long long value = PyLong_AsLongLongAndOverflow(x, &overflow)
    return <u64>value if value >= 0 else bfc_u64(PyNumber_Index(x))
