/* C functions that write reports into a ledger, for hooks that another framework calls.

   A Python capsule named BFC_REPORTS carries them from the ledger's binary to that of bfcviz.live. */
#pragma once

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#define BFC_REPORTS "bfcviz.reports"

enum {
    BFC_REPORT_FAILED = -1, /* an exception is set */
    BFC_REPORT_BUSY = 0,    /* not written: another report is being written; report it to the ObservedHeap */
    BFC_REPORT_WRITTEN = 1,
    BFC_REPORT_OTHERS_WAIT = 2 /* written, and others came meanwhile: settle the ObservedHeap */
};

/* Valid while the ledger lives; the GIL must be held. */
typedef struct bfc_reports {
    void *ledger;
    int (*allocate)(
        void *ledger, uint64_t address, uint64_t size, int64_t requested, uint32_t label, uint16_t stream
    );
    int (*free)(void *ledger, int64_t address);
} bfc_reports;

static inline void bfc_reports_delete(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, BFC_REPORTS)); }

static inline PyObject *bfc_reports_pack(const bfc_reports *reports) {
    bfc_reports *copy = (bfc_reports *)malloc(sizeof *copy);
    if (!copy) return PyErr_NoMemory();
    *copy = *reports;
    PyObject *capsule = PyCapsule_New(copy, BFC_REPORTS, bfc_reports_delete);
    if (!capsule) free(copy);
    return capsule;
}
