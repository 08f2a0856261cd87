# What only C can say, as inline functions; native.py beside this file is the same in plain Python.
# A compiled module does `from bfcviz cimport native` in its .pxd and `from bfcviz import native` in its .py:
# `native.ticks()` is then the C function when compiled and the Python one when not.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

ctypedef uint8_t u8
ctypedef uint16_t u16
ctypedef uint32_t u32
ctypedef uint64_t u64
ctypedef int64_t i64

cdef extern from *:
    """
    #ifndef BFCVIZ_NATIVE
    #define BFCVIZ_NATIVE
    #include <errno.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <dlfcn.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <time.h>
    #include <unistd.h>
    #if defined(__x86_64__)
    #include <cpuid.h>
    #include <x86intrin.h>
    #endif

    #include "bfcviz/events/event_record.h"

    /* ---- clock: the CPU's time stamp counter where it is invariant, else the system's monotonic clock ---- */
    typedef struct {
        int64_t origin_ns, anchor_ns;   /* monotonic time of the start; time (from the start) at the anchor */
        uint64_t first_ticks, anchor_ticks;
        uint64_t scale;                 /* nanoseconds per tick, 32.32 fixed point */
        int counter;                    /* whether the time stamp counter is used */
    } bfc_clock;

    static int64_t bfc_monotonic_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    #if defined(__x86_64__)
    static inline uint64_t bfc_ticks(void) { return __rdtsc(); }
    static int bfc_has_counter(void) {
        unsigned a, b, c, d;
        return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 256);   /* invariant TSC */
    }
    #else
    static inline uint64_t bfc_ticks(void) { return 0; }
    static int bfc_has_counter(void) { return 0; }
    #endif

    static inline int64_t bfc_clock_read(const bfc_clock *c) {
        if (!c->counter) return bfc_monotonic_ns() - c->origin_ns;
        return c->anchor_ns + (int64_t)(((unsigned __int128)(bfc_ticks() - c->anchor_ticks) * c->scale) >> 32);
    }
    /* Learn the counter's rate anew over the whole time since the start; never steps back. */
    static void bfc_clock_anchor(bfc_clock *c) {
        if (!c->counter) return;
        int64_t before = bfc_clock_read(c), now = bfc_monotonic_ns() - c->origin_ns;
        uint64_t ticks = bfc_ticks();
        if (ticks <= c->first_ticks || now <= 0) { c->counter = 0; return; }
        c->scale = (uint64_t)(((unsigned __int128)now << 32) / (ticks - c->first_ticks));
        c->anchor_ticks = ticks;
        c->anchor_ns = now > before ? now : before;
    }
    static bfc_clock *bfc_clock_new(void) {
        bfc_clock *c = (bfc_clock *)calloc(1, sizeof *c);
        if (!c) return c;
        c->origin_ns = bfc_monotonic_ns();
        c->counter = bfc_has_counter();
        if (!c->counter) return c;
        c->first_ticks = c->anchor_ticks = bfc_ticks();
        while (bfc_monotonic_ns() - c->origin_ns < 500000) {}   /* 0.5 ms: good to about 100 ppm at once */
        bfc_clock_anchor(c);
        return c;
    }

    /* ---- threads and locks ---- */
    static uint16_t bfc_threads_seen = 0;
    static __thread uint16_t bfc_thread __attribute__((tls_model("initial-exec"))) = 0;
    static inline uint16_t bfc_thread_number(void) {
        if (!bfc_thread) bfc_thread = __atomic_add_fetch(&bfc_threads_seen, 1, __ATOMIC_RELAXED);
        return bfc_thread;
    }

    /* Whether this thread has the GIL. PyGILState_Check cannot tell: once there was a sub-interpreter it always says
       yes. The limited interface lacks what can, so it is found by name. Since Python 3.12 the current state is of the
       thread, before of the process. */
    typedef PyThreadState *(*bfc_state_of)(void);
    static bfc_state_of bfc_current_state = 0;
    static void bfc_find_current_state(void) {
        if (!bfc_current_state) bfc_current_state = (bfc_state_of)dlsym(RTLD_DEFAULT, "PyThreadState_GetUnchecked");
        if (!bfc_current_state) bfc_current_state = (bfc_state_of)dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet");
    }
    static int bfc_has_gil(void) {
        PyThreadState *current = bfc_current_state ? bfc_current_state() : 0;
        return current && (Py_Version >= 0x030C0000 || current == PyGILState_GetThisThreadState());
    }

    /* A lock for critical sections of well under a microsecond: one exchange to take, one store to leave. */
    typedef struct bfc_spinlock { char locked; struct bfc_spinlock *next; } bfc_spinlock;
    static inline int bfc_spin_try(bfc_spinlock *l) { return !__atomic_exchange_n(&l->locked, 1, __ATOMIC_ACQUIRE); }
    static inline void bfc_spin_leave(bfc_spinlock *l) { __atomic_store_n(&l->locked, 0, __ATOMIC_RELEASE); }
    static void bfc_spin_pause(int turn) {   /* the holder may have been preempted: first wait, then make way */
        if (turn < 100) {
    #if defined(__x86_64__)
            _mm_pause();
    #endif
        } else if (turn < 200) {
            sched_yield();
        } else {
            struct timespec t = {0, 20000};
            nanosleep(&t, 0);
        }
    }
    static void bfc_spin_wait(bfc_spinlock *l) {
        int has_gil = bfc_has_gil();
        for (int turn = 0; !bfc_spin_try(l); turn++) {
            PyThreadState *mine = turn >= 100 && has_gil ? PyEval_SaveThread() : 0;
            bfc_spin_pause(turn);
            if (mine) PyEval_RestoreThread(mine);
        }
    }

    /* A lock that may be held for long. */
    typedef struct bfc_mutex { pthread_mutex_t mutex; uint16_t owner; struct bfc_mutex *next; } bfc_mutex;
    static void bfc_mutex_lock(bfc_mutex *m) {
        while (pthread_mutex_trylock(&m->mutex)) {
            if (!bfc_has_gil()) { pthread_mutex_lock(&m->mutex); break; }
            PyThreadState *mine = PyEval_SaveThread();
            pthread_mutex_lock(&m->mutex);
            pthread_mutex_unlock(&m->mutex);
            PyEval_RestoreThread(mine);
        }
        m->owner = bfc_thread_number();
    }
    static void bfc_mutex_unlock(bfc_mutex *m) { m->owner = 0; pthread_mutex_unlock(&m->mutex); }
    /* Wait until no other thread holds it, for so many nanoseconds at most. */
    static void bfc_mutex_settle(bfc_mutex *m, int64_t patience) {
        struct timespec until;
        if (m->owner == bfc_thread_number()) return;
        clock_gettime(CLOCK_REALTIME, &until);
        patience += until.tv_nsec;
        until.tv_sec += patience / 1000000000;
        until.tv_nsec = patience % 1000000000;
        if (!pthread_mutex_timedlock(&m->mutex, &until)) pthread_mutex_unlock(&m->mutex);
    }

    /* All locks there are. A fork takes the spinlocks, whose holders never wait for the GIL, so that the child's copy of
       what they guard is whole. In the child other threads' mutexes are free: those threads are not there. */
    static pthread_mutex_t bfc_listing = PTHREAD_MUTEX_INITIALIZER;
    static bfc_spinlock *bfc_spinlocks = 0;
    static bfc_mutex *bfc_mutexes = 0;
    static uint64_t bfc_generation = 0;     /* forks from the first process to this one */
    static void bfc_take_locks(void) {
        pthread_mutex_lock(&bfc_listing);
        for (bfc_spinlock *l = bfc_spinlocks; l; l = l->next)
            for (int turn = 0; !bfc_spin_try(l); turn++) bfc_spin_pause(turn);
    }
    static void bfc_leave_locks(void) {
        for (bfc_spinlock *l = bfc_spinlocks; l; l = l->next) bfc_spin_leave(l);
        pthread_mutex_unlock(&bfc_listing);
    }
    static void bfc_free_locks_in_child(void) {
        for (bfc_mutex *m = bfc_mutexes; m; m = m->next)
            if (m->owner != bfc_thread_number()) { pthread_mutex_init(&m->mutex, 0); m->owner = 0; }
        bfc_generation++;
        bfc_leave_locks();
    }
    static void bfc_list_locks(bfc_spinlock *l, bfc_mutex *m) {
        static int minds_forks = 0;
        pthread_mutex_lock(&bfc_listing);
        bfc_find_current_state();
        if (!minds_forks) minds_forks = !pthread_atfork(bfc_take_locks, bfc_leave_locks, bfc_free_locks_in_child);
        if (l) { l->next = bfc_spinlocks; bfc_spinlocks = l; }
        if (m) { m->next = bfc_mutexes; bfc_mutexes = m; }
        pthread_mutex_unlock(&bfc_listing);
    }
    static bfc_spinlock *bfc_spinlock_new(void) {
        bfc_spinlock *l = (bfc_spinlock *)calloc(1, sizeof *l);
        if (l) bfc_list_locks(l, 0);
        return l;
    }
    static bfc_mutex *bfc_mutex_new(void) {
        bfc_mutex *m = (bfc_mutex *)calloc(1, sizeof *m);
        if (!m) return m;
        pthread_mutex_init(&m->mutex, 0);
        bfc_list_locks(0, m);
        return m;
    }
    static void bfc_spinlock_delete(bfc_spinlock *l) {
        pthread_mutex_lock(&bfc_listing);
        for (bfc_spinlock **link = &bfc_spinlocks; *link; link = &(*link)->next)
            if (*link == l) { *link = l->next; break; }
        pthread_mutex_unlock(&bfc_listing);
        free(l);
    }
    static void bfc_mutex_delete(bfc_mutex *m) {
        if (!m) return;
        pthread_mutex_lock(&bfc_listing);
        for (bfc_mutex **link = &bfc_mutexes; *link; link = &(*link)->next)
            if (*link == m) { *link = m->next; break; }
        pthread_mutex_unlock(&bfc_listing);
        pthread_mutex_destroy(&m->mutex);
        free(m);
    }

    /* ---- memory ---- */
    static inline void bfc_prefetch(bfc_event *r) { __builtin_prefetch(r, 1); }   /* never faults */
    static inline void bfc_publish_kind(bfc_event *r, uint8_t kind) {
        __atomic_store_n(&r->kind, kind, __ATOMIC_RELEASE);   /* after the record's other fields, */
        __atomic_thread_fence(__ATOMIC_RELEASE);              /* before the count that lets readers at it */
    }

    /* ---- windows of a file that another process may truncate ----
       A write behind the end of a mapped file raises SIGBUS, and would end the user's program. To write each record by
       a system call costs several times the record, and a look at the file's size before each still leaves a gap. So
       a handler is there while a window of a file is mapped. It answers for addresses in such a window alone: it puts
       anonymous memory in the place of what was lost, and notes that. All else goes to the handler before it. */
    typedef struct bfc_guard {
        struct bfc_guard *next;     /* never freed: the handler may be here */
        uintptr_t start, stop;      /* stop 0: free for another window */
        int used, cut;
    } bfc_guard;
    static bfc_guard *bfc_guards = 0;
    static int bfc_guarded = 0;     /* windows */
    static struct sigaction bfc_before;
    static __thread int bfc_in_handler __attribute__((tls_model("initial-exec"))) = 0;

    static void bfc_on_bus(int number, siginfo_t *info, void *context);
    static int bfc_is_installed(void) {
        struct sigaction now;
        return !sigaction(SIGBUS, 0, &now) && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == bfc_on_bus;
    }
    static void bfc_by_default(void) {
        struct sigaction plain;
        memset(&plain, 0, sizeof plain);
        plain.sa_handler = SIG_DFL;
        sigaction(SIGBUS, &plain, 0);
    }
    static int bfc_replace_lost(uintptr_t at) {
        for (bfc_guard *g = __atomic_load_n(&bfc_guards, __ATOMIC_SEQ_CST); g; g = g->next) {
            uintptr_t stop = __atomic_load_n(&g->stop, __ATOMIC_SEQ_CST), start = __atomic_load_n(&g->start, __ATOMIC_SEQ_CST);
            if (at < start || at >= stop || stop != __atomic_load_n(&g->stop, __ATOMIC_SEQ_CST)) continue;
            uintptr_t page = at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
            int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
            if (mmap((void *)page, stop - page, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) return 0;
            __atomic_store_n(&g->cut, 1, __ATOMIC_SEQ_CST);
            return 1;
        }
        return 0;
    }
    static void bfc_on_bus(int number, siginfo_t *info, void *context) {
        int error = errno, is_fault = info->si_code > 0;
        if (is_fault && bfc_replace_lost((uintptr_t)info->si_addr)) { errno = error; return; }
        struct sigaction before = bfc_before;
        int is_function = before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
        if (!is_function || bfc_in_handler) {   /* in it: the handler before calls us as the one before it */
            if (before.sa_handler == SIG_IGN && !is_fault) return;
            bfc_by_default();
            if (!is_fault) raise(number);   /* comes when this returns; so does a fault, anew */
            return;
        }
        bfc_in_handler = 1;
        if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context);
        else before.sa_handler(number);
        bfc_in_handler = 0;
        sigset_t pending;   /* faulthandler raises the signal again, for the one before it: that must not be us */
        if (!sigpending(&pending) && sigismember(&pending, number) && bfc_is_installed()) bfc_by_default();
        errno = error;
    }
    /* Others may have put theirs before ours (faulthandler.enable), so this is asked for each window. */
    static void bfc_install(void) {
        struct sigaction ours;
        if (bfc_is_installed()) return;
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = bfc_on_bus;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGBUS, 0, &bfc_before);
        sigaction(SIGBUS, &ours, 0);
    }
    static bfc_guard *bfc_guard_of(const void *window) {
        for (bfc_guard *g = __atomic_load_n(&bfc_guards, __ATOMIC_SEQ_CST); g && window; g = g->next)
            if (g->stop && g->start == (uintptr_t)window) return g;
        return 0;
    }
    static void bfc_guard_window(void *window, uint64_t bytes) {
        bfc_guard *g = __atomic_load_n(&bfc_guards, __ATOMIC_SEQ_CST);
        while (g && __atomic_exchange_n(&g->used, 1, __ATOMIC_SEQ_CST)) g = g->next;
        if (!g) {
            g = (bfc_guard *)calloc(1, sizeof *g);
            if (!g) return;
            g->used = 1;
            g->next = __atomic_load_n(&bfc_guards, __ATOMIC_SEQ_CST);
            while (!__atomic_compare_exchange_n(&bfc_guards, &g->next, g, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
        }
        g->cut = 0;
        __atomic_store_n(&g->start, (uintptr_t)window, __ATOMIC_SEQ_CST);
        __atomic_store_n(&g->stop, (uintptr_t)window + bytes, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&bfc_guarded, 1, __ATOMIC_SEQ_CST);
        bfc_install();
    }
    static void bfc_leave_window(void *window) {
        bfc_guard *g = bfc_guard_of(window);
        if (!g) return;
        __atomic_store_n(&g->stop, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&g->used, 0, __ATOMIC_SEQ_CST);
        if (!__atomic_sub_fetch(&bfc_guarded, 1, __ATOMIC_SEQ_CST) && bfc_is_installed()) sigaction(SIGBUS, &bfc_before, 0);
    }
    static int bfc_is_cut(const void *window) {
        bfc_guard *g = bfc_guard_of(window);
        return g && __atomic_load_n(&g->cut, __ATOMIC_SEQ_CST);
    }
    static uint64_t bfc_file_size(int fd) {
        struct stat s;
        return fstat(fd, &s) ? 0 : (uint64_t)s.st_size;
    }

    /* Room for `bytes` more at `offset` of a file, mapped; NULL with errno set where the disk has none. */
    static bfc_event *bfc_map_window(int fd, uint64_t offset, uint64_t bytes) {
    #if defined(__linux__)
        int error = posix_fallocate(fd, (off_t)offset, (off_t)bytes);   /* ftruncate alone would end in SIGBUS */
        if (error) { errno = error; return NULL; }
        int flags = MAP_SHARED | MAP_POPULATE;
    #else
        if (ftruncate(fd, (off_t)(offset + bytes))) return NULL;
        int flags = MAP_SHARED;
    #endif
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
        if (p == MAP_FAILED) return NULL;
        bfc_guard_window(p, bytes);
        return (bfc_event *)p;
    }
    /* Zeroed memory that begins with a cache line; NULL where there is none. */
    static bfc_event *bfc_new_window(uint64_t bytes) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : (bfc_event *)p;
    }
    static void bfc_unmap_window(bfc_event *window, uint64_t bytes) {
        if (!window) return;
        bfc_leave_window(window);
        munmap(window, bytes);
    }
    static void bfc_cut_file(int fd, uint64_t bytes) {
        uint64_t size = bfc_file_size(fd);
        if (ftruncate(fd, (off_t)((size < bytes ? size : bytes) / sizeof(bfc_event) * sizeof(bfc_event)))) errno = 0;
    }
    static inline uint64_t bfc_u64(PyObject *x) {   /* ~0 where an integer is negative or too large */
        unsigned long long value = PyLong_AsUnsignedLongLong(x);
        if (value == (unsigned long long)-1 && PyErr_Occurred()) PyErr_Clear();
        return value;
    }
    static int bfc_errno(void) { return errno; }
    static inline int bfc_low_bit(uint64_t x) { return __builtin_ctzll(x); }
    static inline int bfc_high_bit(uint64_t x) { return 63 - __builtin_clzll(x); }
    #endif
    """
    ctypedef struct Clock "bfc_clock":
        pass

    ctypedef struct Mutex "bfc_mutex":
        pass

    ctypedef struct SpinLock "bfc_spinlock":
        pass

    i64 bfc_clock_read(const Clock *) noexcept nogil
    void bfc_clock_anchor(Clock *) noexcept nogil
    Clock *bfc_clock_new() noexcept nogil
    void free(void *) noexcept nogil
    u16 bfc_thread_number() noexcept nogil
    Mutex *bfc_mutex_new() noexcept nogil
    void bfc_mutex_delete(Mutex *) noexcept nogil
    void bfc_mutex_lock(Mutex *) noexcept nogil
    void bfc_mutex_unlock(Mutex *) noexcept nogil
    void bfc_mutex_settle(Mutex *, i64) noexcept nogil
    SpinLock *bfc_spinlock_new() noexcept nogil
    void bfc_spinlock_delete(SpinLock *) noexcept nogil
    bint bfc_spin_try(SpinLock *) noexcept nogil
    void bfc_spin_leave(SpinLock *) noexcept nogil
    void bfc_spin_wait(SpinLock *) noexcept nogil
    u64 bfc_generation
    u64 bfc_u64(object) noexcept
    int bfc_low_bit(u64) noexcept nogil
    int bfc_high_bit(u64) noexcept nogil

cdef inline bint is_compiled() noexcept nogil:
    return True

cdef enum:
    MIN_CHUNK = 256
    NUM_BINS = 21
    ROWS = 56                   # powers of two from 256 to 2^63
    FIRST_REGION = 2097152      # with growth, TensorFlow 2.21 begins with 2 MiB
    # Heap.allocate: numbers below any address that say why there is none
    FAILED_MEMORY = 1
    FAILED_SIZE = 2
    FAILED_ALIGNMENT = 3
    FAILED_BOOKS = 4            # no memory for the heap's own tables
    FAILED_GRANT = 5            # the sub-allocator broke its promise
    FAILED_CLOSED = 6
    FAILED_FORKED = 7           # another thread was in the sub-allocator when this process was forked
    # Heap.free
    FREE_DOUBLE = 1
    FREE_INTERIOR = 2
    FREE_FOREIGN = 3
    FREE_BOOKS = 4
    MAX_REGIONS = 65535         # slots are 16 bits wide
    TREES = 1792                # 32 a row
    # Pages of free memory
    PAGES_FROM = 1048576        # bytes of a free chunk from which its pages are given back
    PAGE_BLOCK = 262144         # bytes that have one age
    PAGE_BLOCKS = 524288        # ages
    PAGE_SLICE = 16             # blocks given back while the heap's lock is held once
    PAGE_LOOKS = 4096           # blocks looked at meanwhile
    KEEP_PAGES = 67108864       # bytes in use may fall by so many without a return of all free pages
    KEEP_MOST = 1073741824      # the most that becomes, after pages were wanted again at once
    SECOND = 1000000000         # nanoseconds
    IDLE_PAGES = 1              # what is to be returned
    ALL_PAGES = 2

cdef extern from *:
    """
    #define BFC_LOW_32 0xFFFFFFFFull
    #define BFC_NONE 0xFFFFFFFFu
    """
    const i64 LONG_AGO "(-(1ll << 62))"
    const u64 HALF_SPACE "(1ull << 63)"
    const u64 MAX_REQUEST "(1ull << 62)"
    const u32 NONE "BFC_NONE"   # no chunk
    const u64 LOW_32 "BFC_LOW_32"

# ---- clock ----
cdef inline Clock *clock_new() noexcept nogil:
    return bfc_clock_new()

cdef inline void clock_delete(Clock *clock) noexcept nogil:
    free(clock)

cdef inline void clock_anchor(Clock *clock) noexcept nogil:
    bfc_clock_anchor(clock)

cdef inline i64 clock_read(Clock *clock) noexcept nogil:
    return bfc_clock_read(clock)

cdef inline u16 thread_number() noexcept nogil:
    return bfc_thread_number()

# ---- locks ----
cdef inline Mutex *mutex_new() noexcept nogil:
    return bfc_mutex_new()

cdef inline void mutex_delete(Mutex *mutex) noexcept nogil:
    bfc_mutex_delete(mutex)

# No lock is held while its holder waits for the GIL, nor waited for with the GIL in hand: who has it lets go of it,
# waits until the lock is free, and only then tries again. Who does not have it never waits for it here: the thread
# that has it may be waiting for this one, with a lock of a framework's.
cdef inline void mutex_lock(Mutex *mutex) noexcept nogil:
    bfc_mutex_lock(mutex)

cdef inline void mutex_unlock(Mutex *mutex) noexcept nogil:
    bfc_mutex_unlock(mutex)

# Wait at most `patience` nanoseconds until no other thread holds the mutex. The caller holds the GIL.
cdef inline void mutex_settle(Mutex *mutex, i64 patience) noexcept:
    with nogil:
        bfc_mutex_settle(mutex, patience)

cdef inline SpinLock *spinlock_new() noexcept nogil:
    return bfc_spinlock_new()

cdef inline void spinlock_delete(SpinLock *lock) noexcept nogil:
    bfc_spinlock_delete(lock)

cdef inline void spin_lock(SpinLock *lock) noexcept nogil:
    if not bfc_spin_try(lock):
        bfc_spin_wait(lock)

cdef inline void spin_unlock(SpinLock *lock) noexcept nogil:
    bfc_spin_leave(lock)

# For calls that take long, from Python's side: nothing of Python between the two.
cdef extern from "Python.h":
    void *PyEval_SaveThread() nogil
    void PyEval_RestoreThread(void *) nogil

cdef inline void *release_gil() noexcept nogil:
    return PyEval_SaveThread()

cdef inline void take_gil(void *state) noexcept nogil:
    PyEval_RestoreThread(state)

# How many forks lie between the first process and this one.
cdef inline u64 generation() noexcept nogil:
    return bfc_generation

# ---- bits ----
cdef inline int low_bit(u64 x) noexcept nogil:
    return bfc_low_bit(x)

cdef inline int high_bit(u64 x) noexcept nogil:
    return bfc_high_bit(x)

cdef inline u32 bit_32(int n) noexcept nogil:
    return <u32>1 << n

cdef inline u64 bit_64(int n) noexcept nogil:
    return <u64>1 << n

cdef inline u64 above(int n) noexcept nogil:
    return ~<u64>0 << n << 1    # in two: a shift by 64 is undefined

# ---- numbers ----
cdef inline int bin_of(u64 size) noexcept nogil:
    cdef int power = bfc_high_bit(size | 256) - 8
    return power if power < NUM_BINS else NUM_BINS - 1

# 2^64 - 1, which no size or address is, for what does not fit; raises TypeError for what is no integer.
cdef extern from "Python.h":
    bint PyLong_Check(object)
    object PyNumber_Index(object)

cdef inline u64 to_u64(object x) except? 0xFFFFFFFFFFFFFFFE:
    if not PyLong_Check(x):
        x = PyNumber_Index(x)
    return bfc_u64(x)

# Raises what Ctrl-C, or another signal's handler, raises.
cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef inline void check_signals() except *:
    PyErr_CheckSignals()

cdef inline u64 wrap_64(u64 x) noexcept nogil:
    return x

cdef inline u32 scramble(u32 x) noexcept nogil:
    return x * <u32>2654435769u

cdef inline u64 spread(u64 x, int shift) noexcept nogil:
    return (x * <u64>11400714819323198485u) >> shift

cdef inline u64 nine_tenths(u64 x) noexcept nogil:
    return <u64>(<float>x * <float>0.9)
