/* What a lock, the clock and records of 64 bytes cost alone: the heap's own code, in a loop (see heap_parts.py). */
#include "bfcviz/c/clock.h"
#include "bfcviz/c/spinlock.h"
#include "bfcviz/events/event_record.h"

enum { RING = 16384 };
static bfc_event ring[RING];
static volatile int64_t seen;

/* Nanoseconds for n times lock and unlock. */
int64_t lock_ns(int64_t n) {
    bfc_spinlock lock = {0, 0};
    int64_t start = bfc_monotonic_ns();
    for (int64_t i = 0; i < n; ++i) {
        bfc_spin_lock(&lock);
        seen = i;
        bfc_spin_unlock(&lock);
    }
    return bfc_monotonic_ns() - start;
}

/* As lock_ns, with the time of each. */
int64_t timed_lock_ns(int64_t n) {
    bfc_spinlock lock = {0, 0};
    bfc_clock *clock = bfc_clock_new();
    int64_t time = 0, start = bfc_monotonic_ns();
    for (int64_t i = 0; i < n; ++i) {
        uint64_t ticks = bfc_spin_lock_timed(&lock);
        time = bfc_clock_at(clock, ticks, time);
        seen = time;
        bfc_spin_unlock(&lock);
    }
    int64_t took = bfc_monotonic_ns() - start;
    free(clock);
    return took;
}

/* Nanoseconds for n records into a ring of 1 MiB. */
int64_t record_ns(int64_t n) {
    int64_t start = bfc_monotonic_ns();
    for (int64_t i = 0; i < n; ++i) {
        bfc_event *r = &ring[i & (RING - 1)];
        uint64_t *words = (uint64_t *)r;
        for (int word = 0; word < 8; ++word) words[word] = (uint64_t)i + (uint64_t)word;
        __asm__ volatile("" : : "r"(r) : "memory");
    }
    return bfc_monotonic_ns() - start;
}
