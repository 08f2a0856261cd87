/* The number of a Python stack: each new stack gets one; a known stack costs one hash. */
#pragma once

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bfcviz/c/gil.h"
#include "bfcviz/live/raise_later.h"

#define BFC_DEEPEST 1024           /* frames; c_callbacks.DEEPEST */
#define BFC_FURTHER 16             /* frames to walk on where none was the program's own */
#define BFC_WALK_ON ((uint32_t)-1) /* c_callbacks.WALK_ON: the name is in a frame further out */

#define BFC_OUTERMOST ((uint64_t)1 << 32) /* in bfc_place.at: no frame called this one */

/* One frame: its code, and the instruction in it. */
typedef struct bfc_place {
    PyObject *code;
    uint64_t at;
} bfc_place;

typedef struct bfc_chain {
    bfc_place *places; /* innermost first; NULL: an empty slot */
    uint64_t hash;
    uint32_t depth;
    uint32_t label;  /* current at the time */
    uint32_t number; /* of label and stack together, or BFC_WALK_ON */
} bfc_chain;

/* PyFrame_GetBack and PyFrame_GetLasti: public, but not in every header. */
typedef PyObject *(*bfc_frame_back)(PyObject *frame);
typedef int (*bfc_frame_lasti)(PyObject *frame);

typedef struct bfc_walk {
    bfc_frame_back back;
    bfc_frame_lasti lasti;
    PyObject
        *name_stack; /* name_stack(frame, label, frames) -> number, or 0: ask again next time; borrowed */
    uint32_t depth;  /* frames to compare first */
    size_t most;     /* chains to keep, at most */
    size_t count;
    size_t mask; /* slots, less one: a power of two, at least half of them empty */
    bfc_chain *chains;
    uint64_t missed; /* allocations that got no number */
} bfc_walk;

static bfc_chain *
bfc_slot(bfc_walk *w, uint64_t hash, uint32_t label, const bfc_place *places, uint32_t depth) {
    for (size_t i = hash & w->mask;; i = (i + 1) & w->mask) {
        bfc_chain *c = &w->chains[i];
        if (!c->places) return c;
        if (c->hash == hash && c->label == label && c->depth == depth
            && !memcmp(c->places, places, depth * sizeof *places))
            return c;
    }
}

static int bfc_grow(bfc_walk *w) {
    bfc_chain *old = w->chains, *made = (bfc_chain *)calloc((w->mask + 1) * 2, sizeof *made);
    size_t slots = w->mask + 1;
    if (!made) return 0;
    w->chains = made;
    w->mask = slots * 2 - 1;
    for (size_t i = 0; i < slots; i++)
        if (old[i].places) *bfc_slot(w, old[i].hash, old[i].label, old[i].places, old[i].depth) = old[i];
    free(old);
    return 1;
}

/* The table keeps the code alive, so no other code can get its address. */
static void bfc_keep(bfc_walk *w, bfc_chain chain, const bfc_place *places) {
    if (w->count * 2 > w->mask && !bfc_grow(w)) return;
    bfc_chain *c = bfc_slot(w, chain.hash, chain.label, places, chain.depth);
    if (c->places || !(chain.places = (bfc_place *)malloc(chain.depth * sizeof *places))) return;
    memcpy(chain.places, places, chain.depth * sizeof *places);
    for (uint32_t i = 0; i < chain.depth; i++) Py_INCREF(places[i].code);
    *c = chain;
    w->count++;
}

static uint32_t bfc_name_stack(bfc_walk *w, PyObject *frame, bfc_chain chain, const bfc_place *places) {
    unsigned long number = 0;
    Py_INCREF(frame);
    PyObject *answer = PyObject_CallFunction(
        w->name_stack, "OII", frame, (unsigned int)chain.label, (unsigned int)chain.depth
    );
    Py_DECREF(frame);
    if (answer) number = PyLong_AsUnsignedLong(answer);
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        bfc_raise_later();
        number = 0;
    }
    if (!number) {
        w->missed++;
        return chain.label;
    }
    chain.number = (uint32_t)number;
    bfc_keep(w, chain, places);
    return chain.number;
}

/* Add frames from `frame` on until there are `depth`; returns the next frame, NULL: there is none. */
static PyObject *
bfc_walk_to(bfc_walk *w, bfc_chain *chain, bfc_place *places, PyObject *frame, uint32_t depth) {
    while (frame && chain->depth < depth) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame), *next = w->back(frame);
        bfc_place place = {code, (uint64_t)(uint32_t)w->lasti(frame) | (next ? 0 : BFC_OUTERMOST)};
        Py_DECREF(code); /* the frame keeps it, and its thread keeps the frame */
        places[chain->depth++] = place;
        chain->hash = (chain->hash ^ (uintptr_t)code ^ place.at << 48) * 0x9E3779B97F4A7C15u;
        chain->hash ^= chain->hash >> 32;
        Py_DECREF(frame);
        frame = next;
    }
    if (PyErr_Occurred()) PyErr_Clear(); /* no memory for a frame object */
    return frame;
}

/* Called with or without the GIL, with the current label; returns the number of label and stack together. */
static uint32_t bfc_walk_number(void *context, uint32_t label) {
    bfc_walk *w = (bfc_walk *)context;
    if (!bfc_has_gil()) {
        __atomic_add_fetch(&w->missed, 1, __ATOMIC_RELAXED);
        return label;
    }
    PyObject *top = PyErr_Occurred() ? NULL : (PyObject *)PyEval_GetFrame(), *frame = top;
    if (!top) {
        w->missed++;
        return label;
    }
    bfc_place places[BFC_DEEPEST];
    bfc_chain chain = {NULL, label + 1, 0, label, 0};
    uint32_t number = BFC_WALK_ON;
    Py_INCREF(frame);
    for (uint32_t depth = w->depth; number == BFC_WALK_ON && frame && chain.depth < BFC_DEEPEST;
         depth += BFC_FURTHER) {
        frame = bfc_walk_to(w, &chain, places, frame, depth < BFC_DEEPEST ? depth : BFC_DEEPEST);
        bfc_chain *c = bfc_slot(w, chain.hash, label, places, chain.depth);
        if (c->places)
            number = c->number;
        else if (w->count < w->most)
            number = bfc_name_stack(w, top, chain, places);
        else {
            w->missed++;
            number = label;
        }
    }
    Py_XDECREF(frame);
    if (number != BFC_WALK_ON) return number;
    w->missed++; /* no memory for a frame object */
    return label;
}

static bfc_walk *
bfc_walk_new(bfc_frame_back back, bfc_frame_lasti lasti, PyObject *name_stack, uint32_t depth, size_t most) {
    bfc_walk *w = (bfc_walk *)calloc(1, sizeof *w);
    if (!w || !(w->chains = (bfc_chain *)calloc(1024, sizeof *w->chains))) {
        free(w);
        return NULL;
    }
    bfc_find_current_state();
    w->back = back;
    w->lasti = lasti;
    w->mask = 1023;
    w->name_stack = name_stack;
    w->depth = depth < BFC_DEEPEST ? depth : BFC_DEEPEST;
    w->most = most;
    return w;
}

static void bfc_walk_delete(bfc_walk *w) {
    if (!w) return;
    for (size_t i = 0; i <= w->mask; i++) {
        bfc_chain *c = &w->chains[i];
        if (!c->places) continue;
        for (uint32_t k = 0; k < c->depth; k++) Py_DECREF(c->places[k].code);
        free(c->places);
    }
    free(w->chains);
    free(w);
}
