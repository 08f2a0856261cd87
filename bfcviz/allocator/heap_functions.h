/* C functions that a framework's memory functions call, and the heap that each takes as its first argument.

   A Python capsule named BFC_HEAP_FUNCTIONS carries them from the heap's binary to that of bfcviz.live. */
#pragma once

#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define BFC_HEAP_FUNCTIONS "bfcviz.heap_functions"

/* Bytes. */
typedef struct bfc_totals {
    uint64_t pool;
    uint64_t in_use;
    uint64_t largest_free; /* chunk */
} bfc_totals;

/* Valid while the heap's allocator lives. All may be called with or without the GIL. */
typedef struct bfc_heap_functions {
    void *heap;
    void *(*serve)(void *heap, size_t num_bytes, uint32_t label); /* NULL: no memory */
    void *(*serve_if_it_fits)(
        void *heap, size_t num_bytes, uint32_t label
    );                                                /* NULL is no failure: no OOM event */
    int (*take_back)(void *heap, void *pointer);      /* 0, or the reason BFC_FREE_... */
    uint64_t (*requested)(void *heap, void *pointer); /* bytes; 0: no chunk begins there */
    void (*totals)(void *heap, bfc_totals *totals);
} bfc_heap_functions;

static inline void bfc_heap_functions_delete(PyObject *capsule) {
    free(PyCapsule_GetPointer(capsule, BFC_HEAP_FUNCTIONS));
}

static inline PyObject *bfc_heap_functions_pack(const bfc_heap_functions *functions) {
    bfc_heap_functions *copy = (bfc_heap_functions *)malloc(sizeof *copy);
    if (!copy) return PyErr_NoMemory();
    *copy = *functions;
    PyObject *capsule = PyCapsule_New(copy, BFC_HEAP_FUNCTIONS, bfc_heap_functions_delete);
    if (!capsule) free(copy);
    return capsule;
}

/* Raises ValueError if the object is no such capsule. The functions live as long as the capsule. */
static inline const bfc_heap_functions *bfc_heap_functions_unpack(PyObject *capsule) {
    return (const bfc_heap_functions *)PyCapsule_GetPointer(capsule, BFC_HEAP_FUNCTIONS);
}
