/* The functions CuPy calls for its memory, in C. */
#pragma once

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#include "bfcviz/allocator/heap_functions.h"
#include "bfcviz/c/attributes.h"
#include "bfcviz/c/fork_count.h"
#include "bfcviz/events/reports.h"
#include "bfcviz/live/raise_later.h"
#include "bfcviz/live/stack_walk.h"
#include "bfcviz/live/thread_label.h"

/* One heap, for one stream of one device. */
typedef struct bfc_cu_heap {
    struct bfc_cu_heap *next;
    int device;
    intptr_t stream;              /* as bfc_cu_stream tells it */
    bfc_heap_functions functions; /* of the heap */
    PyObject *allocator;
} bfc_cu_heap;

typedef intptr_t (*bfc_cu_stream_of)(int device);

/* CuPy calls with the GIL held, so there is no other lock. */
typedef struct bfc_cu {
    bfc_cu_heap *heaps; /* newest first; they live as long as this struct */
    PyObject *owner; /* the hook that owns this; borrowed, except for one reference while CuPy has memory */
    PyObject *stream_heaps;     /* Python for the rare paths; owned by the owner */
    bfc_cu_stream_of stream_of; /* CuPy's current stream on a device; may raise */
    bfc_walk *walk;             /* records Python stacks; NULL: no stacks */
    uint32_t labels;            /* number of the label table of the heaps */
    int forks;                  /* of its process; another number: this is a child */
    int held;                   /* frees that wait for other streams */
    int ended;                  /* Python exits: make no Python calls */
    int late;                   /* the `with` ended: what is freed goes back to the device */
    int inside;                 /* running calls; Python must not exit before they return */
    uint64_t out;               /* chunks CuPy has */
} bfc_cu;

static intptr_t bfc_cu_threads = 0;
BFC_THREAD intptr_t bfc_cu_thread = 0;

/* A number for each stream: 1 is another name of the legacy default stream 0, and 2 means another stream in
   each thread. */
static intptr_t bfc_cu_stream(bfc_cu *g, int device) {
    intptr_t stream = g->stream_of(device);
    if (stream == 1) return 0;
    if (stream != 2) return stream;
    if (!bfc_cu_thread) bfc_cu_thread = -__atomic_add_fetch(&bfc_cu_threads, 1, __ATOMIC_RELAXED);
    return bfc_cu_thread;
}

static bfc_cu_heap *bfc_cu_find(bfc_cu *g, int device, intptr_t stream) {
    for (bfc_cu_heap *h = g->heaps; h; h = h->next)
        if (h->device == device && h->stream == stream) return h;
    return NULL;
}

static bfc_cu_heap *bfc_cu_owner_of(bfc_cu *g, int device, void *p) {
    for (bfc_cu_heap *h = g->heaps; h; h = h->next)
        if (h->device == device && h->functions.requested(h->functions.heap, p)) return h;
    return NULL;
}

/* Call a method of CupyStreamHeaps. An error is printed and returns -1: memory whose free
   cannot be deferred must stay in use, because another stream may still read it. */
static int bfc_cu_ask(bfc_cu *g, const char *method, void *p, int device, intptr_t stream, intptr_t now) {
    PyObject *stream_heaps = g->stream_heaps, *owner = g->owner, *answer;
    Py_INCREF(owner);
    answer = PyObject_CallMethod(
        stream_heaps, method, "KiLL", (unsigned long long)(size_t)p, device, (long long)stream, (long long)now
    );
    int is = answer ? PyObject_IsTrue(answer) : -1;
    if (is < 0) bfc_report(stream_heaps);
    Py_XDECREF(answer);
    Py_DECREF(owner);
    return is;
}

static void *bfc_cu_serve(bfc_cu *g, size_t size, int device) {
    if (g->forks != bfc_fork_count || g->ended) return NULL;
    if (g->held) bfc_cu_ask(g, "free_ready", NULL, device, 0, 0);
    uint32_t label = bfc_label_in(g->labels);
    if (g->walk) label = bfc_walk_number(g->walk, label); /* may run Python: no heap is chosen before */
    intptr_t stream = bfc_cu_stream(g, device);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return NULL;
    }
    bfc_cu_heap *h = bfc_cu_find(g, device, stream);
    if (!h && bfc_cu_ask(g, "add_heap", NULL, device, stream, 0)) h = bfc_cu_find(g, device, stream);
    if (!h) return NULL;
    void *p = h->functions.serve(h->functions.heap, size, label);
    if (p && g->out++ == 0) Py_INCREF(g->owner);
    return p;
}

/* NULL on failure: CupyHook.serve then calls CupyStreamHeaps.recover. */
static void *bfc_cu_malloc(void *param, size_t size, int device) {
    bfc_cu *g = (bfc_cu *)param;
    PyObject *owner = g->owner;
    Py_INCREF(owner);
    g->inside++;
    void *p = bfc_cu_serve(g, size, device);
    g->inside--;
    Py_DECREF(owner);
    return p;
}

static void bfc_cu_back(bfc_cu *g, bfc_cu_heap *h, void *p) {
    if (h->functions.take_back(h->functions.heap, p) != 0) return;
    if (g->late && !g->ended) bfc_cu_ask(g, "tidy", p, h->device, h->stream, h->stream);
    if (--g->out == 0 && !g->ended) Py_DECREF(g->owner); /* `g` may be gone */
}

/* Called at any time, also while an error is raised and during a garbage collection. */
static void bfc_cu_free(void *param, void *p, int device) {
    bfc_cu *g = (bfc_cu *)param;
    if (!p || g->ended || g->forks != bfc_fork_count) return; /* the heap belongs to the parent process */
    PyObject *type, *value, *trace, *owner = g->owner;
    PyErr_Fetch(&type, &value, &trace);
    Py_INCREF(owner);
    g->inside++;
    bfc_cu_heap *h = bfc_cu_owner_of(g, device, p);
    if (h) {
        intptr_t now = bfc_cu_stream(g, device);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            now = ~h->stream; /* unknown: treat it as another stream */
        }
        if (now != h->stream && bfc_cu_ask(g, "defer", p, device, h->stream, now)) h = NULL;
    }
    if (h) bfc_cu_back(g, h, p);
    g->inside--;
    Py_DECREF(owner); /* `g` may be gone */
    PyErr_Restore(type, value, trace);
}

static void bfc_cu_give_back(bfc_cu *g, void *p, int device) {
    bfc_cu_heap *h = bfc_cu_owner_of(g, device, p);
    if (h) bfc_cu_back(g, h, p);
}

static bfc_cu *bfc_cu_new(
    PyObject *owner, PyObject *stream_heaps, bfc_cu_stream_of stream_of, uint32_t labels, bfc_walk *walk
) {
    bfc_cu *g = (bfc_cu *)calloc(1, sizeof *g);
    if (!g) return NULL;
    bfc_count_forks();
    g->owner = owner;
    g->stream_heaps = stream_heaps;
    g->stream_of = stream_of;
    g->walk = walk;
    g->labels = labels;
    g->forks = bfc_fork_count;
    return g;
}

static int
bfc_cu_add(bfc_cu *g, const bfc_heap_functions *functions, PyObject *allocator, int device, intptr_t stream) {
    bfc_cu_heap *h = (bfc_cu_heap *)calloc(1, sizeof *h);
    if (!h) return -1;
    h->device = device;
    h->stream = stream;
    h->functions = *functions;
    Py_INCREF(allocator);
    h->allocator = allocator;
    h->next = g->heaps;
    g->heaps = h;
    return 0;
}

static void bfc_cu_move(bfc_cu *g, int device, intptr_t old, intptr_t stream) {
    bfc_cu_heap *h = bfc_cu_find(g, device, old);
    if (h) h->stream = stream;
}

static void bfc_cu_delete(bfc_cu *g) {
    if (!g) return;
    while (g->heaps) {
        bfc_cu_heap *h = g->heaps;
        g->heaps = h->next;
        Py_DECREF(h->allocator);
        free(h);
    }
    free(g);
}

/* Python exits: make no Python calls from now on. */
static void bfc_cu_end(bfc_cu *g) {
    if (g->ended) return;
    g->ended = 1;
    Py_INCREF(g->owner);
}

/* -- observed: what CuPy's memory hooks call ------------------------------------------------------------------- */

typedef int (*bfc_cu_device_of)(int skip_dispatch);

enum {
    BFC_CU_DEVICES = 64, /* further ones, and further streams, are reported by Python */
    BFC_CU_STREAMS = 16,
    BFC_CU_LOOK = 256 /* allocations from one look at the pools to the next */
};

/* CuPy calls with the GIL held. */
typedef struct bfc_cu_watch {
    PyObject *observed;         /* a CupyObserved for the rare cases, owned while it observes; else NULL */
    PyObject *walker;           /* owned, or NULL */
    bfc_walk *walk;             /* the walker's */
    bfc_cu_stream_of stream_of; /* CuPy's current stream on a device; may raise */
    bfc_cu_device_of device_of; /* the current device; may raise; NULL: there is one */
    uint32_t labels;            /* number of the label table */
    int grants;  /* allocations under way that got memory from the driver: Python reports them */
    int turn;    /* allocations since the last look at the pools */
    int streams; /* that have a number, in order: 1, 2, ... */
    intptr_t stream[BFC_CU_STREAMS];
    PyObject *kept[BFC_CU_DEVICES];    /* the capsules of `heaps` */
    bfc_reports heaps[BFC_CU_DEVICES]; /* no ledger: that device has no heap yet */
} bfc_cu_watch;

/* The keywords that CuPy gives, in the order of their bits, and where to store their numbers. */
typedef struct bfc_cu_told {
    uint64_t device_id, size, mem_size, mem_ptr, pmem_id;
} bfc_cu_told;

enum { BFC_CU_DEVICE = 1, BFC_CU_SIZE = 2, BFC_CU_MEM_SIZE = 4, BFC_CU_POINTER = 8, BFC_CU_POOLED = 16 };

static PyObject *bfc_cu_words[5]; /* interned, as those of CuPy's own calls are */

static int bfc_cu_prepare(void) {
    static const char *const words[] = {"device_id", "size", "mem_size", "mem_ptr", "pmem_id"};
    for (int i = 0; i < 5; i++)
        if (!bfc_cu_words[i] && !(bfc_cu_words[i] = PyUnicode_InternFromString(words[i]))) return -1;
    return 0;
}

/* Read the numbers of the words in the bit mask `wanted`, and no others: each costs. */
static int bfc_cu_read(bfc_cu_told *told, int wanted, PyObject *const *values, PyObject *names) {
    uint64_t *into[] = {&told->device_id, &told->size, &told->mem_size, &told->mem_ptr, &told->pmem_id};
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;
    int i = -1;
    for (Py_ssize_t k = 0; k < count && wanted; k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        for (i++; i < 5 && name != bfc_cu_words[i]; i++) { /* CuPy gives them in this order */
        }
        if (i >= 5)
            for (i = 0; i < 5 && PyUnicode_Compare(name, bfc_cu_words[i]); i++) {
            }
        if (i == 5 || !(wanted >> i & 1)) continue;
        wanted &= ~(1 << i);
        *into[i] = PyLong_AsUnsignedLongLongMask(values[k]);
        if (*into[i] == (uint64_t)-1 && PyErr_Occurred()) return -1;
    }
    return 0;
}

/* Requests that this thread's pools serve now: more than one where a pool gets its memory from another pool. That
   pool's chunk is a grant to the first, and its failure the same failure. */
BFC_THREAD int bfc_cu_depth = 0;

static inline PyObject *bfc_cu_nothing(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

static bfc_reports *bfc_cu_reports(bfc_cu_watch *w, int64_t device) {
    return device >= 0 && device < BFC_CU_DEVICES && w->heaps[device].ledger ? &w->heaps[device] : NULL;
}

/* The number of a stream, 0 the default one; -1: it has none yet, or an exception is set. */
static int bfc_cu_stream_number(bfc_cu_watch *w, int device) {
    intptr_t stream = w->stream_of(device);
    if (!stream) return 0;
    if (stream == -1 && PyErr_Occurred()) return -1;
    for (int i = 0; i < w->streams; i++)
        if (w->stream[i] == stream) return i + 1;
    return -1;
}

/* What a report of C returned; NULL with an exception. */
static PyObject *bfc_cu_reported(PyObject *observed, int status) {
    if (status == BFC_REPORT_FAILED) return NULL;
    if (status == BFC_REPORT_OTHERS_WAIT) return PyObject_CallMethod(observed, "settle_heaps", NULL);
    return bfc_cu_nothing();
}

static PyObject *
bfc_cu_malloced(PyObject *capsule, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    bfc_cu_watch *w = (bfc_cu_watch *)PyCapsule_GetPointer(capsule, NULL);
    bfc_cu_told told = {0, 0, 0, 0, 0};
    if (bfc_cu_depth) bfc_cu_depth--;
    if (!w->observed || bfc_cu_depth) return bfc_cu_nothing();
    if (bfc_cu_read(&told, BFC_CU_SIZE | BFC_CU_MEM_SIZE | BFC_CU_POINTER, args + count, names)) return NULL;
    if (!told.size) return bfc_cu_nothing();
    int device = w->device_of ? w->device_of(0) : 0;
    if (device == -1 && PyErr_Occurred()) return NULL;
    bfc_reports *heap = w->grants || !told.mem_ptr ? NULL : bfc_cu_reports(w, device);
    int stream = heap ? bfc_cu_stream_number(w, device) : -1;
    if (PyErr_Occurred()) return NULL;
    int status = BFC_REPORT_BUSY;
    PyObject *observed = w->observed, *answer; /* Python below may end the observation */
    Py_INCREF(observed);
    if (stream >= 0) {
        uint32_t label = bfc_label_in(w->labels);
        if (w->walk) label = bfc_walk_number(w->walk, label);
        status = heap->allocate(
            heap->ledger, told.mem_ptr, told.mem_size, (int64_t)told.size, label, (uint16_t)stream
        );
    }
    if (status == BFC_REPORT_BUSY && bfc_cu_read(&told, BFC_CU_POOLED, args + count, names))
        answer = NULL;
    else if (status == BFC_REPORT_BUSY)
        answer = PyObject_CallMethod(
            observed, "allocated", "iKKKK", device, (unsigned long long)told.mem_ptr,
            (unsigned long long)told.mem_size, (unsigned long long)told.size, (unsigned long long)told.pmem_id
        );
    else
        answer = bfc_cu_reported(observed, status);
    if (answer && ++w->turn >= BFC_CU_LOOK) {
        w->turn = 0;
        Py_DECREF(answer);
        answer = PyObject_CallMethod(observed, "look", NULL);
    }
    Py_DECREF(observed);
    return answer;
}

static PyObject *bfc_cu_freed(PyObject *capsule, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    bfc_cu_watch *w = (bfc_cu_watch *)PyCapsule_GetPointer(capsule, NULL);
    bfc_cu_told told = {0, 0, 0, 0, 0};
    if (!w->observed) return bfc_cu_nothing();
    if (bfc_cu_read(&told, BFC_CU_DEVICE | BFC_CU_POINTER, args + count, names)) return NULL;
    bfc_reports *heap = bfc_cu_reports(w, (int64_t)told.device_id);
    PyObject *observed = w->observed, *answer;
    Py_INCREF(observed);
    int status = heap ? heap->free(heap->ledger, (int64_t)told.mem_ptr) : BFC_REPORT_BUSY;
    if (status == BFC_REPORT_BUSY)
        answer = PyObject_CallMethod(
            observed, "freed", "iK", (int)told.device_id, (unsigned long long)told.mem_ptr
        );
    else
        answer = bfc_cu_reported(observed, status);
    Py_DECREF(observed);
    return answer;
}

static PyObject *bfc_cu_begun(PyObject *capsule, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    (void)capsule, (void)args, (void)count, (void)names;
    bfc_cu_depth++;
    return bfc_cu_nothing();
}

static PyObject *bfc_cu_ignored(PyObject *capsule, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    (void)capsule, (void)args, (void)count, (void)names;
    return bfc_cu_nothing();
}

static void bfc_cu_watch_delete(PyObject *capsule) {
    bfc_cu_watch *w = (bfc_cu_watch *)PyCapsule_GetPointer(capsule, NULL);
    for (int i = 0; i < BFC_CU_DEVICES; i++) Py_XDECREF(w->kept[i]);
    Py_XDECREF(w->observed);
    Py_XDECREF(w->walker);
    free(w);
}

static PyObject *bfc_cu_watch_new(
    bfc_cu_stream_of stream_of, bfc_cu_device_of device_of, uint32_t labels, PyObject *walker, bfc_walk *walk
) {
    bfc_cu_watch *w = bfc_cu_prepare() ? NULL : (bfc_cu_watch *)calloc(1, sizeof *w);
    if (!w) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(w, NULL, bfc_cu_watch_delete);
    if (!capsule) {
        free(w);
        return NULL;
    }
    w->stream_of = stream_of;
    w->device_of = device_of;
    w->labels = labels;
    w->walk = walk;
    Py_INCREF(walker);
    w->walker = walker;
    return capsule;
}

/* The methods of a memory hook that C answers, by name. They keep the capsule. */
static PyObject *bfc_cu_methods(PyObject *capsule) {
#define BFC_CU_METHOD(name, function)                                                                        \
    {                                                                                                        \
        name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, NULL                     \
    }
    static PyMethodDef methods[] = {
        BFC_CU_METHOD("malloc_preprocess", bfc_cu_begun),
        BFC_CU_METHOD("malloc_postprocess", bfc_cu_malloced),
        BFC_CU_METHOD("free_preprocess", bfc_cu_freed),
        BFC_CU_METHOD("free_postprocess", bfc_cu_ignored),
    };
#undef BFC_CU_METHOD
    PyObject *made = PyDict_New();
    for (int i = 0; made && i < 4; i++) {
        PyObject *function = PyCFunction_New(&methods[i], capsule);
        if (!function || PyDict_SetItemString(made, methods[i].ml_name, function)) Py_CLEAR(made);
        Py_XDECREF(function);
    }
    return made;
}

/* Report a device's events in C from now on. */
static int bfc_cu_watch_add(PyObject *watch, int device, PyObject *reports) {
    bfc_cu_watch *w = (bfc_cu_watch *)PyCapsule_GetPointer(watch, NULL);
    const bfc_reports *found = (const bfc_reports *)PyCapsule_GetPointer(reports, BFC_REPORTS);
    if (!found) return -1;
    if (device < 0 || device >= BFC_CU_DEVICES || w->kept[device]) return 0;
    Py_INCREF(reports);
    w->kept[device] = reports;
    w->heaps[device] = *found;
    return 0;
}

/* The next stream number in C is this stream's, if it fits. */
static void bfc_cu_watch_stream(PyObject *watch, intptr_t stream, int number) {
    bfc_cu_watch *w = (bfc_cu_watch *)PyCapsule_GetPointer(watch, NULL);
    if (w->streams < BFC_CU_STREAMS && number == w->streams + 1) w->stream[w->streams++] = stream;
}

static void bfc_cu_watch_open(PyObject *watch, PyObject *observed) {
    bfc_cu_watch *w = (bfc_cu_watch *)PyCapsule_GetPointer(watch, NULL);
    PyObject *before = w->observed;
    w->observed = observed == Py_None ? NULL : observed;
    Py_XINCREF(w->observed);
    Py_XDECREF(before);
}

static void bfc_cu_watch_grants(PyObject *watch, int by) {
    ((bfc_cu_watch *)PyCapsule_GetPointer(watch, NULL))->grants += by;
}
