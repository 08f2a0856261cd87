# The event record and its kinds (event_record.h), declared to Cython. event_record.py is the same in plain Python.

from libc.stdint cimport int8_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "bfcviz/events/event_record.h":
    ctypedef struct Event "bfc_event":
        uint64_t seq
        int64_t time
        uint64_t address
        uint64_t size
        uint64_t requested
        uint32_t chunk
        uint32_t other
        uint32_t label
        uint16_t thread
        uint16_t stream
        uint16_t region
        uint16_t by
        uint8_t kind
        int8_t bin
        uint8_t flags
        uint8_t pool

    const uint64_t RECORD "sizeof(bfc_event)"

    enum:
        EXTEND "BFC_EXTEND"
        SPLIT "BFC_SPLIT"
        ALLOCATE "BFC_ALLOCATE"
        FREE "BFC_FREE"
        MERGE "BFC_MERGE"
        RELEASE "BFC_RELEASE"
        OOM "BFC_OOM"
        MARK "BFC_MARK"
        GREW "BFC_GREW"
        PADDING "BFC_PADDING"
        HELD "BFC_HELD"
        PIECE "BFC_PIECE"
