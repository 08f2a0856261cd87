/* The last request that a heap could not serve. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bfcviz/allocator/heap_functions.h"

typedef struct bfc_failure {
    uint64_t requested; /* bytes */
    bfc_totals totals;  /* of the heap just after it */
} bfc_failure;

static inline void
bfc_failure_note(bfc_failure *failure, const bfc_heap_functions *functions, size_t requested) {
    failure->requested = requested;
    functions->totals(functions->heap, &failure->totals);
}
