/* Pages from the operating system. */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t bfc_page_size(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

/* `bytes` of zeroed memory at a multiple of `alignment`, both multiples of the page size; 0 = refused. */
static uint64_t bfc_map_pages(uint64_t bytes, uint64_t alignment) {
    uint64_t page = bfc_page_size();
    uint64_t extra = alignment > page ? alignment : 0, begin, skip;
    void *p = mmap(0, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || bytes + extra < bytes) return 0;
    begin = (uint64_t)p;
    skip = extra ? (alignment - begin % alignment) % alignment : 0;
    if (skip) munmap(p, skip);
    if (extra - skip) munmap((void *)(begin + skip + bytes), extra - skip);
#if defined(__linux__)
    /* As NumPy does for its large arrays: far fewer page faults. */
    if (bytes >= 4 << 20) madvise((void *)(begin + skip), bytes, MADV_HUGEPAGE);
#endif
    return begin + skip;
}

/* Bytes that can be allocated without swapping, by the kernel's estimate (MemAvailable of /proc/meminfo);
   UINT64_MAX if there is none. */
static uint64_t bfc_available_memory(void) {
    char text[512];
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return UINT64_MAX;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    char *line = strstr(text, "MemAvailable:");
    return line ? strtoull(line + 13, NULL, 10) * 1024 : UINT64_MAX;
}

/* The pages wholly inside the range read as zeros, and use no memory until they are accessed. */
static void bfc_discard_pages(uint64_t address, uint64_t bytes) {
    madvise((void *)address, bytes, MADV_DONTNEED);
}

static void bfc_unmap_pages(uint64_t address, uint64_t bytes) { munmap((void *)address, bytes); }
