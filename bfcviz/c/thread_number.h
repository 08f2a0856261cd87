/* A small number for each thread of the process, from 1. */
#pragma once

#include <stdint.h>

#include "bfcviz/c/attributes.h"

static uint16_t bfc_threads_seen = 0;
BFC_THREAD uint16_t bfc_thread = 0;

static inline uint16_t bfc_thread_number(void) {
    if (!bfc_thread) bfc_thread = __atomic_add_fetch(&bfc_threads_seen, 1, __ATOMIC_RELAXED);
    return bfc_thread;
}
