/* The event record in C: 64 bytes, little endian.

   The field table in schema.py says what each field means. event_record.pxd declares this file to Cython, and
   tests/unit/events/test_schema.py compares both with schema.py, field by field. */
#ifndef BFCVIZ_EVENT_RECORD_H
#define BFCVIZ_EVENT_RECORD_H

#include <stddef.h>
#include <stdint.h>

typedef struct bfc_event {
    uint64_t seq;
    int64_t time;
    uint64_t address;
    uint64_t size;
    uint64_t requested;
    uint32_t chunk;
    uint32_t other;
    uint32_t label;
    uint16_t thread;
    uint16_t stream;
    uint16_t region;
    uint16_t by;
    uint8_t kind; /* written last: 0 means no event here */
    int8_t bin;
    uint8_t flags;
    uint8_t pool;
} bfc_event;

/* The sum of the field sizes: there is no padding. */
_Static_assert(
    sizeof(bfc_event) == 5 * 8 + 3 * 4 + 4 * 2 + 4 * 1, "an event record is 64 bytes, without padding"
);
_Static_assert(offsetof(bfc_event, kind) == 60, "the kind of an event is byte 60 of its record");

enum bfc_kind {
    BFC_EXTEND = 1,
    BFC_SPLIT = 2,
    BFC_ALLOCATE = 3,
    BFC_FREE = 4,
    BFC_MERGE = 5,
    BFC_RELEASE = 6,
    BFC_OOM = 7,
    BFC_MARK = 8
};

/* Bits of `flags`. */
enum bfc_flag {
    BFC_GREW = 1,
    BFC_PADDING = 2,
    BFC_HELD = 4,
    BFC_PIECE = 8,
    BFC_UPPER = 16,
    BFC_CENTRAL_GAP = 32
};

#endif
