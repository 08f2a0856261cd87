/* What becomes of an exception that Python raised inside a C function whose caller does not expect one. */
#pragma once

#include <Python.h>

/* What was raised here, by the handler of a signal say, is not the caller's to see now: it comes a moment
   later. */
static inline void bfc_raise_later(void) {
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    if (kind) PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), kind);
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* An error is printed. Ctrl-C and the like are no errors, and end the program a moment later. */
static inline void bfc_report(PyObject *where) {
    if (PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_WriteUnraisable(where);
    else
        bfc_raise_later();
}
