"""Stats: a heap's totals at one moment."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """A heap's totals, in bytes unless they count.

    Attributes:
        num_allocs: successful requests since the start, or since `clear_stats`.
        bytes_in_use: sizes of the chunks in use.
        requested_bytes_in_use: bytes requested for them.
        peak_bytes_in_use: the maximum of `bytes_in_use` since the start, or since `clear_stats`.
        largest_alloc_size: the largest chunk allocated since then.
        bytes_limit: the largest size of the pool.
        pool_bytes: bytes granted by the sub-allocator.
        peak_pool_bytes: the maximum of `pool_bytes` since the start.
        free_bytes: `pool_bytes - bytes_in_use`.
        largest_free_chunk: size of the largest free chunk.
        regions: number of regions.
        chunks_in_use: number of chunks in use.
    """

    num_allocs: int
    bytes_in_use: int
    requested_bytes_in_use: int
    peak_bytes_in_use: int
    largest_alloc_size: int
    bytes_limit: int
    pool_bytes: int
    peak_pool_bytes: int
    free_bytes: int
    largest_free_chunk: int
    regions: int
    chunks_in_use: int


@dataclass(frozen=True)
class Internals:
    """Internal numbers of the algorithm, with TensorFlow's meaning; for conformance tests.

    Attributes:
        next_region_bytes: size of the next region to request (curr_region_allocation_bytes_).
        chunk_handles: handles ever used (chunks_.size()).
        next_allocation_id: of the next successful request.
        held_chunks: freed chunks not yet safe to merge (timestamped_chunks_.size()).
        timing_count: frees so far, with timestamps.
    """

    next_region_bytes: int
    chunk_handles: int
    next_allocation_id: int
    held_chunks: int
    timing_count: int
