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
    uint64_t last_ticks; /* the latest reading of the counter, at least `anchor_ticks` */
    uint64_t scale;      /* nanoseconds per tick, 32.32 fixed point */
    int counter;         /* whether the time stamp counter is used */
} bfc_clock;

BFC_STATIC int64_t bfc_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#if defined(__x86_64__)
static inline uint64_t bfc_ticks(void) { return __rdtsc(); }

BFC_STATIC int bfc_has_counter(void) {
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 256); /* invariant TSC */
}
#else
static inline uint64_t bfc_ticks(void) { return 0; }

BFC_STATIC int bfc_has_counter(void) { return 0; }
#endif

/* The time of a reading of the counter; never before the last result. Without a counter, the time now. */
static inline int64_t bfc_clock_at(bfc_clock *c, uint64_t ticks) {
    if (!c->counter) return bfc_monotonic_ns() - c->origin_ns;
    if (ticks > c->last_ticks) c->last_ticks = ticks;
    return c->anchor_ns + (int64_t)(((unsigned __int128)(c->last_ticks - c->anchor_ticks) * c->scale) >> 32);
}

/* Recalibrate the counter's rate over the whole time since the start; the clock never goes back. */
BFC_STATIC void bfc_clock_anchor(bfc_clock *c) {
    if (!c->counter) return;
    int64_t before = bfc_clock_at(c, bfc_ticks()), now = bfc_monotonic_ns() - c->origin_ns;
    uint64_t ticks = bfc_ticks();
    if (ticks <= c->first_ticks || now <= 0) {
        c->counter = 0;
        return;
    }
    c->scale = (uint64_t)(((unsigned __int128)now << 32) / (ticks - c->first_ticks));
    c->anchor_ticks = c->last_ticks = ticks;
    c->anchor_ns = now > before ? now : before;
}

BFC_STATIC bfc_clock *bfc_clock_new(void) {
    bfc_clock *c = (bfc_clock *)calloc(1, sizeof *c);
    if (!c) return c;
    c->origin_ns = bfc_monotonic_ns();
    c->counter = bfc_has_counter();
    if (!c->counter) return c;
    c->first_ticks = c->anchor_ticks = c->last_ticks = bfc_ticks();
    /* After 0.5 ms the rate is accurate to about 100 ppm. */
    while (bfc_monotonic_ns() - c->origin_ns < 500000) continue;
    bfc_clock_anchor(c);
    return c;
}
