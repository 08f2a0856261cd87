/* A small number for each thread of the process, from 1, and the name that the system has for it then. */
#pragma once

#include <stdint.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "bfcviz/c/attributes.h"

#define BFC_NAMED_THREADS 1024 /* those with higher numbers have no name */

static uint16_t bfc_threads_seen = 0;
BFC_THREAD uint16_t bfc_thread = 0;
static char bfc_thread_names[BFC_NAMED_THREADS][16]; /* Linux has 15 characters and a zero */

static __attribute__((noinline)) uint16_t bfc_new_thread(void) {
    uint16_t number = __atomic_add_fetch(&bfc_threads_seen, 1, __ATOMIC_RELAXED);
#ifdef __linux__
    if (number < BFC_NAMED_THREADS) prctl(PR_GET_NAME, bfc_thread_names[number], 0, 0, 0);
#endif
    return number;
}

static inline uint16_t bfc_thread_number(void) {
    if (!bfc_thread) bfc_thread = bfc_new_thread();
    return bfc_thread;
}

/* How many threads may have names: numbers below this. */
BFC_STATIC uint16_t bfc_named_threads(void) {
    uint16_t seen = __atomic_load_n(&bfc_threads_seen, __ATOMIC_RELAXED);
    return seen < BFC_NAMED_THREADS ? seen + 1 : BFC_NAMED_THREADS;
}

BFC_STATIC const char *bfc_thread_name(uint16_t number) { return bfc_thread_names[number]; }
