"""The failed requests of a log: the dump of the heap that belongs to each, and the heap of a trace that it becomes.

::

    records --> DumpCollector: a `Dump` each --> attach_errors --> dumped_heap: chunks, regions --> check_dump
                                                                                              `--> failed_pools: events
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, Pool, RecordedFailure
from bfcviz.events.schema import EVENT, MIN_CHUNK, NUM_BINS, Events, Flag, Kind, bin_numbers
from bfcviz.events.structured_arrays import joined, taken
from bfcviz.formats.tensorflow import LOG_FAILURES, TYPE_BYTES, UNIT, round_up
from bfcviz.importers.bfc_log import log_lines
from bfcviz.importers.bfc_log.log_lines import (
    BFC_ALLOCATOR,
    CENTRAL_GAP,
    CHUNK_LINES,
    LogRecord,
    LogText,
    PrintedSize,
    log_line_size_text,
    records,
    size_in_log_line,
)
from bfcviz.importers.event_makers import (
    HEAP_CHUNK,
    HeapChunks,
    HeapRegion,
    events_of_state,
    failed_request,
    numbered_names,
    regions_of,
    with_gaps_as_chunks,
    without_overlapping_chunks,
    without_repeated_chunks,
)
from bfcviz.units import counted, format_bytes

# ------------------------------------------------------------------------------
# One failed request of a log, with the dump of the heap that belongs to it.


class Stage(IntEnum):
    """The parts of a dump in their order."""

    HEADER = 0
    BINS = 1
    CHUNKS = 2
    SUMMARY = 3
    STATS = 4
    STRIP = 5


class DumpBinLine(NamedTuple):
    """A line of a dump about one bin. Until 2017 (`only_free`) its counts are those of free chunks."""

    chunks: int
    used: int
    size: PrintedSize
    requested: PrintedSize
    only_free: bool


@dataclass
class ChunkLines:
    """The chunk lines of a dump of a heap, in the order of the file: one element of each list a line."""

    address: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    in_use: list[bool] = field(default_factory=list)
    # Index of the region line before it, -1 before the first one.
    region: list[int] = field(default_factory=list)
    note: list[int] = field(default_factory=list)  # index in `notes`
    # Operation and tag of chunks; the first is none.
    notes: dict[tuple[str, str], int] = field(default_factory=lambda: {("", ""): 0})
    impossible: int = 0  # lines whose chunk is empty or ends beyond the address space


@dataclass
class Dump:
    """What a log says of one failed request, with its dump."""

    line: int  # of its first record
    time: int | None  # the same
    name: str = ""  # of the allocator; "" where the log does not say it
    writer: str = ""  # tag of the process
    requested: PrintedSize | None = None  # as the warning prints it; None without a warning
    rounded: int | None = None  # the request after rounding, exact
    exact: int | None = None  # the request, exact
    op: str = ""  # as in `RecordedFailure`
    tensor: str = ""  # the same
    message: str = ""  # the same
    stage: Stage = Stage.HEADER  # of the last line
    bins: dict[int, DumpBinLine] = field(default_factory=dict)  # by the smallest size of the bin
    bin_for: PrintedSize | None = None  # the rounded request, as printed in the dump
    regions: list[int] = field(default_factory=list)  # size of each region, by ascending address
    chunks: ChunkLines = field(default_factory=ChunkLines)
    summary: dict[int, int] = field(default_factory=dict)  # number of chunks in use by size
    sum_in_use: PrintedSize | None = None  # their total
    pool: PrintedSize | None = None  # of the line about the pool, or of the statistics
    limit: PrintedSize | None = None  # the same
    available: PrintedSize | None = None  # the same
    next_region: PrintedSize | None = None  # the same
    growth: bool | None = None  # whether the pool may grow; None: unknown
    end: str = ""  # that the failed request asked for, `lower` or `upper`; "" where the log does not say it
    # The free memory of a heap that serves requests from both ends, as the log sums it up.
    spatial: "DumpSpatialSummary | None" = None
    stats: dict[str, PrintedSize] = field(default_factory=dict)  # the statistics as printed
    strip: str = ""  # the occupancy
    has_warning: bool = False  # that a request failed; else its start is lost, or it tells less
    repeated: int = 0  # lines of bins and sizes that occur twice

    @property
    def ended(self) -> bool:
        """Whether the end of the dump is in the log."""
        return self.stage >= Stage.STATS

    @property
    def failed(self) -> bool:
        """Whether a request failed here. A pool prints its statistics after its chunks only then."""
        says = self.has_warning or self.bin_for is not None or self.exact is not None or bool(self.tensor)
        return says or bool(self.stats and self.chunks.address)

    @property
    def says_request(self) -> bool:
        """Whether the log says which request failed."""
        return _failed_request_bytes(self) > 0


class DumpSpatialSummary(NamedTuple):
    """A line of a dump of XLA's heap: the central gap, the largest hole of the end of the request, and of any end."""

    gap: PrintedSize
    same_end: PrintedSize
    any_end: PrintedSize


class Note(NamedTuple):
    """A line of a log beside the dumps: a request that may fail, a garbage collection, a refusal of the driver."""

    line: int  # of the record
    time: int | None  # the same
    name: str  # of the allocator, "" where the line does not say it
    writer: str
    text: str  # what happened
    size: int  # bytes, 0 where there are none


# ------------------------------------------------------------------------------
# The chunks and regions of one dump, in the order of their addresses.
#
# ::
#
#     lines     Next region   InUse InUse Free    Next region   InUse Free
#     regions   [ .... | .... | ............ ]    [ ....... | ........... ]
#
# Logs before 2019 have no region lines: there a gap between two chunks begins a region. Lines that overlap, as when
# two processes write into one log, cannot all be of one heap: those that fit the fewest others are left out.


class DumpedHeap(NamedTuple):
    """The chunks in the dump of a failed request."""

    chunks: HeapChunks  # by ascending address; `label` is an index in `ChunkLines.notes`
    regions: list[HeapRegion]  # by ascending address; the chunks tile them
    repeated: int = 0  # chunk lines left out
    overlapping: int = 0  # the same
    assumed_free: int = 0  # gaps that are shown as free chunks, because the log lists only chunks in use
    gaps: int = 0  # places within one region where chunk lines are missing
    # Bytes of regions, as far as their sizes are in the log, that no chunk line describes.
    missing_bytes: int = 0

    @property
    def in_use(self) -> HeapChunks:
        """The chunks of a dump that are in use."""
        return taken(self.chunks, self.chunks["in_use"])


def dumped_heap(dump: Dump) -> DumpedHeap:
    """The heap that the chunk lines of a dump describe; empty without any."""
    lines = dump.chunks
    count = len(lines.address)
    chunks: HeapChunks = np.zeros(count, HEAP_CHUNK)
    for name, column in (("address", lines.address), ("size", lines.size), ("label", lines.note)):
        chunks[name] = column
    chunks["requested"], chunks["in_use"] = chunks["size"], lines.in_use
    order = np.argsort(chunks["address"], kind="stable")
    chunks, slots = taken(chunks, order), np.array(lines.region, np.int64)[order]
    kept = without_repeated_chunks(chunks)
    repeated = count - int(kept.sum())
    chunks, slots = taken(chunks, kept), slots[kept]
    kept = without_overlapping_chunks(chunks)
    overlapping = len(kept) - int(kept.sum())
    chunks, slots = taken(chunks, kept), slots[kept]
    if _lists_only_use(dump, chunks):
        chunks, assumed = with_gaps_as_chunks(chunks)
        return DumpedHeap(chunks, regions_of(chunks), repeated, overlapping, assumed)
    regions = regions_of(chunks, slots[1:] > slots[:-1])
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


def _lists_only_use(dump: Dump, chunks: HeapChunks) -> bool:
    """Whether this is a dump of 2016, which lists no free chunk although the bins hold some."""
    if dump.stage <= Stage.CHUNKS:
        return False
    lines = dump.bins.values()
    in_bins = sum(line.chunks for line in lines if line.only_free)
    gaps = int((chunks["address"][1:] != (chunks["address"] + chunks["size"])[:-1]).sum())
    return bool(len(chunks)) and bool(chunks["in_use"].all()) and in_bins > 0 and gaps <= in_bins


# ------------------------------------------------------------------------------
# Collect the dumps of a log from its records.
#
# A header, the lines of bins, chunks and sums, and the statistics follow each other, but the lines of another
# process or thread may lie between them. A thread writes a whole dump, so records are told apart by process and
# thread where the log names them.

_FIRST_WORD: Final = re.compile(r"\s{0,40}(\w{1,40})")
_MOST_WRITERS: Final = 4096
_LONGEST: Final = 1000  # characters of a message
_ADDRESSES: Final = 1 << 63
_SOON: Final = 2 * 10**9  # ns


_NUMBER: Final = "0"
"""Stands for any number as the first word of a line."""

_Taker = tuple[Callable[[str], re.Match[str] | None], Callable[[LogRecord, re.Match[str]], None]]
"""What finds a message, and what takes it."""


class DumpCollector:
    """Collects the dumps of failed requests; takes records in the order of the log.

    Attributes:
        dumps: in the order of their first lines.
        notes: lines beside them.
        texts: (number of dumps before it, record) of each record that may hold an error message about memory.
        left_out: dumps after the first `MAX_POOLS`; they are only counted.
        left_out_line: where the first of these begins.
    """

    def __init__(self) -> None:
        self.dumps: list[Dump] = []
        self.notes: list[Note] = []
        self.texts: list[tuple[int, LogRecord]] = []
        self.left_out = 0
        self.left_out_line = 0
        self._open: dict[tuple[str, str], Dump] = {}
        self._takers: dict[str, tuple[_Taker, ...]] = {
            "Allocator": (
                (log_lines.HEADER.match, self._header),
                (log_lines.MEMORY_SUMMARY.match, self._pool),
                (log_lines.GROWTH.search, self._growth),
            ),
            "Ran": ((log_lines.LATE_HEADER.match, self._header), (log_lines.GROWTH.search, self._growth)),
            "Garbage": ((log_lines.GARBAGE_COLLECTION.match, self._garbage_collection),),
            "BFCAllocator": ((log_lines.DUMP_FOR.match, self._dump_for),),
            "Bin": ((log_lines.BIN.match, self._bin), (log_lines.BIN_FOR.match, self._bin_for)),
            "Next": ((log_lines.REGION.match, self._region),),
            "Summary": ((_FIRST_WORD.match, self._summary_begins),),
            _NUMBER: ((log_lines.SUMMARY.match, self._summary),),
            "Sum": ((log_lines.SUM.match, self._sum),),
            "Spatial": ((log_lines.SPATIAL.match, self._spatial),),
            "total_region_allocated_bytes_": ((log_lines.POOL.match, self._pool),),
            "Total": ((log_lines.POOL.match, self._pool),),
            "Stats": ((_FIRST_WORD.match, self._stats),),
        }

    def take_all(self, records: Iterable[LogRecord]) -> None:
        """Collect the dumps of failed requests from every record of a log."""
        for record in records:
            if record.file not in {BFC_ALLOCATOR, ""} or not self._take_line(record):
                self._take_text(record)

    def _take_line(self, record: LogRecord) -> bool:
        """Take a line of a dump or beside one; returns whether it is one."""
        message = record.message
        if log_lines.CHUNK.match(message) is not None:
            self._chunks(record)
            return True
        word = _FIRST_WORD.match(message)
        key = "" if word is None else _NUMBER if word[1].isdecimal() else word[1]
        strip: _Taker = (log_lines.STRIP.match, self._strip)
        for match, take in (*self._takers.get(key, ()), strip):
            if (found := match(message)) is not None:
                take(record, found)
                return True
        return False

    def _take_text(self, record: LogRecord) -> None:
        """Keep a record that may hold an error message about memory."""
        refused = log_lines.REFUSED.search(record.message)
        if refused is not None:
            self._note(record, "", "the device had no memory for a region", int(refused["bytes"]))
        if not self.left_out and ("memory" in record.message or "OOM" in record.message):
            self.texts.append((len(self.dumps), record))

    def _new(self, record: LogRecord) -> Dump:
        """Begin a dump."""
        dump = Dump(record.line, record.time, writer=record.writer)
        if len(self.dumps) < MAX_POOLS:
            self.dumps.append(dump)
        else:
            self.left_out += 1
            self.left_out_line = self.left_out_line or record.line
        if len(self._open) == _MOST_WRITERS:
            self._open.clear()
        self._open[record.writer, record.thread] = dump
        return dump

    def _current(self, record: LogRecord, stage: Stage) -> Dump:
        """The dump that a line belongs to; a new one if the last one has ended."""
        dump = self._open.get((record.writer, record.thread))
        if dump is None and self.dumps and not self.left_out:
            # Some logs name process or thread only in some of their lines.
            last = self.dumps[-1]
            fits = last.writer in {"", record.writer} or not record.writer
            if fits and not last.ended and (last.stage <= Stage.HEADER or not record.file):
                dump = self._open[record.writer, record.thread] = last
        if dump is None or dump.ended:
            dump = self._new(record)
        dump.stage = max(dump.stage, stage)
        return dump

    def _header(self, record: LogRecord, found: re.Match[str]) -> None:
        """Take the warning that begins a dump."""
        size = size_in_log_line(found["size"])
        if size is None:
            return
        parts = found.groupdict()
        name, rounded = parts.get("name") or "", parts.get("rounded")
        if log_lines.NOT_A_FAILURE.search(record.message):
            self._note(record, name, f"a request for {size.text} found no memory (not a failure)", size.value)
            return
        dump = self._of_late_header(record) if not name else None
        dump = dump or self._new(record)
        dump.has_warning, dump.requested = True, size
        dump.name = name or dump.name
        dump.rounded = None if rounded is None else int(rounded)
        dump.message = " ".join(record.message.split("\n", 1)[0].split())[:_LONGEST]
        op = log_lines.REQUESTED_BY.search(record.message)
        dump.op = "" if op is None else op["op"].partition(".  Current allocation")[0].strip()

    def _of_late_header(self, record: LogRecord) -> Dump | None:
        """The dump of a failed request that ended just before its warning, as until 2017."""
        dump = self._open.get((record.writer, record.thread))
        if dump is None or dump.has_warning or dump.stage is Stage.HEADER:
            return None
        if dump.time is None or record.time is None or 0 <= record.time - dump.time < _SOON:
            dump.stage = Stage.STRIP
            return dump
        return None

    def _note(self, record: LogRecord, name: str, text: str, size: int) -> None:
        """Take a line beside the dumps."""
        self.notes.append(Note(record.line, record.time, name, record.writer, text, size))

    def _garbage_collection(self, record: LogRecord, _: re.Match[str]) -> None:
        """Take the line of a garbage collection as a note beside the dumps."""
        self._note(record, "", "garbage collection: free regions are returned", 0)

    def _dump_for(self, record: LogRecord, found: re.Match[str]) -> None:
        """Take the line that names the allocator of a dump."""
        dump = self._current(record, Stage.HEADER)
        if dump.stage > Stage.HEADER or dump.name not in {"", found["name"]}:
            dump = self._new(record)
        dump.name = found["name"]

    def _bin(self, record: LogRecord, found: re.Match[str]) -> None:
        """Take the line of a bin of a dump."""
        bytes_, requested = size_in_log_line(found["bytes"]), size_in_log_line(found["requested"])
        if bytes_ is None or requested is None:
            return
        size = int(found["bin"])
        dump = self._current(record, Stage.BINS)
        if size == UNIT and (len(dump.bins) > 1 or dump.stage > Stage.BINS):
            dump = self._new(record)
            dump.stage = Stage.BINS
        dump.repeated += size in dump.bins
        line = DumpBinLine(
            int(found["chunks"]), int(found["used"]), bytes_, requested, found["old"] is not None
        )
        dump.bins.setdefault(size, line)

    def _bin_for(self, record: LogRecord, found: re.Match[str]) -> None:
        """Take the line that names the bin of the failed request."""
        self._current(record, Stage.BINS).bin_for = size_in_log_line(found["size"])

    def _region(self, record: LogRecord, found: re.Match[str]) -> None:
        """Take the line that begins a region of a dump."""
        self._current(record, Stage.CHUNKS).regions.append(int(found["size"]))

    def _chunks(self, record: LogRecord) -> None:
        """Take the chunk lines of a dump in one record: one, or a run of them."""
        dump = self._current(record, Stage.CHUNKS)
        lines, region = dump.chunks, len(dump.regions) - 1
        for word, address_text, size_text, tag, op, annotation in log_lines.CHUNK.findall(record.message):
            address, size = int(address_text, 16), int(size_text)
            if not size or address + size > _ADDRESSES:
                lines.impossible += 1
                continue
            note = 0
            if tag or op or annotation:
                note = lines.notes.setdefault((op or annotation, tag), len(lines.notes))
            lines.address.append(address)
            lines.size.append(size)
            lines.in_use.append(word != "Free")
            lines.region.append(region)
            lines.note.append(note)

    def _summary(self, record: LogRecord, found: re.Match[str]) -> None:
        """Take a line of a dump's summary: chunks of one size."""
        dump, size = self._current(record, Stage.SUMMARY), int(found["size"])
        dump.repeated += size in dump.summary
        dump.summary.setdefault(size, int(found["count"]))

    def _sum(self, record: LogRecord, found: re.Match[str]) -> None:
        self._current(record, Stage.SUMMARY).sum_in_use = size_in_log_line(found["size"])

    def _summary_begins(self, record: LogRecord, _: re.Match[str]) -> None:
        self._current(record, Stage.SUMMARY)

    def _pool(self, record: LogRecord, found: re.Match[str]) -> None:
        dump, parts = self._current(record, Stage.SUMMARY), found.groupdict()
        dump.pool, dump.limit = size_in_log_line(found["pool"]), size_in_log_line(found["limit"])
        dump.available = size_in_log_line(found["available"])
        dump.end = parts.get("end") or ""
        dump.next_region = size_in_log_line(parts.get("next") or "")

    def _spatial(self, record: LogRecord, found: re.Match[str]) -> None:
        sizes = [size_in_log_line(found[name]) for name in DumpSpatialSummary._fields]
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            dump = self._current(record, Stage.SUMMARY)
            dump.end, dump.spatial = found["end"], DumpSpatialSummary(*known)

    def _growth(self, record: LogRecord, found: re.Match[str]) -> None:
        self._current(record, Stage.SUMMARY).growth = found["growth"] == "enabled"

    def _stats(self, record: LogRecord, _: re.Match[str]) -> None:
        """Take the statistics at the end of a dump."""
        dump = self._current(record, Stage.STATS)
        for name, text in log_lines.STAT.findall(record.message):
            size = size_in_log_line(text)
            if size is not None:
                dump.stats.setdefault(name, size)

    def _strip(self, record: LogRecord, found: re.Match[str]) -> None:
        """Take the picture of the occupancy that ends a dump."""
        dump = self._open.get((record.writer, record.thread))
        if dump is None or dump.stage is not Stage.STATS:
            dump = self._current(record, Stage.STRIP)
        dump.stage, dump.strip = Stage.STRIP, found[1]


# ------------------------------------------------------------------------------
# Compare the chunk lines of a dump with its own bins, sums and statistics, and say what is missing or wrong.

_OTHER_END: Final = {"lower": "upper", "upper": "lower"}
RERUN: Final = f"run again with {LOG_FAILURES} to get it"


class DumpFindings(NamedTuple):
    """What is wrong with the dump of a failed request."""

    wrong: list[str]  # sentences about contradictions and missing parts
    cut: str  # a sentence if its end is missing, "" otherwise
    is_whole: bool  # whether the chunk lines are all chunks of the heap, as far as the dump can tell


def check_dump(dump: Dump, heap: DumpedHeap) -> DumpFindings:
    """Compare everything that a dump states twice."""
    if not dump.chunks.address:
        return _findings_without_chunks(dump)
    contradictions = [
        *_stats_contradictions(dump, heap),
        *_size_sum_contradictions(dump, heap),
        *_bin_line_contradictions(dump, heap),
        *_two_end_contradictions(dump, heap),
    ]
    wrong = [*_lines_left_out(dump, heap), *_region_gap_findings(heap), *contradictions]
    is_cut = dump.stage <= Stage.CHUNKS
    has_bins = len(dump.bins) == NUM_BINS and not any(line.only_free for line in dump.bins.values())
    confirmed = has_bins and not contradictions and not heap.missing_bytes
    cut = ""
    if is_cut and not confirmed:
        cut = f"the dump ends after {len(dump.chunks.address):,} chunk lines; its end is not in the log"
        wrong = _lines_left_out(dump, heap)
    if not dump.says_request:
        wrong.append("the log does not say which request failed: the beginning of the dump is missing")
    return DumpFindings(wrong, cut, not cut and not _lacks_chunks(dump, heap))


_LACKING: Final = 0.05
"""Of the bytes that a dump states: where more are in no chunk line, what is free cannot be told from the lines."""


def _lacks_chunks(dump: Dump, heap: DumpedHeap) -> bool:
    """Whether so many chunk lines are missing that the rest does not tell why the request failed."""
    stated = [
        (dump.stats.get("InUse") or dump.sum_in_use, int(heap.in_use["size"].sum())),
        (dump.pool, int(heap.chunks["size"].sum())),
    ]
    lacking = [(size.value - listed, size.value) for size, listed in stated if size is not None]
    lacking.append((heap.missing_bytes, sum(dump.regions)))
    request = dump.rounded or _failed_request_bytes(dump)
    return any(
        missing > _LACKING * whole or (missing > _MISCOUNTED * whole and 0 < request <= missing)
        for missing, whole in lacking
    )


_MISCOUNTED: Final = 0.01
"""A smaller part is what sizes with few digits leave out."""


def holds_only_cut_dumps(log: LogText) -> bool:
    """Whether a log has chunk lines, and all those of no dump."""
    collector = DumpCollector()
    collector.take_all(records(log, CHUNK_LINES.pattern))
    attach_errors(collector.dumps, collector.texts)
    dumps = [dump for dump in collector.dumps if dump.chunks.address]
    return bool(dumps) and not any(check_dump(dump, dumped_heap(dump)).is_whole for dump in dumps)


def _findings_without_chunks(dump: Dump) -> DumpFindings:
    """What is wrong with a dump that lists no chunks."""
    if dump.bins or dump.stats:
        if not dump.ended:
            return DumpFindings([], "the dump ends before its first chunk line", is_whole=False)
        why = "the dump lists no chunks: its numbers are all there is"
    elif dump.strip:
        why = (
            "the log holds only the warning and the occupancy strip; the lines of the chunks are of level INFO: "
            + RERUN
        )
    elif dump.failed:
        why = f"the log holds no dump of the heap for this failure; {RERUN}"
    else:
        why = "the log holds no dump of the heap; it only tells of requests that may fail, or of returned regions"
    return DumpFindings([why], "", is_whole=False)


def _lines_left_out(dump: Dump, heap: DumpedHeap) -> list[str]:
    """How many lines of a dump are missing, in words."""
    counts = {
        "chunk lines repeat another one": heap.repeated,
        "chunk lines overlap others, as when two processes write into one log": heap.overlapping,
        "chunk lines describe an impossible chunk": dump.chunks.impossible,
        "lines of bins or sizes repeat another one": dump.repeated,
    }
    return [f"{count:,} {what}; they were left out" for what, count in counts.items() if count]


def _region_gap_findings(heap: DumpedHeap) -> list[str]:
    """Which regions of a dump have gaps."""
    wrong = []
    if heap.assumed_free:
        wrong.append(
            f"the log lists only chunks in use; {heap.assumed_free:,} gaps between them are shown as free chunks, and "
            "free memory after the last one is not shown"
        )
    if heap.missing_bytes:
        more = f"; regions are divided into parts by {counted(heap.gaps, 'gap')}" if heap.gaps > 0 else ""
        wrong.append(
            f"{format_bytes(heap.missing_bytes)} of the regions are in no chunk line ({heap.missing_bytes:,} bytes)"
            + more
        )
    return wrong


def _stats_contradictions(dump: Dump, heap: DumpedHeap) -> list[str]:
    """What the statistics of a dump say otherwise than its chunks."""
    wrong = []
    in_use = int(heap.in_use["size"].sum())
    stated = dump.stats.get("InUse")
    if stated is not None and not stated.means(in_use):
        wrong.append(f"the chunk lines add up to {in_use:,} bytes in use, but Stats say {stated.text}")
    pool = int(heap.chunks["size"].sum())
    if dump.pool is not None and not heap.missing_bytes and not dump.pool.means(pool):
        wrong.append(f"the chunk lines add up to a pool of {pool:,} bytes, but the log says {dump.pool.text}")
    return wrong


def _size_sum_contradictions(dump: Dump, heap: DumpedHeap) -> list[str]:
    """What the sums by size in a dump say otherwise than its chunks."""
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


def _bin_line_contradictions(dump: Dump, heap: DumpedHeap) -> list[str]:
    """What the lines of bins in a dump say otherwise than its chunks."""
    if len(dump.bins) < NUM_BINS:
        return []
    gap = dump.chunks.notes.get(("", CENTRAL_GAP), -1)  # XLA keeps it in no bin
    chunks = heap.chunks[~heap.chunks["in_use"] & (heap.chunks["label"] != gap)]
    free, used = _dumped_chunks_by_bin(chunks["size"]), _dumped_chunks_by_bin(heap.in_use["size"])
    differing = 0
    for size, line in dump.bins.items():
        # Until 2017 the bins held only free chunks; a dump of 2016 lists none of them.
        total = free[size] if line.only_free else free[size] + used[size]
        wrong_use = not line.only_free and line.used != used[size]
        differing += (line.chunks != total and not heap.assumed_free) or wrong_use
    return [f"the chunk lines and {differing} of the {len(dump.bins)} bin lines differ"] if differing else []


def _two_end_contradictions(dump: Dump, heap: DumpedHeap) -> list[str]:
    """What the summary of a dump of XLA's heap with two ends says otherwise than its chunks."""
    if dump.spatial is None:
        return []
    found = {
        "the central gap": (dump.spatial.gap, _largest_free(dump, heap, {"lower", "upper", ""})),
        f"the largest hole of the {dump.end} end": (
            dump.spatial.same_end,
            _largest_free(dump, heap, {CENTRAL_GAP, _OTHER_END.get(dump.end, "")}),
        ),
        "the largest hole": (dump.spatial.any_end, _largest_free(dump, heap, {CENTRAL_GAP})),
    }
    return [
        f"by the chunk lines {what} has {size:,} bytes, but the log says {stated.text}"
        for what, (stated, size) in found.items()
        if not stated.means(size)
    ]


def _largest_free(dump: Dump, heap: DumpedHeap, without: Collection[str]) -> int:
    """Bytes of the largest free chunk of a dump that has none of these tags; 0 if there is none."""
    notes = [note for (_, tag), note in dump.chunks.notes.items() if tag in without]
    free = ~heap.chunks["in_use"] & ~np.isin(heap.chunks["label"], notes)
    return int(heap.chunks["size"][free].max(initial=0))


def _dumped_chunks_by_bin(sizes: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> Counter[int]:
    """The chunks of a dump, counted by the smallest size of their bin."""
    bins, counts = np.unique(bin_numbers(sizes), return_counts=True)
    return Counter(
        {MIN_CHUNK << number: count for number, count in zip(bins.tolist(), counts.tolist(), strict=True)}
    )


# ------------------------------------------------------------------------------
# One dump as a heap of a trace: its events, its failure and what the log says of it.

_UNKNOWN: Final = (*REGION_FACTS, "bytes_in_use", "chunks_in_use")
_TOTALS: Final = {
    "InUse": "bytes_in_use",
    "MaxInUse": "peak_bytes_in_use",
    "NumAllocs": "allocations",
    "MaxAllocSize": "largest_allocation",
    "Reserved": "bytes_reserved",
    "PeakReserved": "peak_bytes_reserved",
}
_MOST: Final = (1 << 63) - 1


_NO_NAME: Final = "BFC allocator"


@dataclass(frozen=True)
class FailedPool:
    """The heap of one dump, as a pool of the trace."""

    pool: Pool  # its name, limit and options
    events: Events  # as for `one_after_another`; the OOM event, if any, is the last one
    # What the log says of the failed request, with 0 for its event; None if none is known.
    failure: RecordedFailure | None
    findings: DumpFindings  # what is wrong with the dump
    facts: dict[str, Any]  # entries of `Origin.details`
    totals: dict[str, int]  # the same
    stats: dict[str, str]  # the statistics as printed


def dumps_for_notes(dumps: list[Dump], notes: list[Note]) -> list[Dump]:
    """A dump without chunks for each allocator that only has lines beside dumps."""
    known = {dump.name for dump in dumps}
    names = dict.fromkeys(note.name for note in notes if note.name not in known)
    if dumps or len(names) > 1:
        names.pop("", None)  # belongs to the others
    first = {note.name: note for note in reversed(notes)}
    return [Dump(first[name].line, first[name].time, name) for name in names]


def failed_pools(dumps: list[Dump], notes: list[Note], labels: Labels) -> list[FailedPool]:
    """The heaps of the dumps of a log, with the lines beside them; `labels` gets the names of operations."""
    several = len({dump.writer for dump in dumps}) > 1
    names = [
        f"{dump.name or _NO_NAME} {dump.writer}" if several and dump.writer else dump.name or _NO_NAME
        for dump in dumps
    ]
    mine = _notes_of(dumps, notes)
    return [
        _failed_pool(dump, name, number, mine[place], labels)
        for place, (dump, (name, number)) in enumerate(
            zip(dumps, numbered_names(names, "dump "), strict=True)
        )
    ]


def _notes_of(dumps: list[Dump], notes: list[Note]) -> dict[int, list[Note]]:
    """The lines beside the dumps, for each dump: each belongs to the next dump of its allocator, or to the last one."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, dump in enumerate(dumps):
        for key in {(dump.name, dump.writer), (dump.name, ""), ("", dump.writer), ("", "")}:
            places[key].append(place)
    mine: dict[int, list[Note]] = defaultdict(list)
    for note in notes:
        fitting = places.get((note.name, note.writer)) or places.get((note.name, "")) or places["", ""]
        later = (place for place in fitting if dumps[place].line > note.line)
        mine[next(later, fitting[-1])].append(note)
    return mine


def _failed_pool(dump: Dump, name: str, number: int, notes: list[Note], labels: Labels) -> FailedPool:
    """The heap of a dump.

    Args:
        dump: what the log says.
        name: of the pool.
        number: of the dump, from 1, among those of its allocator.
        notes: lines beside the dump that belong to this allocator, before the failure.
        labels: gets the names of operations.

    Raises:
        TraceError: the dump has more regions than a trace can hold.
    """
    heap = dumped_heap(dump)
    findings = check_dump(dump, heap)
    known = findings.is_whole
    free_bytes = int(heap.chunks["size"][~heap.chunks["in_use"]].sum()) if known else 0
    other_end = [_OTHER_END[dump.end]] if dump.end in _OTHER_END else []  # the request gets none of its holes
    largest = _largest_free(dump, heap, other_end) if known else 0
    logs = [_marks_before_dump(notes, labels), _failed_pool_state(dump, heap, labels)]
    failure = None
    if dump.failed:
        failure = _failure_of_dump(dump, has_heap=known)
        op = labels.intern(dump.op) if dump.op else 0
        logs.append(failed_request(_failed_request_bytes(dump), free_bytes, largest, op))
        logs[-1]["time"] = dump.time or 0
    events: Events = joined(logs)
    events["seq"] = np.arange(len(events), dtype=np.uint64)
    stats = {key: size.text for key, size in dump.stats.items()}
    return FailedPool(
        Pool(name, _failed_pool_limit(dump, heap), _failed_pool_options(dump, number)),
        events,
        failure,
        findings,
        _failed_pool_facts(dump),
        _failed_pool_totals(dump, heap),
        stats,
    )


def _marks_before_dump(notes: list[Note], labels: Labels) -> Events:
    """Marks for the lines beside a dump, before its failure."""
    marks: Events = np.zeros(len(notes), EVENT)
    marks["kind"], marks["bin"] = Kind.MARK, -1
    for mark, note in zip(marks, notes, strict=True):
        mark["label"], mark["size"], mark["time"] = labels.intern(note.text), note.size, note.time or 0
    return marks


def _failed_pool_state(dump: Dump, heap: DumpedHeap, labels: Labels) -> Events:
    """Events that build the heap of a dump."""
    numbers = [0]
    for op, tag in list(dump.chunks.notes)[1:]:
        details = {"tag": tag} if tag and tag != "lower" else {}
        numbers.append(labels.intern(op, **details) if op or details else 0)
    notes = heap.chunks["label"].copy()
    heap.chunks["label"] = np.array(numbers, np.uint32)[notes]
    events = events_of_state(heap.chunks, heap.regions)
    events["time"] = dump.time or 0
    flags = np.zeros(len(numbers), np.uint8)
    for (_, tag), note in dump.chunks.notes.items():
        flags[note] = {"upper": Flag.UPPER, CENTRAL_GAP: Flag.CENTRAL_GAP}.get(tag, 0)
    used = events["kind"] == Kind.ALLOCATE
    notes_in_use: NDArray[np.uint32] = notes[heap.chunks["in_use"]]
    new_flags: NDArray[np.uint8] = flags[notes_in_use]
    events["flags"][used] |= new_flags
    return events


def _failure_of_dump(dump: Dump, *, has_heap: bool) -> RecordedFailure:
    """What a dump says of its failed request."""
    return RecordedFailure(
        0,
        is_exact=dump.exact is not None or (dump.requested is not None and dump.requested.is_exact),
        rounded=dump.rounded,
        op=dump.op,
        tensor=dump.tensor,
        in_use_requested=_in_use_requested(dump),
        room=None if dump.available is None else dump.available.value,
        has_heap=has_heap,
        message=dump.message,
    )


def _failed_request_bytes(dump: Dump) -> int:
    """Bytes of the failed request of a dump: the best that the log says; 0 if nothing."""
    if dump.exact is not None:
        return dump.exact
    if dump.requested is not None and dump.requested.is_exact:
        return dump.requested.value
    if dump.rounded is not None:
        return min(dump.rounded, _MOST)
    printed = dump.requested or dump.bin_for
    return 0 if printed is None else printed.value


def _in_use_requested(dump: Dump) -> int | None:
    """Requested bytes of all chunks in use, where a dump states them."""
    lines = dump.bins.values()
    if len(lines) < NUM_BINS or any(line.only_free for line in lines):
        return None
    return min(_MOST, sum(line.requested.value for line in lines))


def _failed_pool_limit(dump: Dump, heap: DumpedHeap) -> int | None:
    """The memory limit of the heap of a dump."""
    for size in (dump.stats.get("Limit"), dump.limit):
        if size is not None and size.is_exact and size.value:
            return size.value
    pool = int(heap.chunks["size"].sum())
    if (
        dump.available is not None
        and not dump.available.value
        and dump.pool is not None
        and dump.pool.means(pool)
    ):
        return pool
    printed = dump.limit or dump.stats.get("Limit")
    return None if printed is None or not printed.value else printed.value


def _failed_pool_options(dump: Dump, number: int) -> dict[str, object]:
    """The options of the heap of a dump, as far as it shows them."""
    options: dict[str, object] = {"allocator_name": dump.name, "dump": number}
    if dump.writer:
        options["writer"] = dump.writer
    growth = dump.growth
    if growth is None and dump.next_region is not None and dump.limit is not None:
        # Without growth the first region is the whole limit, and the next one would be twice as large.
        rounded = round_up(dump.limit.value)
        growth = not (dump.next_region.value == 2 * rounded or dump.next_region.means(2 * rounded))
    if growth is not None:
        options["allow_growth"] = growth
    if dump.spatial is not None:
        options["spatial_partitioning"] = True
    return options


def _failed_pool_facts(dump: Dump) -> dict[str, Any]:
    """Numbers of a dump that the events cannot give: the chunk lines never say what was requested for each chunk."""
    facts: dict[str, Any] = dict.fromkeys(("requested_bytes_in_use", "peak_bytes_in_use"))
    stated = {"MaxInUse": "peak_bytes_in_use"}
    if not dump.chunks.address:
        facts |= dict.fromkeys(_UNKNOWN)
        stated["InUse"] = "bytes_in_use"
    for name, key in stated.items():
        size = dump.stats.get(name)
        if size is not None and size.is_exact:
            facts[key] = size.value
    return facts


def _failed_pool_totals(dump: Dump, heap: DumpedHeap) -> dict[str, int]:
    """Totals of the heap of a dump, as it states them."""
    stats = {name: size.value for name, size in dump.stats.items() if size.is_exact}
    totals = {key: stats[name] for name, key in _TOTALS.items() if name in stats}
    return totals | {
        "chunk_lines": len(dump.chunks.address),
        "left_out": heap.repeated + heap.overlapping + dump.chunks.impossible,
    }


# ------------------------------------------------------------------------------
# Attach the errors that a framework raises after a failed request to the dump of that request.
#
# The same error is printed several times: by the runtime, by Python, and again in each traceback. An error without a
# dump is a failed request of its own.


class AllocationError(NamedTuple):
    """An error message in a log, such as `OOM when allocating tensor`, which may belong to a dump."""

    line: int  # of its record
    time: int | None  # the same
    writer: str  # the same
    name: str  # of the allocator, "" where it does not say it
    # Bytes of the request that the message allows; more than one where it does not say the type.
    sizes: tuple[int, ...]
    printed: PrintedSize | None  # the size as printed, None where it gives a tensor
    tensor: str  # shape and type
    op: str  # the node of the graph
    text: str  # the message


def attach_errors(dumps: list[Dump], texts: list[tuple[int, LogRecord]]) -> list[Dump]:
    """Put what the errors in `DumpCollector.texts` say into the dumps.

    Returns these and a `Dump` for each error without one, in order; no new ones after the first `MAX_POOLS`.
    """
    found: list[Dump] = []
    passed = 0
    for count, record in texts:
        found += dumps[passed:count]
        passed = count
        for error in _errors_for_dumps(record):
            if not _attach_error_to_dump(found, error) and len(found) <= MAX_POOLS:
                found.append(_dump_of_lone_error(error))
    return found + dumps[passed:]


def _attach_error_to_dump(dumps: list[Dump], error: AllocationError) -> bool:
    """Attach an error to the last dump that it fits; returns whether it tells of a known failure."""
    fitting = [dump for dump in reversed(dumps[-_RECENT:]) if _is_error_of_dump(dump, error)]
    for dump in fitting:
        if error.tensor and dump.tensor == error.tensor:
            return True
        if error.printed is not None and error.printed.is_exact and dump.exact == error.printed.value:
            return True
        exact = _agreed_request_size(dump, error)
        texts = {size.text for size in (dump.requested, dump.bin_for) if size is not None}
        if exact is not None or (error.printed is not None and error.printed.text in texts):
            dump.exact = exact if dump.exact is None else dump.exact
            _describe_dump_by_error(dump, error)
            return True
    # An operation can ask for more than its tensor: the message then belongs to the failure just before it.
    if error.tensor and fitting and fitting[0] is dumps[-1] and not fitting[0].tensor:
        _describe_dump_by_error(fitting[0], error)
        return True
    return False


_RECENT: Final = 64


def _is_error_of_dump(dump: Dump, error: AllocationError) -> bool:
    """Whether an error message and a dump can be of the same failure."""
    same_name = not (dump.name and error.name) or dump.name == error.name
    return same_name and (not (dump.writer and error.writer) or dump.writer == error.writer)


def _agreed_request_size(dump: Dump, error: AllocationError) -> int | None:
    """The size of a failed request that the error message and its dump agree on; None if they do not."""
    if dump.tensor and error.tensor:
        return None
    for size in error.sizes:
        rounded = round_up(size)
        if dump.rounded not in {None, rounded, size}:
            continue
        printed = dump.requested or dump.bin_for
        if printed is None and dump.ended and not dump.says_request and len(error.sizes) == 1:
            return size  # of the dump just before it, whose beginning is missing
        if printed is not None and (
            printed.means(size) or (dump.requested is None and printed.means(rounded))
        ):
            return size
    return None


def _describe_dump_by_error(dump: Dump, error: AllocationError) -> None:
    """Take what an error message says into its dump."""
    dump.tensor, dump.op = dump.tensor or error.tensor, dump.op or error.op
    dump.name = dump.name or error.name
    dump.message = error.text


def _dump_of_lone_error(error: AllocationError) -> Dump:
    """A dump without chunks, for an error message without a dump."""
    dump = Dump(error.line, error.time, error.name, error.writer, has_warning=True, requested=error.printed)
    if len(error.sizes) == 1:
        dump.exact = error.sizes[0]
        dump.requested = size_in_log_line(log_line_size_text(dump.exact))
    _describe_dump_by_error(dump, error)
    return dump


def _errors_for_dumps(record: LogRecord) -> Iterator[AllocationError]:
    """The errors in one record that may belong to a dump, without those that repeat the one before."""
    last = None
    for found in _ERROR.finditer(record.message):
        line = record.line + record.message.count("\n", 0, found.start())
        rest = record.message[found.start() : found.start() + 2 * _LONGEST]
        node = log_lines.NODE.search(rest)
        op = "" if node is None else node[1] or node[2]
        text = " ".join(re.split(r"[\n\r]", rest, maxsplit=1)[0].split())[:_LONGEST]
        parts = found.groupdict()
        if parts["size"]:
            printed = size_in_log_line(parts["size"])
            if printed is None:
                continue
            sizes: tuple[int, ...] = (printed.value,) if printed.is_exact else ()
            error = AllocationError(line, record.time, record.writer, "", sizes, printed, "", op, text)
        else:
            numbers, type_ = parts["shape"].replace(",", " ").split(), parts["type"]
            tensor = " ".join(filter(None, (type_, f"[{','.join(numbers)}]")))
            sizes = _dump_tensor_bytes(numbers, type_)
            name = parts["name"] or ""
            error = AllocationError(line, record.time, record.writer, name, sizes, None, tensor, op, text)
        key = (error.sizes, error.printed, error.tensor, error.name)
        if key != last:
            yield error
        last = key


_ERROR: Final = re.compile(rf"{log_lines.OOM_TENSOR.pattern}|{log_lines.OUT_OF_BYTES.pattern}")


def _dump_tensor_bytes(shape: Sequence[str], type_: str | None) -> tuple[int, ...]:
    """Bytes of a failed tensor of this shape; without a type those of every element size, the usual one first."""
    elements = prod(int(number[:19]) for number in shape)
    widths = (4, 8, 2, 1, 16) if type_ is None else (TYPE_BYTES.get(type_),)
    return tuple(
        elements * width for width in widths if width is not None and 0 < elements * width < _ADDRESSES
    )
