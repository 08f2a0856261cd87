/* Exceptions that Python raised inside a C function whose caller does not expect one. */
#pragma once

#include <Python.h>

/* Raise the exception again a moment later in this thread, outside of this call. Example: a signal handler
   raised it. */
static inline void bfc_raise_later(void) {
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    if (kind) PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), kind);
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* Print an error. Ctrl-C and the like are no errors: raise them again a moment later. */
static inline void bfc_report(PyObject *where) {
    if (PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_WriteUnraisable(where);
    else
        bfc_raise_later();
}
