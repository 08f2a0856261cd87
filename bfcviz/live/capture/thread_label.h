/* The label of this thread's allocations. */
#pragma once

#include <stdint.h>

#include "bfcviz/c/attributes.h"

/* Number of the table of labels * 2^32 + number of the label in it. */
BFC_THREAD uint64_t bfc_label = 0;

static inline uint64_t bfc_label_get(void) { return bfc_label; }

static inline void bfc_label_set(uint64_t label) { bfc_label = label; }

/* The label for a heap that writes the table of this number; 0: the label belongs to another table. */
static inline uint32_t bfc_label_in(uint32_t table) {
    return bfc_label >> 32 == table ? (uint32_t)bfc_label : 0;
}
