/* The clock around recorded operations, the same loop for every allocator (see race.py). */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef struct { int32_t slot, kind; int64_t size; } operation; /* kind 0 allocate, 1 free */
typedef void *(*allocate_t)(void *context, uint64_t alignment, uint64_t num_bytes);
typedef void (*free_t)(void *context, void *pointer);

typedef struct {
    allocate_t allocate;
    free_t release;
    void *context;
    const operation *ops;
    int64_t n, failed;
    void **slots;
    pthread_barrier_t *begin;
    pthread_t thread;
} runner;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void *run(void *data) {
    runner *r = data;
    pthread_barrier_wait(r->begin);
    for (int64_t i = 0; i < r->n; ++i) {
        if (r->ops[i].kind == 0) {
            void *p = r->allocate(r->context, 64, (uint64_t)r->ops[i].size);
            r->slots[r->ops[i].slot] = p;
            r->failed += p == 0;
        } else {
            r->release(r->context, r->slots[r->ops[i].slot]);
        }
    }
    return 0;
}

/* Nanoseconds until all threads have done the n operations, each with its own part of `slots`; *failures counts
   requests that got nothing. */
int64_t race(allocate_t allocate, free_t release, void *context, const operation *ops, int64_t n, void **slots,
             int64_t num_slots, int threads, int64_t *failures) {
    runner *runners = calloc((size_t)threads, sizeof(runner));
    pthread_barrier_t begin;
    pthread_barrier_init(&begin, 0, (unsigned)threads);
    for (int i = 0; i < threads; ++i) {
        runner r = {allocate, release, context, ops, n, 0, slots + i * num_slots, &begin, 0};
        runners[i] = r;
        if (i > 0) pthread_create(&runners[i].thread, 0, run, &runners[i]);
    }
    int64_t start = now();
    run(&runners[0]);
    for (int i = 1; i < threads; ++i) pthread_join(runners[i].thread, 0);
    int64_t took = now() - start;
    for (int i = 0; i < threads; ++i) *failures += runners[i].failed;
    pthread_barrier_destroy(&begin);
    free(runners);
    return took;
}
