/* The functions PyTorch calls for its memory, in C. */
#pragma once

#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bfcviz/allocator/heap_functions.h"
#include "bfcviz/c/constants.h"
#include "bfcviz/c/lock_list.h"
#include "bfcviz/live/failure.h"
#include "bfcviz/live/raise_later.h"
#include "bfcviz/live/thread_label.h"
#include "bfcviz/live/torch_error.h"

/* One heap, for one stream of one device. PyTorch passes no context to its functions, so this list is
   global, newest first. Tensors may outlive their service: a heap is removed once none has memory of it. */
typedef struct bfc_torch_heap {
    struct bfc_torch_heap *next;
    int device;
    int taken; /* 0: a spare one, for the next new stream of its device */
    int users; /* threads that use this struct; it is not removed meanwhile */
    void *stream;
    uint32_t service;             /* number of the service it belongs to */
    uint32_t labels;              /* number of the label table of its heap */
    bfc_heap_functions functions; /* of the heap */
    PyObject *allocator;          /* owned */
    uint64_t failures;            /* number of the last failure, counted over all heaps; 0 = none */
    bfc_failure failure;
} bfc_torch_heap;

/* Guards the list, `taken`, `users` and `bfc_service`. Its holder calls no heap and no Python. */
static bfc_spinlock *bfc_listed = NULL;
static bfc_torch_heap *bfc_torch_heaps = NULL;
static uint32_t bfc_service = 0; /* the service whose heaps serve now, 0 = none */
static uint64_t bfc_torch_heap_failures = 0;
static bfc_thrower bfc_throw = NULL;
static PyObject *bfc_deferred = NULL; /* adds heaps and defers frees: `DeferredFrees` */
static int bfc_noted = 0;             /* addresses that other streams read, too */
static int bfc_held = 0;              /* frees that wait for such a stream */

/* The heap of a stream, or the oldest spare one of its device; `leave` it afterwards. */
static bfc_torch_heap *bfc_torch_heap_of(uint32_t service, int device, void *stream) {
    bfc_torch_heap *spare = NULL, *h = NULL;
    bfc_spin_lock(bfc_listed);
    if (service == bfc_service) /* else it ended meanwhile, and its heaps may be removed at any time */
        for (h = bfc_torch_heaps; h; h = h->next) {
            if (h->service != service || h->device != device) continue;
            if (!h->taken)
                spare = h;
            else if (h->stream == stream)
                break;
        }
    if (!h && spare) {
        h = spare;
        h->stream = stream;
        __atomic_store_n(&h->taken, 1, __ATOMIC_RELEASE);
    }
    if (h) h->users++;
    bfc_spin_unlock(bfc_listed);
    return h;
}

static void bfc_torch_heap_leave(bfc_torch_heap *h) {
    bfc_spin_lock(bfc_listed);
    h->users--;
    bfc_spin_unlock(bfc_listed);
}

typedef enum { BFC_ALL, BFC_OF_STREAM, BFC_OF_OTHERS } bfc_which;

/* The heap after `h`, which is left, of those chosen; NULL: the first one. */
static bfc_torch_heap *bfc_torch_heap_after(bfc_torch_heap *h, bfc_which which, int device, void *stream) {
    if (!bfc_listed) return NULL;
    bfc_spin_lock(bfc_listed);
    bfc_torch_heap *n = h ? h->next : bfc_torch_heaps;
    while (n && which != BFC_ALL
           && (n->device != device || (n->stream == stream) != (which == BFC_OF_STREAM)))
        n = n->next;
    if (n) n->users++;
    if (h) h->users--;
    bfc_spin_unlock(bfc_listed);
    return n;
}

/* While Python exits it kills other threads that wait for the GIL. With C++ frames on the stack that aborts
   the process. So from bfc_torch_heaps_end() on, other threads neither call DeferredFrees nor let a heap
   grow, which also runs Python. */
static int bfc_ending =
    0; /* whether bfc_torch_heaps_end() was called; the next two say by which thread and process */
static pthread_t bfc_ender;
static int bfc_asking = 0;    /* threads in bfc_ask() */
static pid_t bfc_process = 0; /* a forked child has the count of its parent's threads, but not the threads */
static int (*bfc_is_finalizing)(void) = NULL;

static int bfc_is_late(void) {
    return __atomic_load_n(&bfc_ending, __ATOMIC_SEQ_CST) && !pthread_equal(bfc_ender, pthread_self());
}

/* Whether to serve a late request. PyTorch's own allocator holds its lock during the request: refuse it. A
   replaced allocator lets the thread wait for the end of the process, as Python 3.14 does for the GIL; for at
   most 2 seconds while atexit functions run, because these may wait for the thread. */
static int bfc_serve_late(void) {
    static __thread int waited = 0;
    if (!bfc_throw) return 0;
    for (; waited < 200; waited++) {
        while (bfc_is_finalizing && bfc_is_finalizing()) pause();
        usleep(10000);
    }
    return 1;
}

/* Whether a thread is in one of the heaps, or in DeferredFrees. */
static int bfc_has_users(void) {
    int users = __atomic_load_n(&bfc_asking, __ATOMIC_SEQ_CST);
    if (!bfc_listed) return users;
    bfc_spin_lock(bfc_listed);
    for (bfc_torch_heap *h = bfc_torch_heaps; h && !users; h = h->next) users = h->users;
    bfc_spin_unlock(bfc_listed);
    return users;
}

/* Other threads get at most 2 seconds to leave the heaps, which may grow by Python, and DeferredFrees; at least
   20 ms, for one that has asked whether it is late and is in neither yet. */
static void bfc_torch_heaps_end(void) {
    void *known = dlsym(RTLD_DEFAULT, "Py_IsFinalizing"); /* since 3.13 */
    bfc_is_finalizing = (int (*)(void))(known ? known : dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
    bfc_ender = pthread_self();
    __atomic_store_n(&bfc_ending, 1, __ATOMIC_SEQ_CST);
    if (bfc_process != getpid()) return;
    Py_BEGIN_ALLOW_THREADS
        for (int ms = 0; ms < 20 || (ms < 2000 && bfc_has_users()); ms++) usleep(1000);
    Py_END_ALLOW_THREADS
}

/* Call a method of DeferredFrees, on rare paths. An error is printed and returns -1, as does the end of
   Python: memory whose free cannot be deferred must stay in use, because another stream may read it. */
static long bfc_call(const char *method, void *pointer, int device, void *stream) {
    PyGILState_STATE state = PyGILState_Ensure();
    long answer = 0;
    if (bfc_deferred) {
        PyObject *type, *value, *trace, *deferred = bfc_deferred;
        PyErr_Fetch(&type, &value, &trace); /* a tensor may be freed while an error is raised */
        Py_INCREF(deferred);
        PyObject *result = PyObject_CallMethod(
            deferred, method, "KiK", (unsigned long long)(size_t)pointer, device,
            (unsigned long long)(size_t)stream
        );
        answer = result ? PyObject_IsTrue(result) : -1;
        if (answer < 0) bfc_report(deferred);
        Py_XDECREF(result);
        Py_DECREF(deferred);
        PyErr_Restore(type, value, trace);
    }
    PyGILState_Release(state);
    return answer;
}

static long bfc_ask(const char *method, void *pointer, int device, void *stream) {
    __atomic_add_fetch(&bfc_asking, 1, __ATOMIC_SEQ_CST);
    long answer = Py_IsInitialized() && !bfc_is_late() ? bfc_call(method, pointer, device, stream) : -1;
    __atomic_sub_fetch(&bfc_asking, 1, __ATOMIC_SEQ_CST);
    return answer;
}

/* The message for `what()`. */
static const char *bfc_failure_text(bfc_torch_heap *h, int device, size_t size) {
    static __thread char text[400];
    if (!h)
        snprintf(
            text, sizeof text, "CUDA out of memory. bfcviz has no heap for this stream of cuda:%d", device
        );
    else {
        unsigned long long pool = h->failure.totals.pool, free = pool - h->failure.totals.in_use;
        unsigned long long largest = h->failure.totals.largest_free;
        snprintf(
            text, sizeof text,
            "CUDA out of memory. bfcviz's heap of cuda:%d was asked for %llu bytes: %llu are free, in pieces "
            "of at most %llu; it has %llu bytes and can get no more",
            device, (unsigned long long)size, free, largest, pool
        );
    }
    return text;
}

static void *bfc_torch_heap_serve(bfc_torch_heap *h, size_t size) {
    return h->functions.serve(h->functions.heap, size, bfc_label_in(h->labels));
}

static void bfc_torch_heap_fail(bfc_torch_heap *h, size_t size) {
    bfc_failure_note(&h->failure, &h->functions, size);
    __atomic_store_n(
        &h->failures, __atomic_add_fetch(&bfc_torch_heap_failures, 1, __ATOMIC_RELAXED), __ATOMIC_RELEASE
    );
}

static void *bfc_torch_alloc(ssize_t size, int device, void *stream) {
    uint32_t service = __atomic_load_n(&bfc_service, __ATOMIC_ACQUIRE);
    if (size <= 0 || !service) return NULL;
    if (__atomic_load_n(&bfc_ending, __ATOMIC_RELAXED) && bfc_is_late() && !bfc_serve_late()) return NULL;
    if (__atomic_load_n(&bfc_held, __ATOMIC_RELAXED)) bfc_ask("free_ready", NULL, device, stream);
    bfc_torch_heap *h = bfc_torch_heap_of(service, device, stream);
    if (!h && bfc_ask("add_heap", NULL, device, stream)) h = bfc_torch_heap_of(service, device, stream);
    void *p = h ? bfc_torch_heap_serve(h, (size_t)size) : NULL;
    if (!p && h && bfc_ask("recover", NULL, device, stream)) p = bfc_torch_heap_serve(h, (size_t)size);
    if (!p && h) bfc_torch_heap_fail(h, (size_t)size);
    const char *text = !p && bfc_throw ? bfc_failure_text(h, device, (size_t)size) : NULL;
    if (h) bfc_torch_heap_leave(h);
    if (text) bfc_throw(text); /* no frame between here and PyTorch needs cleaning up */
    return p;
}

/* Heaps of an ended service return their regions when their memory is freed. That runs Python, in a thread of its
   own: PyTorch may hold its lock here, and the thread with the GIL may wait for that. PyTorch frees its cache before
   it reports that memory ran out, so this thread waits for the other one; not for ever, because of that lock. */
#define BFC_TIDY_PATIENCE_NS 300000000

static pthread_mutex_t bfc_tidying = PTHREAD_MUTEX_INITIALIZER; /* its holder does not wait for the GIL */
static pthread_cond_t bfc_tidy_changed;
static uint64_t bfc_tidy_wanted = 0, bfc_tidy_done = 0; /* numbers of late frees */
static int bfc_tidy_threads = 0;
static int bfc_tidy_is_slow = 0; /* no thread waits again before a tidying was completed */

#if defined(__APPLE__) /* its conditions have no other clock */
#define BFC_TIDY_CLOCK CLOCK_REALTIME
#else
#define BFC_TIDY_CLOCK CLOCK_MONOTONIC
#endif

static void bfc_tidy_soon(void) {
    if (!Py_IsInitialized() || __atomic_load_n(&bfc_ending, __ATOMIC_SEQ_CST) || bfc_process != getpid())
        return;
    int waits = !bfc_has_gil();
    struct timespec until;
    clock_gettime(BFC_TIDY_CLOCK, &until);
    until.tv_nsec += BFC_TIDY_PATIENCE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&bfc_tidying);
    uint64_t mine = ++bfc_tidy_wanted;
    if (bfc_tidy_threads) pthread_cond_broadcast(&bfc_tidy_changed);
    while (waits && bfc_tidy_threads && !bfc_tidy_is_slow && bfc_tidy_done < mine)
        if (pthread_cond_timedwait(&bfc_tidy_changed, &bfc_tidying, &until)) bfc_tidy_is_slow = 1;
    pthread_mutex_unlock(&bfc_tidying);
}

/* The thread: say that the late frees up to `done` are tidied, and wait for the next one. */
static uint64_t bfc_tidy_wait(uint64_t done) {
    pthread_mutex_lock(&bfc_tidying);
    bfc_tidy_done = done;
    bfc_tidy_is_slow = 0;
    pthread_cond_broadcast(&bfc_tidy_changed);
    while (bfc_tidy_wanted == done) pthread_cond_wait(&bfc_tidy_changed, &bfc_tidying);
    done = bfc_tidy_wanted;
    pthread_mutex_unlock(&bfc_tidying);
    return done;
}

static uint64_t bfc_tidy_begin(void) {
    static int is_made = 0;
    pthread_mutex_lock(&bfc_tidying);
    if (!is_made) {
        pthread_condattr_t steady;
        pthread_condattr_init(&steady);
#if !defined(__APPLE__)
        pthread_condattr_setclock(&steady, BFC_TIDY_CLOCK);
#endif
        pthread_cond_init(&bfc_tidy_changed, &steady);
        is_made = 1;
    }
    bfc_tidy_threads++;
    uint64_t wanted = bfc_tidy_wanted;
    pthread_mutex_unlock(&bfc_tidying);
    return wanted;
}

static void bfc_tidy_end(void) {
    pthread_mutex_lock(&bfc_tidying);
    bfc_tidy_threads--;
    bfc_tidy_is_slow = 0;
    pthread_cond_broadcast(&bfc_tidy_changed);
    pthread_mutex_unlock(&bfc_tidying);
}

/* Try the heaps of the given stream first: the memory is nearly always there. */
static void bfc_torch_heap_give_back(void *p, int device, void *stream) {
    for (bfc_which which = BFC_OF_STREAM; which <= BFC_OF_OTHERS; which++)
        for (bfc_torch_heap *h = bfc_torch_heap_after(NULL, which, device, stream); h;
             h = bfc_torch_heap_after(h, which, device, stream))
            if (h->functions.take_back(h->functions.heap, p) != BFC_FREE_FOREIGN) {
                int is_late = h->service != __atomic_load_n(&bfc_service, __ATOMIC_ACQUIRE);
                bfc_torch_heap_leave(h);
                if (is_late) bfc_tidy_soon();
                return;
            }
}

static void bfc_torch_free(void *p, size_t size, int device, void *stream) {
    (void)size;
    if (!p) return;
    if (__atomic_load_n(&bfc_noted, __ATOMIC_ACQUIRE) && bfc_ask("defer", p, device, stream)) return;
    bfc_torch_heap_give_back(p, device, stream);
}

static void bfc_torch_record(void *p, void *stream) {
    if (p) bfc_ask("note", p, -1, stream);
}

static int bfc_torch_heap_add(
    const bfc_heap_functions *functions, PyObject *allocator, int device, uint32_t service, uint32_t labels
) {
    if (!bfc_listed) bfc_listed = bfc_spinlock_new();
    bfc_torch_heap *h = bfc_listed ? (bfc_torch_heap *)calloc(1, sizeof *h) : NULL;
    if (!h) return -1;
    h->device = device;
    h->service = service;
    h->labels = labels;
    h->functions = *functions;
    Py_INCREF(allocator);
    h->allocator = allocator;
    bfc_spin_lock(bfc_listed);
    h->next = bfc_torch_heaps;
    bfc_torch_heaps = h;
    bfc_spin_unlock(bfc_listed);
    return 0;
}

/* Forget a heap of an ended service, unless PyTorch has memory of it or a thread uses it; says whether it did. No
   request reaches such a heap, so what is free stays free. */
static int bfc_torch_heap_remove(PyObject *allocator) {
    bfc_torch_heap *h = bfc_torch_heap_after(NULL, BFC_ALL, 0, NULL);
    while (h && h->allocator != allocator) h = bfc_torch_heap_after(h, BFC_ALL, 0, NULL);
    if (!h) return 0;
    bfc_spin_lock(bfc_listed);
    int is_idle = h->users == 1 && h->service != bfc_service;
    bfc_spin_unlock(bfc_listed);
    bfc_totals totals;
    if (is_idle) h->functions.totals(h->functions.heap, &totals);
    is_idle = is_idle && totals.in_use == 0;
    bfc_spin_lock(bfc_listed);
    is_idle = --h->users == 0 && is_idle;
    bfc_torch_heap **link = &bfc_torch_heaps;
    while (is_idle && *link != h) link = &(*link)->next;
    if (is_idle) *link = h->next;
    bfc_spin_unlock(bfc_listed);
    if (is_idle) {
        Py_DECREF(h->allocator);
        free(h);
    }
    return is_idle;
}

static PyObject *bfc_torch_heaps_of(uint32_t service) {
    PyObject *found = PyList_New(0);
    bfc_torch_heap *h = bfc_torch_heap_after(NULL, BFC_ALL, 0, NULL);
    for (; found && h; h = bfc_torch_heap_after(h, BFC_ALL, 0, NULL)) {
        if (h->service != service) continue;
        const bfc_failure *f = &h->failure;
        PyObject *row = Py_BuildValue(
            "OiiKK(KKKK)", h->allocator, h->device, __atomic_load_n(&h->taken, __ATOMIC_ACQUIRE),
            (unsigned long long)(size_t)h->stream,
            (unsigned long long)__atomic_load_n(&h->failures, __ATOMIC_ACQUIRE),
            (unsigned long long)f->requested, (unsigned long long)f->totals.pool,
            (unsigned long long)f->totals.in_use, (unsigned long long)f->totals.largest_free
        );
        if (!row || PyList_Append(found, row)) Py_CLEAR(found);
        Py_XDECREF(row);
    }
    if (h) bfc_torch_heap_leave(h);
    return found;
}

static void bfc_torch_heaps_serve(uint32_t service, bfc_thrower thrower, PyObject *deferred) {
    PyObject *before = bfc_deferred;
    if (!bfc_listed && !(bfc_listed = bfc_spinlock_new())) return; /* no memory: PyTorch gets none either */
    Py_INCREF(deferred);
    bfc_deferred = deferred;
    bfc_process = getpid();
    bfc_throw = thrower;
    bfc_spin_lock(bfc_listed);
    __atomic_store_n(&bfc_service, service, __ATOMIC_RELEASE);
    bfc_spin_unlock(bfc_listed);
    Py_XDECREF(before);
}

static void bfc_torch_heaps_count(int noted, int held) {
    __atomic_store_n(&bfc_held, held, __ATOMIC_RELEASE);
    __atomic_store_n(&bfc_noted, noted, __ATOMIC_RELEASE);
}
