/* Constants of the heap. native.py has the same for the uncompiled heap; a test compares them. */
#pragma once

#include <stdint.h>

enum {
    BFC_MIN_CHUNK = 256,
    BFC_NUM_BINS = 21,
    BFC_ROWS = 56,             /* powers of two from 256 to 2^63 */
    BFC_TREES = 32 * BFC_ROWS, /* 32 a row */
    BFC_MAX_REGIONS = 65535,   /* slots are 16 bits wide */
    BFC_FIRST_REGION = 2 << 20 /* bytes; with growth, TensorFlow 2.21 starts with 2 MiB */
};

/* Return pages of free memory. */
enum {
    BFC_PAGES_FROM = 1 << 20,  /* smallest free chunk whose pages are returned, in bytes */
    BFC_PAGE_BLOCK = 1 << 18,  /* bytes per block; a block has one age */
    BFC_PAGE_BLOCKS = 1 << 19, /* number of ages */
    BFC_PAGE_SLICE = 16,       /* blocks returned while the heap's lock is held once */
    BFC_PAGE_LOOKS = 4096,     /* blocks checked while the lock is held once */
    BFC_KEEP_PAGES = 64 << 20, /* bytes in use may fall by this much without a return of all free pages */
    BFC_KEEP_MOST = 1 << 30    /* its maximum, after pages were needed again at once */
};

/* Which pages to return. */
enum { BFC_IDLE_PAGES = 1, BFC_ALL_PAGES = 2 };

/* Heap.allocate: reasons of a failure, numbers below any address. */
enum {
    BFC_FAILED_MEMORY = 1,
    BFC_FAILED_SIZE = 2,
    BFC_FAILED_ALIGNMENT = 3,
    BFC_FAILED_TABLES = 4, /* no memory for the heap's own tables */
    BFC_FAILED_GRANT = 5,  /* the sub-allocator granted an invalid region */
    BFC_FAILED_CLOSED = 6,
    BFC_FAILED_FORKED = 7 /* another thread was in the sub-allocator when this process was forked */
};

/* Heap.free: reasons of a failure. */
enum { BFC_FREE_DOUBLE = 1, BFC_FREE_INTERIOR = 2, BFC_FREE_FOREIGN = 3, BFC_FREE_TABLES = 4 };

#define BFC_NONE UINT32_C(0xFFFFFFFF) /* no chunk */
#define BFC_LOW_32 UINT64_C(0xFFFFFFFF)
#define BFC_MAX_REQUEST (UINT64_C(1) << 62)
#define BFC_HALF_SPACE (UINT64_C(1) << 63)
#define BFC_SECOND INT64_C(1000000000)     /* nanoseconds; a minute exceeds an int */
#define BFC_LONG_AGO (-(INT64_C(1) << 62)) /* a time */
