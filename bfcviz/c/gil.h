/* Whether a thread holds Python's lock, the GIL. */
#pragma once

#include <Python.h>
#include <dlfcn.h>

#include "bfcviz/c/attributes.h"

/* Whether this thread holds the GIL. PyGILState_Check does not work: after the first sub-interpreter it
   always returns 1. The limited interface lacks the right function, so it is looked up by name. Since Python
   3.12 the current state belongs to the thread, before to the process. */
typedef PyThreadState *(*bfc_state_of)(void);
static bfc_state_of bfc_current_state = 0;

BFC_STATIC void bfc_find_current_state(void) {
    if (!bfc_current_state)
        bfc_current_state = (bfc_state_of)dlsym(RTLD_DEFAULT, "PyThreadState_GetUnchecked");
    if (!bfc_current_state)
        bfc_current_state = (bfc_state_of)dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet");
}

BFC_STATIC int bfc_has_gil(void) {
    PyThreadState *current = bfc_current_state ? bfc_current_state() : 0;
    return current && (Py_Version >= 0x030C0000 || current == PyGILState_GetThisThreadState());
}
