/* The functions NumPy calls for its memory, in C. */
#pragma once

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bfcviz/allocator/heap_functions.h"
#include "bfcviz/c/attributes.h"
#include "bfcviz/c/constants.h"
#include "bfcviz/c/fork_count.h"
#include "bfcviz/live/failure.h"
#include "bfcviz/live/stack_walk.h"
#include "bfcviz/live/thread_label.h"

/* NumPy's PyDataMem_Handler, version 1 (numpy/ndarraytypes.h). */
typedef struct bfc_functions {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *, size_t);
} bfc_functions;

typedef struct bfc_handler {
    char name[127];
    uint8_t version;
    bfc_functions functions;
} bfc_handler;

/* Bytes of a scalar or the like: the smallest chunk. NumPy makes such arrays on the way, also while an error is
   handled. In a full heap NumPy itself serves them: otherwise 8 bytes would fail, and not the array that has no
   room. */
#define BFC_SMALLEST 256

/* A deferred free, written into the freed memory. */
typedef struct bfc_late {
    struct bfc_late *next;
    size_t size;
} bfc_late;

typedef struct bfc_gate {
    bfc_handler handler;          /* first: NumPy's pointer to it points to the gate */
    const bfc_functions *plain;   /* NumPy's own */
    bfc_heap_functions functions; /* of its heap */
    bfc_walk *walk;               /* records Python stacks; NULL: no stacks */
    size_t small;                 /* smaller requests go to NumPy itself */
    uint32_t labels;              /* number of the label table of this heap */
    int forks;                    /* of its process; another number: this is a child */
    int open;                     /* whether new requests are served */
    uint64_t passed;              /* requests that NumPy itself served, while open */
    uint64_t unfit;      /* of these, requests of at most BFC_SMALLEST for which the heap had no room */
    uint64_t failures;   /* requests that returned NULL */
    bfc_failure failure; /* the last */
    bfc_late *late;      /* deferred frees, a stack */
} bfc_gate;

/* Set while this thread runs in a heap. Python runs there on rare paths, and may request or free memory. */
BFC_THREAD int bfc_inside = 0;

static void bfc_give_back(bfc_gate *g, void *p, size_t size) {
    if (g->forks != bfc_fork_count) {
        /* The heap belongs to the parent process: its chunks stay; other memory is NumPy's own. */
        if (!g->functions.requested(g->functions.heap, p)) g->plain->free(g->plain->context, p, size);
        return;
    }
    bfc_inside = 1;
    int reason = g->functions.take_back(g->functions.heap, p);
    bfc_inside = 0;
    if (reason == BFC_FREE_FOREIGN) g->plain->free(g->plain->context, p, size);
}

static void bfc_give_late_ones_back(bfc_gate *g) {
    bfc_late *late = __atomic_exchange_n(&g->late, NULL, __ATOMIC_ACQ_REL);
    while (late) {
        bfc_late *next = late->next;
        bfc_give_back(g, late, late->size);
        late = next;
    }
}

static inline void bfc_see_to_late_ones(bfc_gate *g) {
    if (__atomic_load_n(&g->late, __ATOMIC_RELAXED)) bfc_give_late_ones_back(g);
}

static inline int bfc_is_served(bfc_gate *g, size_t size) {
    if (!__atomic_load_n(&g->open, __ATOMIC_RELAXED)) return 0;
    if (size >= g->small && !bfc_inside && g->forks == bfc_fork_count) return 1;
    __atomic_add_fetch(&g->passed, 1, __ATOMIC_RELAXED);
    return 0;
}

static void bfc_note_failure(bfc_gate *g, size_t size) {
    bfc_failure_note(&g->failure, &g->functions, size);
    __atomic_add_fetch(&g->failures, 1, __ATOMIC_RELEASE);
}

static void *bfc_serve(bfc_gate *g, size_t size) {
    uint32_t label = bfc_label_in(g->labels);
    bfc_inside = 1;
    if (g->walk) label = bfc_walk_number(g->walk, label);
    int may_fail = size > BFC_SMALLEST;
    void *p = may_fail ? g->functions.serve(g->functions.heap, size, label)
                       : g->functions.serve_if_it_fits(g->functions.heap, size ? size : 1, label);
    if (!p && may_fail) bfc_note_failure(g, size);
    bfc_inside = 0;
    bfc_see_to_late_ones(g);
    return p;
}

/* Whether NumPy itself serves what the heap did not. */
static inline int bfc_is_spared(bfc_gate *g, size_t size) {
    if (size > BFC_SMALLEST) return 0;
    __atomic_add_fetch(&g->passed, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&g->unfit, 1, __ATOMIC_RELAXED);
    return 1;
}

static void *bfc_np_malloc(void *context, size_t size) {
    bfc_gate *g = (bfc_gate *)context;
    if (bfc_is_served(g, size)) {
        void *p = bfc_serve(g, size);
        if (p || !bfc_is_spared(g, size)) return p;
    }
    return g->plain->malloc(g->plain->context, size);
}

#define BFC_FORGET_FROM ((size_t)32 << 20) /* bytes */

/* A chunk may hold old data. The pages of a large one are dropped; the kernel maps zero pages on the next
   access. */
static void bfc_clear(char *p, size_t size) {
#if defined(__linux__)
    if (size >= BFC_FORGET_FROM) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE), head = (page - (uintptr_t)p % page) % page;
        size_t whole = (size - head) / page * page;
        if (madvise(p + head, whole, MADV_DONTNEED) == 0) {
            memset(p, 0, head);
            memset(p + head + whole, 0, size - head - whole);
            return;
        }
    }
#endif
    memset(p, 0, size);
}

static void *bfc_np_calloc(void *context, size_t count, size_t item) {
    bfc_gate *g = (bfc_gate *)context;
    if (item && count > SIZE_MAX / item) return NULL;
    if (!bfc_is_served(g, count * item)) return g->plain->calloc(g->plain->context, count, item);
    char *p = (char *)bfc_serve(g, count * item);
    if (!p && bfc_is_spared(g, count * item)) return g->plain->calloc(g->plain->context, count, item);
    if (p) bfc_clear(p, count * item);
    return p;
}

static void bfc_np_free(void *context, void *p, size_t size) {
    bfc_gate *g = (bfc_gate *)context;
    if (!p) return;
    if (bfc_inside) {
        bfc_late *late = (bfc_late *)p;
        late->size = size;
        late->next = __atomic_load_n(&g->late, __ATOMIC_RELAXED);
        while (
            !__atomic_compare_exchange_n(&g->late, &late->next, late, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            continue;
        return;
    }
    bfc_give_back(g, p, size);
    bfc_see_to_late_ones(g);
}

static void *bfc_np_realloc(void *context, void *old, size_t size) {
    bfc_gate *g = (bfc_gate *)context;
    if (!old) return bfc_np_malloc(context, size);
    if (bfc_inside) return NULL;
    uint64_t had = g->functions.requested(g->functions.heap, old);
    if (!had) return g->plain->realloc(g->plain->context, old, size);
    void *p = bfc_np_malloc(context, size);
    if (!p) return NULL;
    memcpy(p, old, had < size ? had : size);
    bfc_np_free(context, old, had);
    return p;
}

/* `plain`: NumPy's own handler, for what is not served. `walk`: NULL: no stacks. */
static bfc_gate *bfc_gate_new(
    const bfc_heap_functions *functions, const bfc_handler *plain, size_t small, uint32_t labels,
    bfc_walk *walk
) {
    bfc_gate *g = (bfc_gate *)calloc(1, sizeof *g);
    if (!g) return NULL;
    bfc_count_forks();
    strcpy(g->handler.name, "bfcviz");
    g->handler.version = 1;
    g->handler.functions = (bfc_functions){g, bfc_np_malloc, bfc_np_calloc, bfc_np_realloc, bfc_np_free};
    g->plain = &plain->functions;
    g->functions = *functions;
    g->walk = walk;
    g->small = small;
    g->labels = labels;
    g->forks = bfc_fork_count;
    return g;
}

static void bfc_gate_delete(bfc_gate *g) {
    if (!g) return;
    bfc_give_late_ones_back(g);
    free(g);
}

/* The capsule of a handler, as NumPy takes it. Every array keeps the capsule alive, and the capsule keeps
   `owner` alive, with gate and heap. */
static void bfc_drop_owner(PyObject *capsule) { Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule)); }

static PyObject *bfc_capsule(bfc_gate *g, PyObject *owner) {
    PyObject *capsule = PyCapsule_New(&g->handler, "mem_handler", bfc_drop_owner);
    if (!capsule || PyCapsule_SetContext(capsule, owner)) {
        Py_XDECREF(capsule);
        return NULL;
    }
    Py_INCREF(owner);
    return capsule;
}
