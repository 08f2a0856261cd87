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

/* Never faults. */
static inline void bfc_prefetch(const bfc_event *window, uint64_t index) {
    __builtin_prefetch(window + index, 1);
}

static inline void bfc_publish_kind(bfc_event *r, uint8_t kind) {
    __atomic_store_n(&r->kind, kind, __ATOMIC_RELEASE); /* after the other fields of the record, */
    __atomic_thread_fence(__ATOMIC_RELEASE);            /* before the count that makes it readable */
}

/* Bytes; 0 on error. */
BFC_STATIC uint64_t bfc_file_size(int fd) {
    struct stat s;
    return fstat(fd, &s) ? 0 : (uint64_t)s.st_size;
}

/* Allocate and map `bytes` at `offset` of a file; NULL with errno set on failure. */
BFC_STATIC bfc_event *bfc_map_window(int fd, uint64_t offset, uint64_t bytes) {
#if defined(__linux__)
    int error = posix_fallocate(fd, (off_t)offset, (off_t)bytes); /* ftruncate: SIGBUS if the disk is full */
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

/* Truncate a file after its last whole record, to at most `bytes`. The file never grows. */
BFC_STATIC void bfc_cut_file(int fd, uint64_t bytes) {
    uint64_t size = bfc_file_size(fd);
    if (ftruncate(fd, (off_t)((size < bytes ? size : bytes) / sizeof(bfc_event) * sizeof(bfc_event))))
        errno = 0;
}

BFC_STATIC int bfc_errno(void) { return errno; }

/* Whether the last window would have ended behind the largest file that is allowed, such as by `ulimit -f`. */
BFC_STATIC int bfc_is_limit(void) { return errno == EFBIG; }
