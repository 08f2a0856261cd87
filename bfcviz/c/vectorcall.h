/* Calls with the arguments in an array instead of a tuple: an allocation and a free take a quarter fewer instructions.
   The limited interface has them from Python 3.12 on, so that Cython does not use them before. Python 3.11 exports the
   same functions. */
#pragma once

#include <Python.h>

#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030C0000
typedef PyObject *(*vectorcallfunc)(PyObject *called, PyObject *const *args, size_t nargsf, PyObject *names);

#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))

static inline Py_ssize_t PyVectorcall_NARGS(size_t n) {
    return (Py_ssize_t)(n & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
}

PyAPI_FUNC(PyObject *) PyVectorcall_Call(PyObject *, PyObject *, PyObject *);
PyAPI_FUNC(PyObject *) PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);
PyAPI_FUNC(PyObject *) PyObject_VectorcallMethod(PyObject *, PyObject *const *, size_t, PyObject *);
#endif
