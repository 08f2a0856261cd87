/* A list of all locks, so that they work after a fork.

   A fork takes the spinlocks, whose holders never wait for the GIL, so that the child's copy of the guarded
   data is consistent. In the child, mutexes of other threads are reset: those threads do not exist there. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "bfcviz/c/attributes.h"
#include "bfcviz/c/gil.h"
#include "bfcviz/c/mutex.h"
#include "bfcviz/c/spinlock.h"
#include "bfcviz/c/thread_number.h"

static pthread_mutex_t bfc_listing = PTHREAD_MUTEX_INITIALIZER;
static bfc_spinlock *bfc_spinlocks = 0;
static bfc_mutex *bfc_mutexes = 0;
static uint64_t bfc_generations = 0; /* forks from the first process to this one */

static inline uint64_t bfc_generation(void) { return bfc_generations; }

BFC_STATIC void bfc_take_locks(void) {
    pthread_mutex_lock(&bfc_listing);
    for (bfc_spinlock *l = bfc_spinlocks; l; l = l->next)
        for (int turn = 0; !bfc_spin_try(l); turn++) bfc_spin_pause(turn);
}

BFC_STATIC void bfc_leave_locks(void) {
    for (bfc_spinlock *l = bfc_spinlocks; l; l = l->next) bfc_spin_unlock(l);
    pthread_mutex_unlock(&bfc_listing);
}

BFC_STATIC void bfc_free_locks_in_child(void) {
    for (bfc_mutex *m = bfc_mutexes; m; m = m->next)
        if (m->owner != bfc_thread_number()) {
            pthread_mutex_init(&m->mutex, 0);
            m->owner = 0;
        }
    bfc_generations++;
    bfc_leave_locks();
}

BFC_STATIC void bfc_list_locks(bfc_spinlock *l, bfc_mutex *m) {
    static int is_installed = 0;
    pthread_mutex_lock(&bfc_listing);
    bfc_find_current_state();
    if (!is_installed)
        is_installed = !pthread_atfork(bfc_take_locks, bfc_leave_locks, bfc_free_locks_in_child);
    if (l) {
        l->next = bfc_spinlocks;
        bfc_spinlocks = l;
    }
    if (m) {
        m->next = bfc_mutexes;
        bfc_mutexes = m;
    }
    pthread_mutex_unlock(&bfc_listing);
}

BFC_STATIC bfc_spinlock *bfc_spinlock_new(void) {
    bfc_spinlock *l = (bfc_spinlock *)calloc(1, sizeof *l);
    if (l) bfc_list_locks(l, 0);
    return l;
}

BFC_STATIC bfc_mutex *bfc_mutex_new(void) {
    bfc_mutex *m = (bfc_mutex *)calloc(1, sizeof *m);
    if (!m) return m;
    pthread_mutex_init(&m->mutex, 0);
    bfc_list_locks(0, m);
    return m;
}

BFC_STATIC void bfc_spinlock_delete(bfc_spinlock *l) {
    pthread_mutex_lock(&bfc_listing);
    for (bfc_spinlock **link = &bfc_spinlocks; *link; link = &(*link)->next)
        if (*link == l) {
            *link = l->next;
            break;
        }
    pthread_mutex_unlock(&bfc_listing);
    free(l);
}

BFC_STATIC void bfc_mutex_delete(bfc_mutex *m) {
    if (!m) return;
    pthread_mutex_lock(&bfc_listing);
    for (bfc_mutex **link = &bfc_mutexes; *link; link = &(*link)->next)
        if (*link == m) {
            *link = m->next;
            break;
        }
    pthread_mutex_unlock(&bfc_listing);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}
