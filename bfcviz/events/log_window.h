/* The memory a log writes to: a window of event records, in memory or of a file. */
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

/* Never faults. */
static inline void bfc_prefetch(const bfc_event *window, uint64_t index) {
    __builtin_prefetch(window + index, 1);
}

static inline void bfc_publish_kind(bfc_event *r, uint8_t kind) {
    __atomic_store_n(&r->kind, kind, __ATOMIC_RELEASE); /* after the record's other fields, */
    __atomic_thread_fence(__ATOMIC_RELEASE);            /* before the count that lets readers at it */
}

/* Bytes; 0 where the system does not say. */
BFC_STATIC uint64_t bfc_file_size(int fd) {
    struct stat s;
    return fstat(fd, &s) ? 0 : (uint64_t)s.st_size;
}

/* Room for `bytes` more at `offset` of a file, mapped; NULL with errno set where the disk has none. */
BFC_STATIC bfc_event *bfc_map_window(int fd, uint64_t offset, uint64_t bytes) {
#if defined(__linux__)
    int error = posix_fallocate(fd, (off_t)offset, (off_t)bytes); /* ftruncate alone would end in SIGBUS */
    if (error) {
        errno = error;
        return NULL;
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

/* Zeroed memory that begins with a cache line; NULL where there is none. */
BFC_STATIC bfc_event *bfc_new_window(uint64_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : (bfc_event *)p;
}

BFC_STATIC void bfc_unmap_window(bfc_event *window, uint64_t bytes) {
    if (!window) return;
    bfc_leave_window(window);
    munmap(window, bytes);
}

/* Cut a file after its last whole record, to `bytes` at most. It never grows. */
BFC_STATIC void bfc_cut_file(int fd, uint64_t bytes) {
    uint64_t size = bfc_file_size(fd);
    if (ftruncate(fd, (off_t)((size < bytes ? size : bytes) / sizeof(bfc_event) * sizeof(bfc_event))))
        errno = 0;
}

BFC_STATIC int bfc_errno(void) { return errno; }
