/* A lock that may be held for long. */
#pragma once

#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "bfcviz/c/attributes.h"
#include "bfcviz/c/gil.h"
#include "bfcviz/c/thread_number.h"

typedef struct bfc_mutex {
    pthread_mutex_t mutex;
    uint16_t owner;         /* number of the thread that holds it; 0 = none */
    struct bfc_mutex *next; /* in lock_list.h */
} bfc_mutex;

/* No thread waits for the GIL while it holds a lock, or for a lock while it holds the GIL: a thread with the
   GIL releases it, waits until the lock is free, and then tries again. A thread without the GIL never waits
   for it here: the thread that holds it may be waiting for this one, while holding a lock of a framework. */
BFC_STATIC void bfc_mutex_lock(bfc_mutex *m) {
    while (pthread_mutex_trylock(&m->mutex)) {
        if (!bfc_has_gil()) {
            pthread_mutex_lock(&m->mutex);
            break;
        }
        PyThreadState *mine = PyEval_SaveThread();
        pthread_mutex_lock(&m->mutex);
        pthread_mutex_unlock(&m->mutex);
        PyEval_RestoreThread(mine);
    }
    m->owner = bfc_thread_number();
}

BFC_STATIC void bfc_mutex_unlock(bfc_mutex *m) {
    m->owner = 0;
    pthread_mutex_unlock(&m->mutex);
}

/* 0 = locked. */
static inline int bfc_mutex_lock_until(bfc_mutex *m, const struct timespec *until) {
#if defined(__APPLE__) /* has no pthread_mutex_timedlock */
    struct timespec now, pause = {0, 1000000};
    int error;
    while ((error = pthread_mutex_trylock(&m->mutex))) {
        clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec))
            break;
        nanosleep(&pause, NULL);
    }
    return error;
#else
    return pthread_mutex_timedlock(&m->mutex, until);
#endif
}

/* Wait until no other thread holds it, for at most `patience` nanoseconds. */
BFC_STATIC void bfc_mutex_wait(bfc_mutex *m, int64_t patience) {
    struct timespec until;
    if (m->owner == bfc_thread_number()) return;
    clock_gettime(CLOCK_REALTIME, &until);
    patience += until.tv_nsec;
    until.tv_sec += patience / 1000000000;
    until.tv_nsec = patience % 1000000000;
    if (!bfc_mutex_lock_until(m, &until)) pthread_mutex_unlock(&m->mutex);
}
