/* Threads that allocate, fill, check and free through C pointers, as hard as they can (see test_threads.py). */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*allocate_t)(void *context, uint64_t alignment, uint64_t num_bytes);
typedef void (*free_t)(void *context, void *pointer);

typedef struct {
    allocate_t allocate;
    free_t release;
    void *context;
    int64_t operations, slots, largest;
    int writes;                         /* whether the memory is real */
    uint64_t seed;
    int64_t served, refused, violations;
} worker;

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Another thread that got one of these bytes would destroy the pattern. */
static int is_filled(const char *p, int64_t size, uint64_t mark) {
    return p[0] == (char)mark && !memcmp(p, p + 1, (size_t)size - 1);
}

static void *work(void *argument) {
    worker *w = (worker *)argument;
    char **blocks = calloc(w->slots, sizeof *blocks);
    int64_t *sizes = calloc(w->slots, sizeof *sizes);
    uint64_t *marks = calloc(w->slots, sizeof *marks), state = w->seed * 2654435769u + 1;
    for (int64_t i = 0; i < w->operations; i++) {
        int64_t s = (int64_t)(draw(&state) % (uint64_t)w->slots);
        if (blocks[s]) {
            if (w->writes && !is_filled(blocks[s], sizes[s], marks[s])) w->violations++;
            w->release(w->context, blocks[s]);
            blocks[s] = NULL;
        } else {
            sizes[s] = 1 + (int64_t)(draw(&state) % (uint64_t)w->largest) / (1 + draw(&state) % 64);
            blocks[s] = w->allocate(w->context, draw(&state) % 16 ? 256 : 4096, (uint64_t)sizes[s]);
            marks[s] = draw(&state);
            if (!blocks[s]) { w->refused++; continue; }
            w->served++;
            if (w->writes) memset(blocks[s], (char)marks[s], (size_t)sizes[s]);
        }
    }
    for (int64_t s = 0; s < w->slots; s++) {
        if (!blocks[s]) continue;
        if (w->writes && !is_filled(blocks[s], sizes[s], marks[s])) w->violations++;
        w->release(w->context, blocks[s]);
    }
    free(blocks); free(sizes); free(marks);
    return NULL;
}

/* Runs `threads` workers to their end; totals[] = served, refused, violations. */
void hammer(allocate_t allocate, free_t release, void *context, int64_t threads, int64_t operations, int64_t slots,
            int64_t largest, int64_t writes, int64_t *totals) {
    worker workers[64];
    pthread_t ids[64];
    for (int64_t i = 0; i < threads; i++) {
        workers[i] = (worker){allocate, release, context, operations, slots, largest, (int)writes, (uint64_t)i + 1,
                              0, 0, 0};
        pthread_create(&ids[i], NULL, work, &workers[i]);
    }
    for (int64_t i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        totals[0] += workers[i].served;
        totals[1] += workers[i].refused;
        totals[2] += workers[i].violations;
    }
}
