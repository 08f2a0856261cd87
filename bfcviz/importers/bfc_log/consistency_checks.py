"""Compare the chunk lines of a dump with its own bins, sums and statistics, and say what is missing or wrong."""

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from bfcviz.events.schema import MIN_CHUNK, NUM_BINS, bin_numbers
from bfcviz.importers.bfc_log.dump import Dump, Stage
from bfcviz.importers.bfc_log.dumped_heap import DumpedHeap
from bfcviz.importers.bfc_log.messages import CENTRAL_GAP
from bfcviz.units import format_bytes

RERUN: Final = "run again with TF_CPP_MIN_LOG_LEVEL=0 to get it"


class DumpFindings(NamedTuple):
    """What is wrong with a dump.

    Attributes:
        wrong: sentences about contradictions and missing parts.
        cut: a sentence if its end is missing, "" otherwise.
        is_whole: whether the chunk lines are all chunks of the heap, as far as the dump can tell.
    """

    wrong: list[str]
    cut: str
    is_whole: bool


def check_dump(dump: Dump, heap: DumpedHeap) -> DumpFindings:
    """Compare everything that a dump states twice."""
    if not dump.chunks.address:
        return _without_chunks(dump)
    contradictions = [*_statistics(dump, heap), *_sums(dump, heap), *_bins(dump, heap)]
    wrong = [*_left_out(dump, heap), *_regions(heap), *contradictions]
    is_cut = dump.stage <= Stage.CHUNKS
    has_bins = len(dump.bins) == NUM_BINS and not any(line.only_free for line in dump.bins.values())
    confirmed = has_bins and not contradictions and not heap.missing_bytes
    cut = ""
    if is_cut and not confirmed:
        cut = f"the dump ends after {len(dump.chunks.address):,} chunk lines; its end is not in the log"
        wrong = _left_out(dump, heap)
    if not dump.failed:
        wrong.append("the log does not say which request failed: the beginning of the dump is missing")
    return DumpFindings(wrong, cut, not cut)


def _without_chunks(dump: Dump) -> DumpFindings:
    if dump.strip and not dump.bins and not dump.stats:
        why = (
            "the log holds only the warning and the occupancy strip; the lines of the chunks are of level INFO: "
            + RERUN
        )
        return DumpFindings([why], "", is_whole=False)
    if not dump.bins and not dump.stats and not dump.failed:
        why = "the log holds no dump of the heap; it only tells of requests that may fail, or of returned regions"
        return DumpFindings([why], "", is_whole=False)
    if not dump.bins and not dump.stats:
        return DumpFindings(
            [f"the log holds no dump of the heap for this failure; {RERUN}"], "", is_whole=False
        )
    if dump.ended:
        return DumpFindings(["the dump lists no chunks: its numbers are all there is"], "", is_whole=False)
    return DumpFindings([], "the dump ends before its first chunk line", is_whole=False)


def _left_out(dump: Dump, heap: DumpedHeap) -> list[str]:
    counts = {
        "chunk lines repeat another one": heap.repeated,
        "chunk lines overlap others, as when two processes write into one log": heap.overlapping,
        "chunk lines describe an impossible chunk": dump.chunks.impossible,
        "lines of bins or sizes repeat another one": dump.repeated,
    }
    return [f"{count:,} {what}; they were left out" for what, count in counts.items() if count]


def _regions(heap: DumpedHeap) -> list[str]:
    wrong = []
    if heap.assumed_free:
        wrong.append(
            f"the log lists only chunks in use; {heap.assumed_free:,} gaps between them are shown as free chunks, and "
            "free memory after the last one is not shown"
        )
    if heap.missing_bytes:
        more = f"; {heap.gaps:,} gaps divide regions into parts" if heap.gaps > 0 else ""
        wrong.append(
            f"{format_bytes(heap.missing_bytes)} of the regions are in no chunk line ({heap.missing_bytes:,} bytes)"
            + more
        )
    return wrong


def _statistics(dump: Dump, heap: DumpedHeap) -> list[str]:
    wrong = []
    in_use = int(heap.in_use["size"].sum())
    stated = dump.stats.get("InUse")
    if stated is not None and not stated.means(in_use):
        wrong.append(f"the chunk lines add up to {in_use:,} bytes in use, but Stats say {stated.text}")
    pool = int(heap.chunks["size"].sum())
    if dump.pool is not None and not heap.missing_bytes and not dump.pool.means(pool):
        wrong.append(f"the chunk lines add up to a pool of {pool:,} bytes, but the log says {dump.pool.text}")
    return wrong


def _sums(dump: Dump, heap: DumpedHeap) -> list[str]:
    sizes, counts = np.unique(heap.in_use["size"], return_counts=True)
    found = Counter(dict(zip(sizes.tolist(), counts.tolist(), strict=True)))
    if dump.summary and found != dump.summary:
        differing = sum((found - Counter(dump.summary)).values()) + sum(
            (Counter(dump.summary) - found).values()
        )
        return [f"the chunk lines and the summary by size differ in {differing:,} chunks in use"]
    in_use = int(heap.in_use["size"].sum())
    if dump.sum_in_use is not None and not dump.sum_in_use.means(in_use):
        return [
            f"the chunk lines add up to {in_use:,} bytes in use, but their sum says {dump.sum_in_use.text}"
        ]
    return []


def _bins(dump: Dump, heap: DumpedHeap) -> list[str]:
    if len(dump.bins) < NUM_BINS:
        return []
    gap = dump.chunks.notes.get(("", CENTRAL_GAP), -1)  # XLA keeps it in no bin
    chunks = heap.chunks[~heap.chunks["in_use"] & (heap.chunks["label"] != gap)]
    free, used = _by_bin(chunks["size"]), _by_bin(heap.in_use["size"])
    differing = 0
    for size, line in dump.bins.items():
        # Until 2017 the bins held only free chunks; a dump of 2016 lists none of them.
        total = free[size] if line.only_free else free[size] + used[size]
        wrong_use = not line.only_free and line.used != used[size]
        differing += (line.chunks != total and not heap.assumed_free) or wrong_use
    return [f"the chunk lines and {differing} of the {len(dump.bins)} bin lines differ"] if differing else []


def _by_bin(sizes: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> Counter[int]:
    """Number of chunks by the smallest size of their bin."""
    bins, counts = np.unique(bin_numbers(sizes), return_counts=True)
    return Counter(
        {MIN_CHUNK << number: count for number, count in zip(bins.tolist(), counts.tolist(), strict=True)}
    )
