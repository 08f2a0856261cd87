"""check: compare all tables of a heap with each other."""

from typing import Any

import numpy as np

from bfcviz.allocator import memory_map, queries
from bfcviz.allocator.heap import Heap
from bfcviz.allocator.interface import Stats
from bfcviz.errors import BrokenInvariant
from bfcviz.native import NONE


def check(heap: Heap, *, held: bool) -> None:
    """Compare chunks, regions, bins, address table and totals.

    Args:
        heap: the heap.
        held: freed chunks may wait for their time stamp, so that neighbours may both be free.

    Raises:
        BrokenInvariant: names the first inconsistency.
    """
    chunk_rows, region_rows, binned, found_handles, totals = queries.read_tables(heap)
    chunks, regions = memory_map.chunks_of(chunk_rows), memory_map.table_of(region_rows, memory_map.REGION)
    _check_region_invariant(regions)
    for region in regions:
        _check_tiling_invariant(region, chunks[chunks["region"] == region["slot"]])
    _require(np.isin(chunks["region"], regions["slot"]).all(), "a chunk names a region that does not exist")
    _check_neighbour_invariant(chunks, held=held)
    _check_bin_invariant([tuple(row) for row in binned.tolist()], chunks)
    _check_totals_invariant(queries.stats_of(heap, totals), chunks, regions)
    for chunk, found in zip(chunks, found_handles.tolist(), strict=True):
        expected = int(chunk["handle"]) if chunk["in_use"] else NONE
        _require(found == expected, f"looking up {int(chunk['address']):#x} gives {found}, not {expected}")


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise BrokenInvariant(otherwise)


def _check_region_invariant(regions: Any) -> None:
    ends = regions["address"] + regions["size"]
    _require((ends[:-1] <= regions["address"][1:]).all(), "two regions overlap, or are out of order")
    _require(len(np.unique(regions["slot"])) == len(regions), "two regions share a slot")


def _check_tiling_invariant(region: Any, chunks: Any) -> None:
    """Chunks cover the region without gaps and are linked both ways in address order."""
    where = f"region {int(region['slot'])} at {int(region['address']):#x}"
    _require(len(chunks), f"{where} has no chunk")
    _require(chunks["address"][0] == region["address"], f"{where} does not begin with a chunk")
    ends = chunks["address"] + chunks["size"]
    _require((ends[:-1] == chunks["address"][1:]).all(), f"{where}: chunks overlap or leave a gap")
    _require(ends[-1] == region["address"] + region["size"], f"{where} does not end with a chunk")
    _require((chunks["size"] > 0).all(), f"{where} has an empty chunk")
    _require((chunks["next"] == [*chunks["handle"][1:], NONE]).all(), f"{where}: a `next` is wrong")
    _require((chunks["prev"] == [NONE, *chunks["handle"][:-1]]).all(), f"{where}: a `prev` is wrong")


def _check_neighbour_invariant(chunks: Any, *, held: bool) -> None:
    """No two free neighbours, unless one is held; a chunk is in use exactly when it has an allocation id."""
    _require(((chunks["allocation_id"] != 0) == chunks["in_use"]).all(), "an id does not match its state")
    mergeable = ~chunks["in_use"] & (chunks["freed_at_count"] == 0)
    _require((chunks["in_use"] | mergeable).all() or held, "a chunk is held without timestamps")
    _require(
        (chunks["requested_size"] <= chunks["size"])[chunks["in_use"]].all(),
        "a chunk is too small for its request",
    )
    joined = chunks["region"][:-1] == chunks["region"][1:]
    unmerged = mergeable[:-1] & mergeable[1:] & joined
    _require(held or not unmerged.any(), "two free neighbours were not merged")


def _check_bin_invariant(rows: list[tuple[int, ...]], chunks: Any) -> None:
    """The bins hold exactly the free chunks, in order of size and address."""
    _require(rows == sorted(rows), "the bins are out of order")
    free = chunks[~chunks["in_use"]]
    columns = (free[name].tolist() for name in ("size", "address", "handle"))
    expected = sorted(zip(*columns, strict=True))
    _require(rows == expected, f"the bins hold {len(rows)} chunks, {len(free)} are free, or they differ")
    _require((chunks["binned"] == ~chunks["in_use"]).all(), "a chunk's `binned` is wrong")


def _check_totals_invariant(stats: Stats, chunks: Any, regions: Any) -> None:
    used = chunks[chunks["in_use"]]
    free = chunks[~chunks["in_use"]]
    expected = {
        "bytes_in_use": int(used["size"].sum()),
        "requested_bytes_in_use": int(used["requested_size"].sum()),
        "pool_bytes": int(regions["size"].sum()),
        "free_bytes": int(free["size"].sum()),
        "largest_free_chunk": int(free["size"].max(initial=0)),
        "regions": len(regions),
        "chunks_in_use": len(used),
    }
    for name, value in expected.items():
        _require(getattr(stats, name) == value, f"{name} is {getattr(stats, name)}, the chunks say {value}")
    _require(stats.bytes_in_use <= stats.peak_bytes_in_use, "the peak is less than the bytes in use")
    _require(len(np.unique(used["allocation_id"])) == len(used), "two chunks share an allocation id")
    _require(len(np.unique(chunks["handle"])) == len(chunks), "two chunks share a handle")
