/* A lock for critical sections far below a microsecond: one exchange to lock, one store to unlock. */
#pragma once

#include <Python.h>
#include <sched.h>
#include <time.h>

#include "bfcviz/c/attributes.h"
#include "bfcviz/c/clock.h"
#include "bfcviz/c/gil.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

typedef struct bfc_spinlock {
    char locked;
    struct bfc_spinlock *next; /* in lock_list.h */
} bfc_spinlock;

static inline int bfc_spin_try(bfc_spinlock *l) {
    return !__atomic_exchange_n(&l->locked, 1, __ATOMIC_ACQUIRE);
}

static inline void bfc_spin_unlock(bfc_spinlock *l) { __atomic_store_n(&l->locked, 0, __ATOMIC_RELEASE); }

enum { BFC_SPIN_TURNS = 20 }; /* before the processor is yielded: some 10 microseconds */

/* Wait longer from turn to turn: meanwhile the holder keeps the lock's cache line, and may lock again with it.
   The holder may have been preempted: then yield the processor, at last sleep. */
BFC_STATIC void bfc_spin_pause(int turn) {
    if (turn < BFC_SPIN_TURNS) {
#if defined(__x86_64__)
        for (int left = turn < 5 ? 1 << turn : 32; left; left--) _mm_pause();
#endif
    } else if (turn < BFC_SPIN_TURNS + 100) {
        sched_yield();
    } else {
        struct timespec t = {0, 20000};
        nanosleep(&t, 0);
    }
}

/* Read before the exchange, which takes the cache line from the holder. */
BFC_STATIC void bfc_spin_wait(bfc_spinlock *l) {
    int has_gil = bfc_has_gil();
    for (int turn = 0; __atomic_load_n(&l->locked, __ATOMIC_RELAXED) || !bfc_spin_try(l); turn++) {
        PyThreadState *mine = turn >= BFC_SPIN_TURNS && has_gil ? PyEval_SaveThread() : 0;
        bfc_spin_pause(turn);
        if (mine) PyEval_RestoreThread(mine);
    }
}

/* mutex.h explains which thread waits with the GIL. */
static inline void bfc_spin_lock(bfc_spinlock *l) {
    if (!bfc_spin_try(l)) bfc_spin_wait(l);
}

/* Read the counter, then lock; if that had to wait, read again. A reading before the exchange costs half as
   much: the two overlap. The time of a thread that is preempted between them may precede its lock. */
static inline uint64_t bfc_spin_lock_timed(bfc_spinlock *l) {
    uint64_t ticks = bfc_ticks();
    if (bfc_spin_try(l)) return ticks;
    bfc_spin_wait(l);
    return bfc_ticks();
}
