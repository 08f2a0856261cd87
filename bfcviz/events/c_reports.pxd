# C functions that write reports into a ledger (reports.h), declared to Cython.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from bfcviz cimport native
from bfcviz._heap cimport Ledger

cdef extern from "bfcviz/events/reports.h":
    enum:
        BUSY "BFC_REPORT_BUSY"
        WRITTEN "BFC_REPORT_WRITTEN"
        OTHERS_WAIT "BFC_REPORT_OTHERS_WAIT"

    ctypedef struct Reports "bfc_reports":
        void *ledger
        int (*allocate)(void *, uint64_t, uint64_t, int64_t, uint32_t, uint16_t) except -1
        int (*free)(void *, int64_t) except -1

    object bfc_reports_pack(const Reports *)

# These two return -1 with an exception set, as if they were declared so; `end_report` passes it on. A `try` would save
# and restore the exception being handled at every report.
cdef inline int write_allocation(
    Ledger ledger, uint64_t address, uint64_t size, int64_t requested, uint32_t label, uint16_t stream
) except -1:
    ledger.thread = ledger._log.begin_operation(-1)
    ledger.allocate(address, size, requested, label, stream)
    return WRITTEN

cdef inline int write_free(Ledger ledger, int64_t address) except -1:
    ledger.thread = ledger._log.begin_operation(-1)
    ledger.free(address)
    return WRITTEN

ctypedef int (*WriteAllocation)(Ledger, uint64_t, uint64_t, int64_t, uint32_t, uint16_t) noexcept
ctypedef int (*WriteFree)(Ledger, int64_t) noexcept

cdef inline int end_report(Ledger ledger, int status) except -1:
    ledger.busy = 0
    return status if status < 0 or not len(ledger.waiting) else OTHERS_WAIT

cdef inline int report_allocation(
    void *context, uint64_t address, uint64_t size, int64_t requested, uint32_t label, uint16_t stream
) except -1:
    ledger = <Ledger>context
    if ledger.busy:
        return BUSY
    ledger.busy = native.thread_number()
    return end_report(ledger, (<WriteAllocation>write_allocation)(ledger, address, size, requested, label, stream))

cdef inline int report_free(void *context, int64_t address) except -1:
    ledger = <Ledger>context
    if ledger.busy:
        return BUSY
    ledger.busy = native.thread_number()
    return end_report(ledger, (<WriteFree>write_free)(ledger, address))

cdef inline object pack(Ledger ledger):
    cdef Reports made = Reports(<void *>ledger, report_allocation, report_free)
    return bfc_reports_pack(&made)
