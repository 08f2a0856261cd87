"""One pool at one step as plain data: chunks, regions, bins (size classes) and totals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.row_copy import taken
from bfcviz.events.schema import NUM_BINS, bin_numbers
from bfcviz.model.state import array_access
from bfcviz.model.state.pool_state import PoolState

CHUNK = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<u8"),
        ("requested", "<u8"),  # 0 when free, as are born, label, thread and stream
        ("born", "<u8"),  # `seq` of its ALLOCATE
        ("handle", "<u4"),
        ("label", "<u4"),
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("region", "<u2"),  # slot
        ("in_use", "?"),
    ],
    align=True,  # as long as CHUNK_ROW, so that a row becomes a chunk in place
)
"""One chunk, free or in use."""

REGION = np.dtype([("address", "<u8"), ("size", "<u8"), ("slot", "<u2")])
"""One region."""

BIN = np.dtype(
    [
        ("bin", "i1"),
        ("free_chunks", "<u8"),
        ("free_bytes", "<u8"),
        ("in_use_chunks", "<u8"),
        ("in_use_bytes", "<u8"),
    ]
)
"""One bin. Only free chunks are really in it; chunks in use are counted by the same rule."""


@dataclass(frozen=True)
class ModelStats:
    """Totals of one pool at one step: bytes unless the name counts something.

    Peaks and `largest_alloc_size` are the maxima from step 0 to this step. `bytes_limit` is None where the trace
    does not have it.
    """

    num_allocs: int
    bytes_in_use: int
    requested_bytes_in_use: int
    peak_bytes_in_use: int
    pool_bytes: int
    peak_pool_bytes: int
    bytes_limit: int | None
    largest_alloc_size: int
    free_bytes: int
    largest_free_chunk: int
    chunks_in_use: int
    chunks_free: int
    ooms: int


def chunks_of(table: PoolState, near: NDArray[np.intp]) -> NDArray[np.void]:
    """Every chunk by ascending address, shape (n,) of CHUNK; they tile every region.

    Args:
        table: the state of the pool.
        near: handles, each once, in nearly that order, such as the order at another step; this makes sorting faster.
    """
    rows = table.rows_by_handle()
    left = rows["state"] != array_access.NOTHING
    near = near[near < len(rows)]
    near = near[left[near]]
    left[near] = False
    order = np.concatenate([near, np.flatnonzero(left)])
    rows = taken(rows, order[np.argsort(rows["address"][order], kind="stable")])
    in_use = rows["state"] == array_access.CHUNK_IN_USE
    chunks = rows.view(CHUNK)
    chunks["in_use"] = in_use
    return chunks


def regions_of(table: PoolState) -> NDArray[np.void]:
    """Every region by ascending address, shape (n,) of REGION."""
    rows, slots = table.region_rows()
    regions = np.empty(len(rows), REGION)
    regions["address"], regions["size"], regions["slot"] = rows["address"], rows["size"], slots
    return regions


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


def stats_of(table: PoolState, bytes_limit: int | None) -> ModelStats:
    """The totals. The peaks of `table` must be up to date (`peaks_step` is `step`)."""
    return ModelStats(
        num_allocs=table.num_allocs,
        bytes_in_use=table.bytes_in_use,
        requested_bytes_in_use=table.requested_bytes_in_use,
        peak_bytes_in_use=table.peak_bytes_in_use,
        pool_bytes=table.pool_bytes,
        peak_pool_bytes=table.peak_pool_bytes,
        bytes_limit=bytes_limit,
        largest_alloc_size=table.largest_alloc_size,
        free_bytes=table.free_bytes,
        largest_free_chunk=table.largest_free_chunk,
        chunks_in_use=table.chunks_in_use,
        chunks_free=table.chunks_free,
        ooms=table.ooms,
    )
