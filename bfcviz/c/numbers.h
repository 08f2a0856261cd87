/* Bits and hashes. */
#pragma once

#include <Python.h>
#include <stdint.h>

#include "bfcviz/c/constants.h"

static inline int bfc_low_bit(uint64_t x) { return __builtin_ctzll(x); }

static inline int bfc_high_bit(uint64_t x) { return 63 ^ __builtin_clzll(x); }

static inline uint32_t bfc_bit_32(int n) { return UINT32_C(1) << n; }

static inline uint64_t bfc_bit_64(int n) { return UINT64_C(1) << n; }

/* A mask of the bits above bit n. Two shifts, because a shift by 64 is undefined. */
static inline uint64_t bfc_above(int n) { return ~UINT64_C(0) << n << 1; }

static inline uint64_t bfc_wrap_64(uint64_t x) { return x; }

/* The bin of a free chunk of `size` bytes, 0 to 20. */
static inline int bfc_bin_of(uint64_t size) {
    int power = bfc_high_bit(size | BFC_MIN_CHUNK) - 8;
    return power < BFC_NUM_BINS ? power : BFC_NUM_BINS - 1;
}

/* Hash to a number below 2^32: Fibonacci hashing. */
static inline uint32_t bfc_scramble(uint32_t x) { return x * UINT32_C(2654435769); }

/* The top 64 - shift bits of x times the golden ratio: a slot in a hash table. */
static inline uint64_t bfc_spread(uint64_t x, int shift) {
    return (x * UINT64_C(11400714819323198485)) >> shift;
}

/* Nine tenths in single precision, truncated: TensorFlow's back-off. */
static inline uint64_t bfc_nine_tenths(uint64_t x) { return (uint64_t)((float)x * 0.9f); }

/* A Python integer; ~0 if it is negative or too large. */
static inline uint64_t bfc_u64(PyObject *x) {
    unsigned long long value = PyLong_AsUnsignedLongLong(x);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) PyErr_Clear();
    return value;
}
