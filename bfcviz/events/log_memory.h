/* The memory that a log writes to: a window of event records, in memory or in a file. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bfcviz/c/attributes.h"
#include "bfcviz/events/event_record.h"
#include "bfcviz/events/sigbus.h"
#include "bfcviz/events/sigterm.h"

/* A record is written and copied as eight words, each one atomic access: readers copy a ring while it is overwritten,
   and check afterwards whether it was. */
typedef uint64_t __attribute__((may_alias)) bfc_word;

enum { BFC_WORDS = sizeof(bfc_event) / sizeof(bfc_word) };

#define BFC_WRITE(word, value) __atomic_store_n((word), (value), __ATOMIC_RELAXED)

static inline uint64_t bfc_joined(uint32_t low, uint32_t high) { return low | (uint64_t)high << 32; }

/* Write record `index` of a window; its fields in their order. The short ones come as 32 bits and are joined as such: the
   compiler spills shorter ones, and a load of a word from the stack waits for all stores before if only a part of it was
   stored. */
static inline void bfc_write_record(
    bfc_event *window, uint64_t index, uint64_t seq, int64_t time, uint64_t address, uint64_t size,
    uint64_t requested, uint32_t chunk, uint32_t other, uint32_t label, uint32_t thread, uint32_t stream,
    uint32_t region, uint32_t by, uint32_t kind, int bin, uint32_t flags, uint32_t pool
) {
    bfc_word *words = (bfc_word *)(window + index);
    BFC_WRITE(words + 7, 0);                 /* no event: an older record may be in the same place */
    __atomic_thread_fence(__ATOMIC_RELEASE); /* before the other words */
    BFC_WRITE(words, seq);
    BFC_WRITE(words + 1, (uint64_t)time);
    BFC_WRITE(words + 2, address);
    BFC_WRITE(words + 3, size);
    BFC_WRITE(words + 4, requested);
    BFC_WRITE(words + 5, bfc_joined(chunk, other));
    BFC_WRITE(words + 6, bfc_joined(label, thread | stream << 16));
    uint32_t last = kind | (uint32_t)(bin & 255) << 8 | flags << 16 | pool << 24;
    __atomic_store_n(words + 7, bfc_joined(region | by << 16, last), __ATOMIC_RELEASE); /* after all others */
}

/* Copy records of a ring, which may be overwritten meanwhile. */
BFC_STATIC void bfc_copy_records(void *into, const bfc_event *from, uint64_t count) {
    const bfc_word *words = (const bfc_word *)from;
    bfc_word *copy = (bfc_word *)into;
    for (uint64_t i = 0; i < count * BFC_WORDS; i++) copy[i] = __atomic_load_n(words + i, __ATOMIC_RELAXED);
}

/* Bytes; 0 on error. */
BFC_STATIC uint64_t bfc_file_size(int fd) {
    struct stat s;
    return fstat(fd, &s) ? 0 : (uint64_t)s.st_size;
}

/* event_file.py says what slots are. */
#define BFC_SLOT ((uint64_t)16384)
#define BFC_MAPPED_SLOTS ((uint64_t)64)
#define BFC_SLOTS_BYTES (BFC_MAPPED_SLOTS * BFC_SLOT * sizeof(bfc_event))

/* Map the first slots of a file, which may not have them yet; NULL where that cannot be. */
BFC_STATIC bfc_event *bfc_map_slots(int fd) {
#if defined(__linux__)
    void *p = mmap(NULL, BFC_SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return NULL;
    bfc_guard_window(p, BFC_SLOTS_BYTES);
    return (bfc_event *)p;
#else
    (void)fd;
    return NULL;
#endif
}

static inline int bfc_is_in_slots(const bfc_event *slots, const bfc_event *window) {
    return slots && window >= slots && window < slots + BFC_MAPPED_SLOTS * BFC_SLOT;
}

/* The record where a free slot begins, or the end of the file, which has `extent` records. */
BFC_STATIC uint64_t bfc_free_slot(const bfc_event *slots, int fd, uint64_t extent) {
    (void)fd;
    for (uint64_t place = 0; slots && place < extent && place < BFC_MAPPED_SLOTS * BFC_SLOT;
         place += BFC_SLOT)
        if (!__atomic_load_n(&slots[place].kind, __ATOMIC_ACQUIRE)) return place;
    return extent;
}

/* Allocate and map `records` at a place of the file; NULL with errno set on failure. */
BFC_STATIC bfc_event *bfc_map_window(bfc_event *slots, int fd, uint64_t place, uint64_t records) {
    uint64_t offset = place * sizeof(bfc_event), bytes = records * sizeof(bfc_event);
#if defined(__linux__)
    int error = posix_fallocate(fd, (off_t)offset, (off_t)bytes); /* ftruncate: SIGBUS if the disk is full */
    if (error) {
        errno = error;
        return NULL;
    }
    if (slots && place < BFC_MAPPED_SLOTS * BFC_SLOT) {
#if defined(MADV_POPULATE_WRITE)
        madvise(slots + place, bytes, MADV_POPULATE_WRITE); /* an older kernel loads the pages one by one */
#endif
        return slots + place;
    }
    int flags = MAP_SHARED | MAP_POPULATE;
#else
    if (ftruncate(fd, (off_t)(offset + bytes))) return NULL;
    int flags = MAP_SHARED;
#endif
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
    if (p == MAP_FAILED) return NULL;
    bfc_guard_window(p, bytes);
    return (bfc_event *)p;
}

/* Zeroed memory, aligned to a cache line; NULL on failure. */
BFC_STATIC bfc_event *bfc_new_window(uint64_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : (bfc_event *)p;
}

BFC_STATIC void bfc_unmap_window(bfc_event *window, uint64_t bytes) {
    if (!window) return;
    bfc_leave_window(window);
    munmap(window, bytes);
}

BFC_STATIC void bfc_unmap_slots(bfc_event *slots) { bfc_unmap_window(slots, BFC_SLOTS_BYTES); }

/* Truncate a file after its last whole record, to at most `bytes`. The file never grows. */
BFC_STATIC void bfc_cut_file(int fd, uint64_t bytes) {
    uint64_t size = bfc_file_size(fd);
    if (ftruncate(fd, (off_t)((size < bytes ? size : bytes) / sizeof(bfc_event) * sizeof(bfc_event))))
        errno = 0;
}

BFC_STATIC int bfc_errno(void) { return errno; }

/* Whether the last window would have ended behind the largest file that is allowed, such as by `ulimit -f`. */
BFC_STATIC int bfc_is_limit(void) { return errno == EFBIG; }
