/* The clock around recorded operations, the same loop for every allocator (see race.py). */
#include <stdint.h>
#include <time.h>

typedef struct { int32_t slot, kind; int64_t size; } operation; /* kind 0 allocate, 1 free */
typedef void *(*allocate_t)(void *context, uint64_t alignment, uint64_t num_bytes);
typedef void (*free_t)(void *context, void *pointer);

/* Nanoseconds for n operations; *failures counts requests that got nothing. */
int64_t race(allocate_t allocate, free_t release, void *context, const operation *ops, int64_t n, void **slots,
             int64_t *failures) {
    struct timespec start, stop;
    int64_t failed = 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int64_t i = 0; i < n; ++i) {
        if (ops[i].kind == 0) {
            void *p = allocate(context, 64, (uint64_t)ops[i].size);
            slots[ops[i].slot] = p;
            failed += p == 0;
        } else {
            release(context, slots[ops[i].slot]);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &stop);
    *failures += failed;
    return (stop.tv_sec - start.tv_sec) * 1000000000LL + (stop.tv_nsec - start.tv_nsec);
}
