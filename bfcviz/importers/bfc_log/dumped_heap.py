"""The chunks and regions of one dump, in the order of their addresses.

::

    lines     Next region   InUse InUse Free    Next region   InUse Free
    regions   [ .... | .... | ............ ]    [ ....... | ........... ]

Logs before 2019 have no region lines: there a gap between two chunks begins a region. Lines that overlap, as when two
processes write into one log, cannot all be of one heap: those that fit the fewest others are left out.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.row_copy import joined, taken
from bfcviz.importers.bfc_log.dump import Dump, Stage
from bfcviz.importers.heap_state import HEAP_CHUNK, HeapChunks, HeapRegion


class DumpedHeap(NamedTuple):
    """The chunks of a dump.

    Attributes:
        chunks: by ascending address; `label` is an index in `ChunkLines.notes`.
        regions: by ascending address; the chunks tile them.
        repeated, overlapping: chunk lines left out.
        assumed_free: gaps that are shown as free chunks, because the log lists only chunks in use.
        gaps: places within one region where chunk lines are missing.
        missing_bytes: bytes of regions, as far as their sizes are in the log, that no chunk line describes.
    """

    chunks: HeapChunks
    regions: list[HeapRegion]
    repeated: int = 0
    overlapping: int = 0
    assumed_free: int = 0
    gaps: int = 0
    missing_bytes: int = 0

    @property
    def in_use(self) -> HeapChunks:
        """The chunks in use."""
        return taken(self.chunks, self.chunks["in_use"])

    @property
    def free_sizes(self) -> NDArray[np.uint64]:
        """Sizes of the free chunks, by ascending address."""
        sizes: NDArray[np.uint64] = self.chunks["size"][~self.chunks["in_use"]]
        return sizes


def dumped_heap(dump: Dump) -> DumpedHeap:
    """The heap that the chunk lines of a dump describe; empty without any."""
    lines = dump.chunks
    count = len(lines.address)
    chunks: HeapChunks = np.zeros(count, HEAP_CHUNK)
    for field, column in (("address", lines.address), ("size", lines.size), ("label", lines.note)):
        chunks[field] = column
    chunks["requested"], chunks["in_use"] = chunks["size"], lines.in_use
    order = np.argsort(chunks["address"], kind="stable")
    chunks, slots = taken(chunks, order), np.array(lines.region, np.int64)[order]
    kept = _without_repeats(chunks)
    repeated = count - int(kept.sum())
    chunks, slots = taken(chunks, kept), slots[kept]
    kept = _without_overlaps(chunks)
    overlapping = len(kept) - int(kept.sum())
    chunks, slots = taken(chunks, kept), slots[kept]
    if _lists_only_use(dump, chunks):
        chunks, assumed = _with_gaps(chunks)
        slots = np.full(len(chunks), -1)
        return DumpedHeap(chunks, _regions(chunks, slots), repeated, overlapping, assumed)
    regions = _regions(chunks, slots)
    listed = int(chunks["size"].sum()) if dump.regions else 0
    named = len(set(slots.tolist()) - {-1})
    return DumpedHeap(
        chunks,
        regions,
        repeated,
        overlapping,
        gaps=len(regions) - named if dump.regions else 0,
        missing_bytes=max(0, sum(dump.regions) - listed),
    )


def _without_repeats(chunks: HeapChunks) -> NDArray[np.bool_]:
    kept = np.ones(len(chunks), np.bool_)
    address: NDArray[np.uint64] = chunks["address"]
    size: NDArray[np.uint64] = chunks["size"]
    kept[1:] = (address[1:] != address[:-1]) | (size[1:] != size[:-1])
    return kept


def _without_overlaps(chunks: HeapChunks) -> NDArray[np.bool_]:
    """Which chunks to keep, so that none overlaps another; of two, the one that another chunk follows directly."""
    kept = np.ones(len(chunks), np.bool_)
    stops = chunks["address"] + chunks["size"]
    if not len(chunks) or not (chunks["address"][1:] < stops[:-1]).any():
        return kept
    starts, ends = chunks["address"].tolist(), stops.tolist()
    known = set(starts)
    before: list[int] = []
    for at, start in enumerate(starts):
        while before and ends[before[-1]] > start:
            if ends[at] in known and ends[before[-1]] not in known:
                kept[before.pop()] = False
            else:
                kept[at] = False
                break
        if kept[at]:
            before.append(at)
    return kept


def _regions(chunks: HeapChunks, slots: NDArray[np.int64]) -> list[HeapRegion]:
    """Contiguous chunks that stand under the same region line."""
    if not len(chunks):
        return []
    starts, stops = chunks["address"], chunks["address"] + chunks["size"]
    begins = np.concatenate(([True], (starts[1:] != stops[:-1]) | (slots[1:] > slots[:-1])))
    first = np.flatnonzero(begins)
    last = np.concatenate((first[1:], [len(chunks)])) - 1
    return [
        HeapRegion(start, stop - start)
        for start, stop in zip(starts[first].tolist(), stops[last].tolist(), strict=True)
    ]


def _lists_only_use(dump: Dump, chunks: HeapChunks) -> bool:
    """Whether this is a dump of 2016, which lists no free chunk although the bins hold some."""
    if dump.stage <= Stage.CHUNKS:
        return False
    lines = dump.bins.values()
    in_bins = sum(line.chunks for line in lines if line.only_free)
    gaps = int((chunks["address"][1:] != (chunks["address"] + chunks["size"])[:-1]).sum())
    return bool(len(chunks)) and bool(chunks["in_use"].all()) and in_bins > 0 and gaps <= in_bins


def _with_gaps(chunks: HeapChunks) -> tuple[HeapChunks, int]:
    """The chunks, and a free chunk for each gap between two of them."""
    stops = (chunks["address"] + chunks["size"])[:-1]
    where = np.flatnonzero(chunks["address"][1:] != stops)
    free: HeapChunks = np.zeros(len(where), HEAP_CHUNK)
    free["address"], free["size"] = stops[where], chunks["address"][1:][where] - stops[where]
    free["requested"] = free["size"]
    together = joined([chunks, free])
    return taken(together, np.argsort(together["address"], kind="stable")), len(free)
