/* A small number for each thread of the process, from 1, and the name that the system has for it then. */
#pragma once

#include <stdint.h>
#ifdef __linux__
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#endif

#include "bfcviz/c/attributes.h"

#define BFC_NAMED_THREADS 1024 /* later ones have no name */

static uint32_t bfc_threads_seen = 0; /* their numbers are 16 bits, and begin again */
BFC_THREAD uint16_t bfc_thread = 0;
static char bfc_thread_names[BFC_NAMED_THREADS][16]; /* Linux has 15 characters and a zero */

/* A thread without a name of its own has the process's, which says nothing. A process may be renamed: compare now. */
static __attribute__((noinline)) void bfc_name_thread(char *name) {
#ifdef __linux__
    int before = errno;
    char own[16] = "", process[17] = "";
    prctl(PR_GET_NAME, own, 0, 0, 0);
    int file = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t count = file < 0 ? 0 : read(file, process, 16);
    if (file >= 0) close(file);
    if (count > 0) {
        process[count - 1] = 0; /* a line */
        if (strcmp(own, process)) memcpy(name, own, 16);
    }
    errno = before;
#endif
}

static __attribute__((noinline)) uint16_t bfc_new_thread(void) {
    uint32_t number = __atomic_add_fetch(&bfc_threads_seen, 1, __ATOMIC_RELAXED);
    if (number < BFC_NAMED_THREADS) bfc_name_thread(bfc_thread_names[number]);
    return (uint16_t)number;
}

static inline uint16_t bfc_thread_number(void) {
    if (!bfc_thread) bfc_thread = bfc_new_thread();
    return bfc_thread;
}

/* How many threads may have names: numbers below this. */
BFC_STATIC uint16_t bfc_named_threads(void) {
    uint32_t seen = __atomic_load_n(&bfc_threads_seen, __ATOMIC_RELAXED);
    return seen < BFC_NAMED_THREADS ? (uint16_t)(seen + 1) : BFC_NAMED_THREADS;
}

BFC_STATIC const char *bfc_thread_name(uint16_t number) { return bfc_thread_names[number]; }
