/* The last request that a heap could not serve. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bfcviz/allocator/hooks.h"

typedef struct bfc_failure {
    uint64_t requested; /* bytes */
    bfc_totals totals;  /* of the heap just after it */
} bfc_failure;

static inline void bfc_failure_note(bfc_failure *failure, const bfc_hooks *hooks, size_t requested) {
    failure->requested = requested;
    hooks->totals(hooks->heap, &failure->totals);
}
