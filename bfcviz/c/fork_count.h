/* Tells a forked process from its parent. */
#pragma once

#include <pthread.h>

#include "bfcviz/c/attributes.h"

static int bfc_fork_count = 0; /* forks from the process that loaded this code to this one */

BFC_STATIC void bfc_count_fork(void) { bfc_fork_count++; }

/* Start counting, once. The caller holds the GIL. */
BFC_STATIC void bfc_count_forks(void) {
    static int is_counting = 0;
    if (!is_counting) is_counting = !pthread_atfork(NULL, NULL, bfc_count_fork);
}
