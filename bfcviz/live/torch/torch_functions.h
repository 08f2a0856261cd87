/* The functions PyTorch calls for its memory, in C. */
#pragma once

#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bfcviz/allocator/c_interface/hooks.h"
#include "bfcviz/c/constants.h"
#include "bfcviz/live/capture/thread_label.h"
#include "bfcviz/live/shared/failure.h"
#include "bfcviz/live/shared/raise_later.h"
#include "bfcviz/live/torch/torch_error.h"

/* One heap, for one stream of one device. PyTorch passes no context to its functions, so these are all there
   are, newest first, and they stay for as long as the process: memory of theirs may be freed at any time. */
typedef struct bfc_lane {
    struct bfc_lane *next;
    int device;
    int taken; /* 0: a spare one, for the next stream of its device that comes */
    void *stream;
    uint32_t service;    /* number of the service it belongs to */
    uint32_t labels;     /* number of the table of labels its heap writes */
    bfc_hooks hooks;     /* of the heap */
    PyObject *allocator; /* never given back */
    uint64_t failures;   /* number of the last failure, counted over all lanes; 0 = none */
    bfc_failure failure;
} bfc_lane;

static bfc_lane *bfc_lanes = NULL;
static pthread_mutex_t bfc_taking = PTHREAD_MUTEX_INITIALIZER;
static uint32_t bfc_service = 0; /* whose lanes serve now, 0 = none */
static uint64_t bfc_lane_failures = 0;
static bfc_thrower bfc_throw = NULL;
static PyObject *bfc_keeper = NULL; /* makes lanes, and holds frees back: `keeper.Keeper` */
static int bfc_noted = 0;           /* addresses that more streams than their own read */
static int bfc_held = 0;            /* frees that wait for such a stream */

static bfc_lane *bfc_lane_taken(uint32_t service, int device, void *stream) {
    for (bfc_lane *l = __atomic_load_n(&bfc_lanes, __ATOMIC_ACQUIRE); l; l = l->next)
        if (l->service == service && l->device == device && __atomic_load_n(&l->taken, __ATOMIC_ACQUIRE)
            && l->stream == stream)
            return l;
    return NULL;
}

static bfc_lane *bfc_lane_take(uint32_t service, int device, void *stream) {
    pthread_mutex_lock(&bfc_taking);
    bfc_lane *l = bfc_lane_taken(service, device, stream);
    if (!l) { /* the oldest spare one */
        for (bfc_lane *s = bfc_lanes; s; s = s->next)
            if (!s->taken && s->service == service && s->device == device) l = s;
        if (l) {
            l->stream = stream;
            __atomic_store_n(&l->taken, 1, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&bfc_taking);
    return l;
}

/* While Python ends it kills other threads that wait for its lock, which aborts the process where C++ is
   above. So from bfc_lanes_end() on, other threads neither ask the keeper nor let a heap grow, which Python
   does, too. */
static int bfc_ending = 0; /* whether bfc_lanes_end() was called; by this thread of this process: */
static pthread_t bfc_ender;
static int bfc_asking = 0;    /* threads in bfc_ask() */
static pid_t bfc_process = 0; /* a forked child lacks its parent's threads, but not their count */
static int (*bfc_is_finalizing)(void) = NULL;

static int bfc_is_late(void) {
    return __atomic_load_n(&bfc_ending, __ATOMIC_SEQ_CST) && !pthread_equal(bfc_ender, pthread_self());
}

/* A late request: whether it is served. PyTorch's own allocator holds its lock while it asks: it is refused.
   In its place the thread waits for the end of the process, as Python 3.14 lets it wait for Python's lock;
   for 2 seconds at most while atexit functions run, which may wait for it. */
static int bfc_serve_late(void) {
    static __thread int waited = 0;
    if (!bfc_throw) return 0;
    for (; waited < 200; waited++) {
        while (bfc_is_finalizing && bfc_is_finalizing()) pause();
        usleep(10000);
    }
    return 1;
}

/* Other threads have 20 ms to leave heaps that grow, and as long as it takes, 2 seconds at most, to leave the
   keeper. */
static void bfc_lanes_end(void) {
    void *known = dlsym(RTLD_DEFAULT, "Py_IsFinalizing"); /* since 3.13 */
    bfc_is_finalizing = (int (*)(void))(known ? known : dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
    bfc_ender = pthread_self();
    __atomic_store_n(&bfc_ending, 1, __ATOMIC_SEQ_CST);
    if (bfc_process != getpid()) return;
    Py_BEGIN_ALLOW_THREADS
        for (int ms = 0; ms < 20 || (ms < 2000 && __atomic_load_n(&bfc_asking, __ATOMIC_SEQ_CST)); ms++)
            usleep(1000);
    Py_END_ALLOW_THREADS
}

/* Calls of the keeper's Python, on rare paths; what it answers. Where an error came, which is printed, or
   Python ends: -1, as memory that cannot be held back must stay in use, for another stream may read it. */
static long bfc_call(const char *method, void *pointer, int device, void *stream) {
    PyGILState_STATE state = PyGILState_Ensure();
    long answer = 0;
    if (bfc_keeper) {
        PyObject *type, *value, *trace, *keeper = bfc_keeper;
        PyErr_Fetch(&type, &value, &trace); /* a tensor may be freed while an error is raised */
        Py_INCREF(keeper);
        PyObject *result = PyObject_CallMethod(
            keeper, method, "KiK", (unsigned long long)(size_t)pointer, device,
            (unsigned long long)(size_t)stream
        );
        answer = result ? PyObject_IsTrue(result) : -1;
        if (answer < 0) bfc_report(keeper);
        Py_XDECREF(result);
        Py_DECREF(keeper);
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

/* A message for `what()`, and the throw. No frame between here and PyTorch has anything to clean up. */
static void bfc_raise(bfc_lane *l, int device, size_t size) {
    static __thread char text[400];
    if (!l)
        snprintf(
            text, sizeof text, "CUDA out of memory. bfcviz has no heap for this stream of cuda:%d", device
        );
    else {
        unsigned long long pool = l->failure.totals.pool, free = pool - l->failure.totals.in_use;
        unsigned long long largest = l->failure.totals.largest_free;
        snprintf(
            text, sizeof text,
            "CUDA out of memory. bfcviz's heap of cuda:%d was asked for %llu bytes: %llu are free, in pieces "
            "of at most %llu; it has %llu bytes and can get no more",
            device, (unsigned long long)size, free, largest, pool
        );
    }
    bfc_throw(text);
}

static void *bfc_lane_serve(bfc_lane *l, size_t size) {
    return l->hooks.serve(l->hooks.heap, size, bfc_label_in(l->labels));
}

static void bfc_lane_fail(bfc_lane *l, size_t size) {
    bfc_failure_note(&l->failure, &l->hooks, size);
    __atomic_store_n(
        &l->failures, __atomic_add_fetch(&bfc_lane_failures, 1, __ATOMIC_RELAXED), __ATOMIC_RELEASE
    );
}

static void *bfc_torch_alloc(ssize_t size, int device, void *stream) {
    uint32_t service = __atomic_load_n(&bfc_service, __ATOMIC_ACQUIRE);
    if (size <= 0 || !service) return NULL;
    if (__atomic_load_n(&bfc_ending, __ATOMIC_RELAXED) && bfc_is_late() && !bfc_serve_late()) return NULL;
    if (__atomic_load_n(&bfc_held, __ATOMIC_RELAXED)) bfc_ask("let_go", NULL, device, stream);
    bfc_lane *l = bfc_lane_taken(service, device, stream);
    if (!l) l = bfc_lane_take(service, device, stream);
    if (!l && bfc_ask("more", NULL, device, stream)) l = bfc_lane_take(service, device, stream);
    void *p = l ? bfc_lane_serve(l, (size_t)size) : NULL;
    if (!p && l && bfc_ask("recover", NULL, device, stream)) p = bfc_lane_serve(l, (size_t)size);
    if (!p && l) bfc_lane_fail(l, (size_t)size);
    if (!p && bfc_throw) bfc_raise(l, device, (size_t)size);
    return p;
}

/* Its own stream's lanes are asked first: there it nearly always is. */
static void bfc_lane_give_back(void *p, int device, void *stream) {
    for (int others = 0; others < 2; others++)
        for (bfc_lane *l = __atomic_load_n(&bfc_lanes, __ATOMIC_ACQUIRE); l; l = l->next)
            if (l->device == device && (l->stream != stream) == others
                && l->hooks.take_back(l->hooks.heap, p) != BFC_FREE_FOREIGN)
                return;
}

static void bfc_torch_free(void *p, size_t size, int device, void *stream) {
    (void)size;
    if (!p) return;
    if (__atomic_load_n(&bfc_noted, __ATOMIC_ACQUIRE) && bfc_ask("hold", p, device, stream)) return;
    bfc_lane_give_back(p, device, stream);
}

static void bfc_torch_record(void *p, void *stream) {
    if (p) bfc_ask("note", p, -1, stream);
}

static int
bfc_lane_add(const bfc_hooks *hooks, PyObject *allocator, int device, uint32_t service, uint32_t labels) {
    bfc_lane *l = (bfc_lane *)calloc(1, sizeof *l);
    if (!l) return -1;
    l->device = device;
    l->service = service;
    l->labels = labels;
    l->hooks = *hooks;
    Py_INCREF(allocator);
    l->allocator = allocator;
    pthread_mutex_lock(&bfc_taking);
    l->next = bfc_lanes;
    __atomic_store_n(&bfc_lanes, l, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&bfc_taking);
    return 0;
}

static PyObject *bfc_lanes_of(uint32_t service) {
    PyObject *found = PyList_New(0);
    for (bfc_lane *l = bfc_lanes; found && l; l = l->next) {
        if (l->service != service) continue;
        const bfc_failure *f = &l->failure;
        PyObject *row = Py_BuildValue(
            "OiiKK(KKKK)", l->allocator, l->device, __atomic_load_n(&l->taken, __ATOMIC_ACQUIRE),
            (unsigned long long)(size_t)l->stream,
            (unsigned long long)__atomic_load_n(&l->failures, __ATOMIC_ACQUIRE),
            (unsigned long long)f->requested, (unsigned long long)f->totals.pool,
            (unsigned long long)f->totals.in_use, (unsigned long long)f->totals.largest_free
        );
        if (!row || PyList_Append(found, row)) Py_CLEAR(found);
        Py_XDECREF(row);
    }
    return found;
}

static void bfc_lanes_serve(uint32_t service, bfc_thrower thrower, PyObject *keeper) {
    PyObject *before = bfc_keeper;
    Py_INCREF(keeper);
    bfc_keeper = keeper;
    bfc_process = getpid();
    bfc_throw = thrower;
    __atomic_store_n(&bfc_service, service, __ATOMIC_RELEASE);
    Py_XDECREF(before);
}

static void bfc_lanes_count(int noted, int held) {
    __atomic_store_n(&bfc_held, held, __ATOMIC_RELEASE);
    __atomic_store_n(&bfc_noted, noted, __ATOMIC_RELEASE);
}
