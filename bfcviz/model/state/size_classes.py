"""Chunks by size class: what the allocator's 21 bins hold, and what in-use chunks would fall into each."""

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import MIN_CHUNK, NUM_BINS

BIN = np.dtype(
    [
        ("bin", "i1"),
        ("free_chunks", "<u8"),
        ("free_bytes", "<u8"),
        ("in_use_chunks", "<u8"),
        ("in_use_bytes", "<u8"),
    ]
)
"""One bin; only free chunks are really in it, chunks in use are counted by the same rule."""


def bin_numbers(sizes: NDArray[np.uint64]) -> NDArray[np.intp]:
    """`bin_of` each size."""
    # Beyond the last bin's start the size no longer matters; below it float64 is exact.
    units = np.clip(sizes // np.uint64(MIN_CHUNK), 1, 1 << (NUM_BINS - 1)).astype(np.float64)
    _, exponent = np.frexp(units)
    numbers: NDArray[np.intp] = exponent.astype(np.intp) - 1
    return numbers


def bins_of(chunks: NDArray[np.void]) -> NDArray[np.void]:
    """The 21 bins of an array of CHUNK."""
    bins = np.zeros(NUM_BINS, BIN)
    bins["bin"] = np.arange(NUM_BINS)
    cells = bin_numbers(chunks["size"]) + NUM_BINS * chunks["in_use"]
    counts = np.bincount(cells, minlength=2 * NUM_BINS)
    totals = np.zeros(2 * NUM_BINS, np.uint64)
    np.add.at(totals, cells, chunks["size"])  # bincount's weights would be float64
    for state, part in (("free", slice(NUM_BINS)), ("in_use", slice(NUM_BINS, None))):
        bins[f"{state}_chunks"], bins[f"{state}_bytes"] = counts[part], totals[part]
    return bins
