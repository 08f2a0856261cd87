/* A clock: the CPU's time stamp counter where it is invariant, else the system's monotonic clock. */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "bfcviz/c/attributes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

typedef struct bfc_clock {
    int64_t origin_ns; /* monotonic time of the start */
    int64_t anchor_ns; /* time from the start to the anchor */
    uint64_t first_ticks;
    uint64_t anchor_ticks;
    uint64_t scale; /* nanoseconds per tick, 32.32 fixed point */
    int counter;    /* whether the time stamp counter is used */
} bfc_clock;

/* Whether the processor has an invariant counter; set with the first clock. Others may be emulated. */
static int bfc_has_counter = 0;

/* The scale that the first clock of the process found; 0 before. */
static uint64_t bfc_first_scale = 0;

/* A calibration over so long a time is accurate to about 100 ppm. */
#define BFC_LEAST_CALIBRATION_NS 500000

BFC_STATIC int64_t bfc_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#if defined(__x86_64__)
BFC_STATIC void bfc_find_counter(void) {
    unsigned a, b, c, d;
    bfc_has_counter = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 256);
}

static inline uint64_t bfc_ticks(void) { return bfc_has_counter ? __rdtsc() : 0; }
#else
BFC_STATIC void bfc_find_counter(void) {}

static inline uint64_t bfc_ticks(void) { return 0; }
#endif

/* The time of a reading of the counter, at least `last`. Without a counter, the time now. */
static inline int64_t bfc_clock_at(const bfc_clock *c, uint64_t ticks, int64_t last) {
    int64_t ns;
    if (!c->counter) {
        ns = bfc_monotonic_ns() - c->origin_ns;
    } else {
        uint64_t passed = ticks > c->anchor_ticks ? ticks - c->anchor_ticks : 0;
        ns = c->anchor_ns + (int64_t)(((unsigned __int128)passed * c->scale) >> 32);
    }
    return ns > last ? ns : last;
}

/* Read both clocks at one moment: the best of several tries, for a thread may be preempted in between. */
BFC_STATIC int64_t bfc_both_clocks(uint64_t *ticks) {
    uint64_t shortest = UINT64_MAX;
    int64_t found = 0;
    for (int turn = 0; turn < 10 && shortest > 1000; turn++) {
        uint64_t before = bfc_ticks();
        int64_t now = bfc_monotonic_ns();
        uint64_t took = bfc_ticks() - before;
        if (took >= shortest) continue;
        shortest = took;
        *ticks = before + took / 2;
        found = now;
    }
    return found;
}

/* Recalibrate the counter's rate over the whole time since the start, unless that is too short. */
BFC_STATIC void bfc_clock_anchor(bfc_clock *c) {
    if (!c->counter) return;
    uint64_t ticks;
    int64_t now = bfc_both_clocks(&ticks) - c->origin_ns;
    if (ticks < c->first_ticks || now < 0) { /* it was set back, as after a suspension */
        c->counter = 0;
        return;
    }
    if (now < BFC_LEAST_CALIBRATION_NS) return;
    c->scale = (uint64_t)(((unsigned __int128)now << 32) / (ticks - c->first_ticks));
    c->anchor_ticks = ticks;
    c->anchor_ns = now;
}

BFC_STATIC bfc_clock *bfc_clock_new(void) {
    bfc_clock *c = (bfc_clock *)calloc(1, sizeof *c);
    if (!c) return c;
    if (!bfc_has_counter) bfc_find_counter(); /* first: in a virtual machine it takes some 20 us */
    c->counter = bfc_has_counter;
    c->origin_ns = c->counter ? bfc_both_clocks(&c->first_ticks) : bfc_monotonic_ns();
    if (!c->counter) return c;
    c->anchor_ticks = c->first_ticks;
    c->scale = __atomic_load_n(&bfc_first_scale, __ATOMIC_RELAXED);
    if (c->scale) return c;
    while (bfc_monotonic_ns() - c->origin_ns < BFC_LEAST_CALIBRATION_NS) continue;
    bfc_clock_anchor(c);
    __atomic_store_n(&bfc_first_scale, c->scale, __ATOMIC_RELAXED);
    return c;
}
