/* Whether a thread has Python's lock, the GIL. */
#pragma once

#include <Python.h>
#include <dlfcn.h>

#include "bfcviz/c/attributes.h"

/* Whether this thread has the GIL. PyGILState_Check cannot tell: once there was a sub-interpreter it always
   says yes. The limited interface lacks what can, so it is found by name. Since Python 3.12 the current state
   is of the thread, before of the process. */
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
