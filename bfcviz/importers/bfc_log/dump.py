"""One failed request of a log, with the dump of the heap that belongs to it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin import MAX_POOLS
from bfcviz.events.row_copy import joined, taken
from bfcviz.formats.tensorflow import UNIT
from bfcviz.importers.bfc_log import grammar
from bfcviz.importers.bfc_log.grammar import BFC_ALLOCATOR, LogRecord, PrintedSize, printed_size
from bfcviz.importers.heap_state import HEAP_CHUNK, HeapChunks, HeapRegion

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


class BinLine(NamedTuple):
    """A line of one bin. Until 2017 (`only_free`) its counts are those of free chunks."""

    chunks: int
    used: int
    size: PrintedSize
    requested: PrintedSize
    only_free: bool


@dataclass
class ChunkLines:
    """The chunk lines of a dump, in the order of the file: one element of each list a line.

    Attributes:
        region: index of the region line before it, -1 before the first one.
        note: index in `notes`.
        notes: operation and tag of chunks; the first is none.
        impossible: lines whose chunk is empty or ends beyond the address space.
    """

    address: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    in_use: list[bool] = field(default_factory=list)
    region: list[int] = field(default_factory=list)
    note: list[int] = field(default_factory=list)
    notes: dict[tuple[str, str], int] = field(default_factory=lambda: {("", ""): 0})
    impossible: int = 0


@dataclass
class Dump:
    """What a log says of one failed request.

    Attributes:
        line, time: of its first record.
        name: of the allocator; "" where the log does not say it.
        writer: tag of the process.
        requested: as the warning prints it; None without a warning.
        rounded: the request after rounding, exact.
        exact: the request, exact.
        op, tensor, message: as in `RecordedFailure`.
        stage: of the last line.
        bins: by the smallest size of the bin.
        bin_for: the rounded request, as printed in the dump.
        regions: size of each region, by ascending address.
        summary: number of chunks in use by size.
        sum_in_use: their total.
        pool, limit, available, next_region: of the line about the pool, or of the statistics.
        growth: whether the pool may grow; None: unknown.
        stats: the statistics as printed.
        strip: the occupancy.
        end: that the failed request asked for, `lower` or `upper`; "" where the log does not say it.
        spatial: the free memory of a heap that serves requests from both ends, as the log sums it up.
        has_warning: whether a request failed; otherwise the log shows a heap for another reason, or its start is lost.
        repeated: lines of bins and sizes that occur twice.
    """

    line: int
    time: int | None
    name: str = ""
    writer: str = ""
    requested: PrintedSize | None = None
    rounded: int | None = None
    exact: int | None = None
    op: str = ""
    tensor: str = ""
    message: str = ""
    stage: Stage = Stage.HEADER
    bins: dict[int, BinLine] = field(default_factory=dict)
    bin_for: PrintedSize | None = None
    regions: list[int] = field(default_factory=list)
    chunks: ChunkLines = field(default_factory=ChunkLines)
    summary: dict[int, int] = field(default_factory=dict)
    sum_in_use: PrintedSize | None = None
    pool: PrintedSize | None = None
    limit: PrintedSize | None = None
    available: PrintedSize | None = None
    next_region: PrintedSize | None = None
    growth: bool | None = None
    end: str = ""
    spatial: "SpatialSummary | None" = None
    stats: dict[str, PrintedSize] = field(default_factory=dict)
    strip: str = ""
    has_warning: bool = False
    repeated: int = 0

    @property
    def ended(self) -> bool:
        """Whether the end of the dump is in the log."""
        return self.stage >= Stage.STATS

    @property
    def failed(self) -> bool:
        """Whether the log says that a request failed here."""
        return self.has_warning or self.bin_for is not None or self.exact is not None or bool(self.tensor)


class SpatialSummary(NamedTuple):
    """The central gap, the largest hole of the end of the request, and the largest one of any end."""

    gap: PrintedSize
    same_end: PrintedSize
    any_end: PrintedSize


class Note(NamedTuple):
    """A line beside the dumps: a request that may fail, a garbage collection, a refusal of the driver.

    Attributes:
        line, time: of the record.
        name: of the allocator, "" where the line does not say it.
        text: what happened.
        size: bytes, 0 where there are none.
        before: number of the dump that begins next.
    """

    line: int
    time: int | None
    name: str
    writer: str
    text: str
    size: int
    before: int


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
    for name, column in (("address", lines.address), ("size", lines.size), ("label", lines.note)):
        chunks[name] = column
    chunks["requested"], chunks["in_use"] = chunks["size"], lines.in_use
    order = np.argsort(chunks["address"], kind="stable")
    chunks, slots = taken(chunks, order), np.array(lines.region, np.int64)[order]
    kept = _without_repeated_chunks(chunks)
    repeated = count - int(kept.sum())
    chunks, slots = taken(chunks, kept), slots[kept]
    kept = _without_overlapping_chunks(chunks)
    overlapping = len(kept) - int(kept.sum())
    chunks, slots = taken(chunks, kept), slots[kept]
    if _lists_only_use(dump, chunks):
        chunks, assumed = _with_gaps(chunks)
        slots = np.full(len(chunks), -1)
        return DumpedHeap(chunks, _dumped_regions(chunks, slots), repeated, overlapping, assumed)
    regions = _dumped_regions(chunks, slots)
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


def _without_repeated_chunks(chunks: HeapChunks) -> NDArray[np.bool_]:
    kept = np.ones(len(chunks), np.bool_)
    address: NDArray[np.uint64] = chunks["address"]
    size: NDArray[np.uint64] = chunks["size"]
    kept[1:] = (address[1:] != address[:-1]) | (size[1:] != size[:-1])
    return kept


def _without_overlapping_chunks(chunks: HeapChunks) -> NDArray[np.bool_]:
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


def _dumped_regions(chunks: HeapChunks, slots: NDArray[np.int64]) -> list[HeapRegion]:
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


class DumpCollector:
    """Takes records in the order of the log.

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
        self._by_first_word: dict[str, Callable[[LogRecord], bool]] = {
            "Allocator": self._header,
            "Ran": self._header,
            "Garbage": self._garbage_collection,
            "BFCAllocator": self._dump_for,
            "Bin": self._bin,
            "Next": self._region,
            "Summary": self._summary_begins,
            "Sum": self._sum,
            "Spatial": self._spatial,
            "total_region_allocated_bytes_": self._pool,
            "Total": self._pool,
            "Stats": self._stats,
        }

    def take_all(self, records: Iterable[LogRecord]) -> None:
        """Take every record of a log."""
        for record in records:
            if record.file not in {BFC_ALLOCATOR, ""} or not self._take_line(record):
                self._take_text(record)

    def _take_line(self, record: LogRecord) -> bool:
        """Take a line of the allocator; returns whether it is one."""
        message = record.message
        if grammar.CHUNK.match(message) is not None:
            self._chunks(record)
            return True
        word = _FIRST_WORD.match(message)
        if word is None:
            return self._strip(record)
        if word[1].isdecimal():
            return self._summary(record)
        take = self._by_first_word.get(word[1], self._strip)
        return take(record)

    def _take_text(self, record: LogRecord) -> None:
        refused = grammar.REFUSED.search(record.message)
        if refused is not None:
            self._note(record, "", "the device had no memory for a region", int(refused["bytes"]))
        if not self.left_out and ("memory" in record.message or "OOM" in record.message):
            self.texts.append((len(self.dumps), record))

    def _new(self, record: LogRecord) -> Dump:
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

    def _header(self, record: LogRecord) -> bool:
        found = grammar.HEADER.match(record.message) or grammar.LATE_HEADER.match(record.message)
        size = None if found is None else printed_size(found["size"])
        if found is None or size is None:
            return self._pool(record) or self._growth(record)
        parts = found.groupdict()
        name, rounded = parts.get("name") or "", parts.get("rounded")
        if grammar.NOT_A_FAILURE.search(record.message):
            self._note(record, name, f"a request for {size.text} found no memory (not a failure)", size.value)
            return True
        dump = self._of_late_header(record) if not name else None
        dump = dump or self._new(record)
        dump.has_warning, dump.requested = True, size
        dump.name = name or dump.name
        dump.rounded = None if rounded is None else int(rounded)
        dump.message = " ".join(record.message.split("\n", 1)[0].split())[:_LONGEST]
        op = grammar.REQUESTED_BY.search(record.message)
        dump.op = "" if op is None else op["op"].partition(".  Current allocation")[0].strip()
        return True

    def _of_late_header(self, record: LogRecord) -> Dump | None:
        """The dump that ended just before its warning, as until 2017."""
        dump = self._open.get((record.writer, record.thread))
        if dump is None or dump.has_warning or dump.stage is Stage.HEADER:
            return None
        if dump.time is None or record.time is None or 0 <= record.time - dump.time < _SOON:
            dump.stage = Stage.STRIP
            return dump
        return None

    def _note(self, record: LogRecord, name: str, text: str, size: int) -> None:
        self.notes.append(Note(record.line, record.time, name, record.writer, text, size, len(self.dumps)))

    def _garbage_collection(self, record: LogRecord) -> bool:
        if not grammar.GARBAGE_COLLECTION.match(record.message):
            return False
        self._note(record, "", "garbage collection: free regions are returned", 0)
        return True

    def _dump_for(self, record: LogRecord) -> bool:
        found = grammar.DUMP_FOR.match(record.message)
        if found is None:
            return False
        dump = self._current(record, Stage.HEADER)
        if dump.stage > Stage.HEADER or dump.name not in {"", found["name"]}:
            dump = self._new(record)
        dump.name = found["name"]
        return True

    def _bin(self, record: LogRecord) -> bool:
        found = grammar.BIN.match(record.message)
        if found is None:
            return self._bin_for(record)
        bytes_, requested = printed_size(found["bytes"]), printed_size(found["requested"])
        if bytes_ is None or requested is None:
            return False
        size = int(found["bin"])
        dump = self._current(record, Stage.BINS)
        if size == UNIT and (len(dump.bins) > 1 or dump.stage > Stage.BINS):
            dump = self._new(record)
            dump.stage = Stage.BINS
        dump.repeated += size in dump.bins
        line = BinLine(int(found["chunks"]), int(found["used"]), bytes_, requested, found["old"] is not None)
        dump.bins.setdefault(size, line)
        return True

    def _bin_for(self, record: LogRecord) -> bool:
        found = grammar.BIN_FOR.match(record.message)
        if found is None:
            return False
        self._current(record, Stage.BINS).bin_for = printed_size(found["size"])
        return True

    def _region(self, record: LogRecord) -> bool:
        found = grammar.REGION.match(record.message)
        if found is None:
            return False
        self._current(record, Stage.CHUNKS).regions.append(int(found["size"]))
        return True

    def _chunks(self, record: LogRecord) -> None:
        """Take the chunk lines of one record: one, or a run of them."""
        dump = self._current(record, Stage.CHUNKS)
        lines, region = dump.chunks, len(dump.regions) - 1
        for word, address_text, size_text, tag, op, annotation in grammar.CHUNK.findall(record.message):
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

    def _summary(self, record: LogRecord) -> bool:
        found = grammar.SUMMARY.match(record.message)
        if found is None:
            return False
        dump, size = self._current(record, Stage.SUMMARY), int(found["size"])
        dump.repeated += size in dump.summary
        dump.summary.setdefault(size, int(found["count"]))
        return True

    def _sum(self, record: LogRecord) -> bool:
        found = grammar.SUM.match(record.message)
        if found is None:
            return False
        self._current(record, Stage.SUMMARY).sum_in_use = printed_size(found["size"])
        return True

    def _summary_begins(self, record: LogRecord) -> bool:
        self._current(record, Stage.SUMMARY)
        return True

    def _pool(self, record: LogRecord) -> bool:
        found = grammar.POOL.match(record.message) or grammar.MEMORY_SUMMARY.match(record.message)
        if found is None:
            return False
        dump = self._current(record, Stage.SUMMARY)
        dump.pool, dump.limit = printed_size(found["pool"]), printed_size(found["limit"])
        dump.available = printed_size(found["available"])
        dump.end = found.groupdict().get("end") or ""
        following = found.groupdict().get("next")
        dump.next_region = None if following is None else printed_size(following)
        return True

    def _spatial(self, record: LogRecord) -> bool:
        found = grammar.SPATIAL.match(record.message)
        if found is None:
            return False
        sizes = [printed_size(found[name]) for name in SpatialSummary._fields]
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            dump = self._current(record, Stage.SUMMARY)
            dump.end, dump.spatial = found["end"], SpatialSummary(*known)
        return True

    def _growth(self, record: LogRecord) -> bool:
        found = grammar.GROWTH.search(record.message)
        if found is not None:
            self._current(record, Stage.SUMMARY).growth = found["growth"] == "enabled"
        return found is not None

    def _stats(self, record: LogRecord) -> bool:
        dump = self._current(record, Stage.STATS)
        for name, text in grammar.STAT.findall(record.message):
            size = printed_size(text)
            if size is not None:
                dump.stats.setdefault(name, size)
        return True

    def _strip(self, record: LogRecord) -> bool:
        found = grammar.STRIP.match(record.message)
        if found is None:
            return False
        dump = self._open.get((record.writer, record.thread))
        if dump is None or dump.stage is not Stage.STATS:
            dump = self._current(record, Stage.STRIP)
        dump.stage, dump.strip = Stage.STRIP, found[1]
        return True
