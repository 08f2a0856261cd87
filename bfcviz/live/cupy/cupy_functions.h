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
#include "bfcviz/live/shared/raise_later.h"

/* One heap, for one stream of one device. */
typedef struct bfc_cu_lane {
    struct bfc_cu_lane *next;
    int device;
    intptr_t stream; /* as bfc_cu_stream tells it */
    bfc_hooks hooks; /* of the heap */
    PyObject *allocator;
} bfc_cu_lane;

typedef intptr_t (*bfc_cu_stream_of)(int device);

/* CuPy calls with the GIL held, so there is no other lock. */
typedef struct bfc_cu {
    bfc_cu_lane *lanes; /* newest first; they stay as long as this does */
    PyObject *owner;    /* the hook that owns this; borrowed, but for one reference while memory is out */
    PyObject *desk;     /* Python for the rare paths; the owner's */
    bfc_cu_stream_of stream_of; /* CuPy's current stream on a device; may raise */
    bfc_walk *walk;             /* records Python stacks; NULL: not wanted */
    uint32_t labels;            /* number of the table of labels the heaps write */
    int forks;                  /* of its process; another number: this is a child */
    int held;                   /* frees that wait for other streams */
    int ended;                  /* Python ends: call none */
    int inside;                 /* calls under way, which Python must not end before they return */
    uint64_t out;               /* chunks CuPy has */
} bfc_cu;

static intptr_t bfc_cu_threads = 0;
BFC_THREAD intptr_t bfc_cu_thread = 0;

/* What tells streams apart: 1 is another name of the legacy default stream 0, and 2 is one of each thread. */
static intptr_t bfc_cu_stream(bfc_cu *g, int device) {
    intptr_t stream = g->stream_of(device);
    if (stream == 1) return 0;
    if (stream != 2) return stream;
    if (!bfc_cu_thread) bfc_cu_thread = -__atomic_add_fetch(&bfc_cu_threads, 1, __ATOMIC_RELAXED);
    return bfc_cu_thread;
}

static bfc_cu_lane *bfc_cu_find(bfc_cu *g, int device, intptr_t stream) {
    for (bfc_cu_lane *l = g->lanes; l; l = l->next)
        if (l->device == device && l->stream == stream) return l;
    return NULL;
}

static bfc_cu_lane *bfc_cu_owner_of(bfc_cu *g, int device, void *p) {
    for (bfc_cu_lane *l = g->lanes; l; l = l->next)
        if (l->device == device && l->hooks.requested(l->hooks.heap, p)) return l;
    return NULL;
}

/* What a method of the desk answers. An error is printed, and -1: memory that cannot be held back must stay
   in use, for another stream may still read it. */
static int bfc_cu_ask(bfc_cu *g, const char *method, void *p, int device, intptr_t stream, intptr_t now) {
    PyObject *desk = g->desk, *owner = g->owner, *answer;
    Py_INCREF(owner);
    answer = PyObject_CallMethod(
        desk, method, "KiLL", (unsigned long long)(size_t)p, device, (long long)stream, (long long)now
    );
    int is = answer ? PyObject_IsTrue(answer) : -1;
    if (is < 0) bfc_report(desk);
    Py_XDECREF(answer);
    Py_DECREF(owner);
    return is;
}

static void *bfc_cu_serve(bfc_cu *g, size_t size, int device) {
    if (g->forks != bfc_fork_count || g->ended) return NULL;
    if (g->held) bfc_cu_ask(g, "let_go", NULL, device, 0, 0);
    uint32_t label = bfc_label_in(g->labels);
    if (g->walk) label = bfc_walk_number(g->walk, label); /* may run Python: no lane is chosen before */
    intptr_t stream = bfc_cu_stream(g, device);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return NULL;
    }
    bfc_cu_lane *l = bfc_cu_find(g, device, stream);
    if (!l && bfc_cu_ask(g, "more", NULL, device, stream, 0)) l = bfc_cu_find(g, device, stream);
    if (!l) return NULL;
    void *p = l->hooks.serve(l->hooks.heap, size, label);
    if (p && g->out++ == 0) Py_INCREF(g->owner);
    return p;
}

/* NULL where it cannot: the caller of CuPy's allocator finds out why (Desk.recover). */
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

static void bfc_cu_back(bfc_cu *g, bfc_cu_lane *l, void *p) {
    if (l->hooks.take_back(l->hooks.heap, p) != 0) return;
    if (--g->out == 0 && !g->ended) Py_DECREF(g->owner); /* `g` may be gone */
}

/* Comes at any time, while an error is raised and during a collection too. */
static void bfc_cu_free(void *param, void *p, int device) {
    bfc_cu *g = (bfc_cu *)param;
    if (!p || g->ended || g->forks != bfc_fork_count) return; /* in a child the books are the parent's */
    PyObject *type, *value, *trace, *owner = g->owner;
    PyErr_Fetch(&type, &value, &trace);
    Py_INCREF(owner);
    g->inside++;
    bfc_cu_lane *l = bfc_cu_owner_of(g, device, p);
    if (l) {
        intptr_t now = bfc_cu_stream(g, device);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            now = ~l->stream; /* not known: not its own, then */
        }
        if (now != l->stream && bfc_cu_ask(g, "hold", p, device, l->stream, now)) l = NULL;
    }
    if (l) bfc_cu_back(g, l, p);
    g->inside--;
    Py_DECREF(owner); /* `g` may be gone */
    PyErr_Restore(type, value, trace);
}

static void bfc_cu_give_back(bfc_cu *g, void *p, int device) {
    bfc_cu_lane *l = bfc_cu_owner_of(g, device, p);
    if (l) bfc_cu_back(g, l, p);
}

static bfc_cu *
bfc_cu_new(PyObject *owner, PyObject *desk, bfc_cu_stream_of stream_of, uint32_t labels, bfc_walk *walk) {
    bfc_cu *g = (bfc_cu *)calloc(1, sizeof *g);
    if (!g) return NULL;
    bfc_count_forks();
    g->owner = owner;
    g->desk = desk;
    g->stream_of = stream_of;
    g->walk = walk;
    g->labels = labels;
    g->forks = bfc_fork_count;
    return g;
}

static int bfc_cu_add(bfc_cu *g, const bfc_hooks *hooks, PyObject *allocator, int device, intptr_t stream) {
    bfc_cu_lane *l = (bfc_cu_lane *)calloc(1, sizeof *l);
    if (!l) return -1;
    l->device = device;
    l->stream = stream;
    l->hooks = *hooks;
    Py_INCREF(allocator);
    l->allocator = allocator;
    l->next = g->lanes;
    g->lanes = l;
    return 0;
}

static void bfc_cu_move(bfc_cu *g, int device, intptr_t old, intptr_t stream) {
    bfc_cu_lane *l = bfc_cu_find(g, device, old);
    if (l) l->stream = stream;
}

static void bfc_cu_delete(bfc_cu *g) {
    if (!g) return;
    while (g->lanes) {
        bfc_cu_lane *l = g->lanes;
        g->lanes = l->next;
        Py_DECREF(l->allocator);
        free(l);
    }
    free(g);
}

/* Python ends: call none from here on. */
static void bfc_cu_end(bfc_cu *g) {
    if (g->ended) return;
    g->ended = 1;
    Py_INCREF(g->owner);
}
