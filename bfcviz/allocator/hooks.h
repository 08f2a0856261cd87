/* C functions that a framework's memory functions call, and the heap that each takes as its first argument.

   A Python capsule named BFC_HOOKS carries them from the heap's binary to that of bfcviz.live. */
#pragma once

#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define BFC_HOOKS "bfcviz.hooks"

/* Bytes. */
typedef struct bfc_totals {
    uint64_t pool;
    uint64_t in_use;
    uint64_t largest_free; /* chunk */
} bfc_totals;

/* Valid while the heap's allocator lives. All may be called with or without the GIL. */
typedef struct bfc_hooks {
    void *heap;
    void *(*serve)(void *heap, size_t num_bytes, uint32_t label); /* NULL: no memory */
    void *(*serve_if_it_fits)(
        void *heap, size_t num_bytes, uint32_t label
    );                                                /* NULL is no failure: no OOM event */
    int (*take_back)(void *heap, void *pointer);      /* 0, or the reason BFC_FREE_... */
    uint64_t (*requested)(void *heap, void *pointer); /* bytes; 0: no chunk begins there */
    void (*totals)(void *heap, bfc_totals *totals);
} bfc_hooks;

static inline void bfc_hooks_delete(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, BFC_HOOKS)); }

static inline PyObject *bfc_hooks_pack(const bfc_hooks *hooks) {
    bfc_hooks *copy = (bfc_hooks *)malloc(sizeof *copy);
    if (!copy) return PyErr_NoMemory();
    *copy = *hooks;
    PyObject *capsule = PyCapsule_New(copy, BFC_HOOKS, bfc_hooks_delete);
    if (!capsule) free(copy);
    return capsule;
}

/* Raises ValueError if the object is no such capsule. The hooks live as long as the capsule. */
static inline const bfc_hooks *bfc_hooks_unpack(PyObject *capsule) {
    return (const bfc_hooks *)PyCapsule_GetPointer(capsule, BFC_HOOKS);
}
