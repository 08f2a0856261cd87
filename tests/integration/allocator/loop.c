#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* One thread's work: `counts[0]` says how far it is, until `stop`. */
void work(void *(*allocate)(void *, size_t, size_t), void (*release)(void *, void *), void *heap,
          volatile int64_t *count, volatile int *stop) {
    while (!*stop) {
        release(heap, allocate(heap, 256, 1000));
        ++*count;
    }
}

/* What the counts were before and after so many microseconds. */
void watch(volatile int64_t *counts, int n, int64_t *before, int64_t *after, unsigned us) {
    usleep(us);
    for (int i = 0; i < n; i++) before[i] = counts[i];
    usleep(us);
    for (int i = 0; i < n; i++) after[i] = counts[i];
}
