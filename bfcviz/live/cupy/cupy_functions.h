/* The functions CuPy calls for its memory, in C. */
#pragma once

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#include "bfcviz/allocator/c_interface/hooks.h"
#include "bfcviz/c/attributes.h"
#include "bfcviz/c/fork_count.h"
#include "bfcviz/live/capture/stack_walk.h"
#include "bfcviz/live/capture/thread_label.h"
#include "bfcviz/live/common/raise_later.h"

/* One heap, for one stream of one device. */
typedef struct bfc_cu_heap {
    struct bfc_cu_heap *next;
    int device;
    intptr_t stream; /* as bfc_cu_stream tells it */
    bfc_hooks hooks; /* of the heap */
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
        if (h->device == device && h->hooks.requested(h->hooks.heap, p)) return h;
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
    void *p = h->hooks.serve(h->hooks.heap, size, label);
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
    if (h->hooks.take_back(h->hooks.heap, p) != 0) return;
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

static int bfc_cu_add(bfc_cu *g, const bfc_hooks *hooks, PyObject *allocator, int device, intptr_t stream) {
    bfc_cu_heap *h = (bfc_cu_heap *)calloc(1, sizeof *h);
    if (!h) return -1;
    h->device = device;
    h->stream = stream;
    h->hooks = *hooks;
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
