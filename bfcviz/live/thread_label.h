/* The label of the current work: of the Python context (`contextvars`) that the calling thread runs in. */
#pragma once

#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>

#include "bfcviz/c/attributes.h"
#include "bfcviz/c/gil.h"

/* PyContextVar_Get: public, but not in the limited interface. */
typedef int (*bfc_read_variable)(PyObject *variable, PyObject *otherwise, PyObject **value);

static bfc_read_variable bfc_read = 0;
static PyObject *bfc_label_variable = 0; /* a ContextVar: a tuple that begins with a label, or None */
static int bfc_label_used = 0;           /* whether this process ever had a label */

/* Reading the variable costs a tenth of an allocation, so a thread reads it only after it entered or left a context.
   Python counts these changes itself, for its own cache: the state of a thread has a pointer to its context and, next
   to it, a number that each change raises. `labels_and_marks.prepare` finds out where. */
static size_t bfc_context_at = 0; /* the word of the pointer in PyThreadState; 0: not found, read each time */

#define BFC_STATE_WORDS 40 /* less than any PyThreadState has */

/* What a thread read or set last. */
typedef struct bfc_known_label {
    uint64_t label; /* number of the table of labels * 2^32 + number of the label in it */
    PyThreadState *state;
    uintptr_t context;
    uintptr_t version;
} bfc_known_label;

BFC_THREAD bfc_known_label bfc_known = {0, 0, 0, 0};

/* Called in `context`: the word of this thread's state that points to it, and the next word; 0, 0: none does. */
static PyObject *bfc_label_words(PyObject *context) {
    const uintptr_t *words = (const uintptr_t *)PyThreadState_Get();
    for (size_t at = 1; at + 1 < BFC_STATE_WORDS; at++)
        if (words[at] == (uintptr_t)context)
            return Py_BuildValue("nK", (Py_ssize_t)at, (unsigned long long)words[at + 1]);
    return Py_BuildValue("nn", (Py_ssize_t)0, (Py_ssize_t)0);
}

static inline void bfc_label_begin(PyObject *variable, size_t context_at) {
    bfc_find_current_state();
    bfc_read = (bfc_read_variable)dlsym(RTLD_DEFAULT, "PyContextVar_Get");
    bfc_context_at = context_at;
    Py_INCREF(variable); /* for ever, as the module that made it */
    bfc_label_variable = variable;
}

static inline void bfc_label_know(PyThreadState *state, uint64_t label) {
    const uintptr_t *words = (const uintptr_t *)state + bfc_context_at;
    bfc_known = (bfc_known_label){label, bfc_context_at ? state : NULL, words[0], words[1]};
}

/* Called by `labels_and_marks.label`, after it set the variable of this context. */
static inline void bfc_label_set(uint64_t label) {
    if (label && bfc_read) bfc_label_used = 1;
    bfc_label_know(PyThreadState_Get(), label);
}

/* The variable can be read with the GIL alone. Without it the label is the one that was read or set last, unless this
   thread runs in another context now: then it is unknown. */
BFC_STATIC uint64_t bfc_label_read(void) {
    PyThreadState *state = PyGILState_GetThisThreadState();
    PyObject *work = NULL;
    if (!state) return 0;
    if (!bfc_has_gil()) {
        const uintptr_t *words = (const uintptr_t *)state + bfc_context_at;
        return bfc_context_at && words[0] != bfc_known.context ? 0 : bfc_known.label;
    }
    if (bfc_read(bfc_label_variable, Py_None, &work)) return 0;
    bfc_label_know(state, work == Py_None ? 0 : PyLong_AsUnsignedLongLong(PyTuple_GetItem(work, 0)));
    Py_DECREF(work);
    return bfc_known.label;
}

/* The label for a heap that writes the table of this number, 0: it has no labels. Returns 0 where there is no label, or
   one of another table. A state that is current is one that lives, so it may be read. */
static inline uint32_t bfc_label_in(uint32_t table) {
    if (!table || !bfc_label_used) return 0;
    PyThreadState *state = bfc_current_state ? bfc_current_state() : NULL;
    int is_known = state && state == bfc_known.state
                   && ((const uintptr_t *)state)[bfc_context_at + 1] == bfc_known.version;
    uint64_t label = is_known ? bfc_known.label : bfc_label_read();
    return label >> 32 == table ? (uint32_t)label : 0;
}
