"""One dump as a heap of a trace: its events, its failure and what the log says of it."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.short_names import counted
from bfcviz.events.labels import Labels
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, Pool, RecordedFailure
from bfcviz.events.row_copy import joined
from bfcviz.events.schema import EVENT, MIN_CHUNK, NUM_BINS, Events, Flag, Kind, bin_numbers
from bfcviz.formats.tensorflow import LOG_FAILURES, TYPE_BYTES, round_up
from bfcviz.importers.bfc_log import grammar
from bfcviz.importers.bfc_log.dump import Dump, DumpedHeap, Note, Stage, dumped_heap
from bfcviz.importers.bfc_log.grammar import CENTRAL_GAP, LogRecord, PrintedSize, print_size, printed_size
from bfcviz.importers.heap_state import events_of_state, failed_request
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# Compare the chunk lines of a dump with its own bins, sums and statistics, and say what is missing or wrong.

_OTHER_END: Final = {"lower": "upper", "upper": "lower"}
RERUN: Final = f"run again with {LOG_FAILURES} to get it"


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
    if not dump.failed:
        wrong.append("the log does not say which request failed: the beginning of the dump is missing")
    return DumpFindings(wrong, cut, not cut)


def _findings_without_chunks(dump: Dump) -> DumpFindings:
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


def _lines_left_out(dump: Dump, heap: DumpedHeap) -> list[str]:
    counts = {
        "chunk lines repeat another one": heap.repeated,
        "chunk lines overlap others, as when two processes write into one log": heap.overlapping,
        "chunk lines describe an impossible chunk": dump.chunks.impossible,
        "lines of bins or sizes repeat another one": dump.repeated,
    }
    return [f"{count:,} {what}; they were left out" for what, count in counts.items() if count]


def _region_gap_findings(heap: DumpedHeap) -> list[str]:
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


def _two_end_contradictions(dump: Dump, heap: DumpedHeap) -> list[str]:
    """What XLA's summary of a heap with two ends says otherwise."""
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
    """Bytes of the largest free chunk that has none of these tags; 0 if there is none."""
    notes = [note for (_, tag), note in dump.chunks.notes.items() if tag in without]
    free = ~heap.chunks["in_use"] & ~np.isin(heap.chunks["label"], notes)
    return int(heap.chunks["size"][free].max(initial=0))


def _by_bin(sizes: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> Counter[int]:
    """Number of chunks by the smallest size of their bin."""
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


@dataclass(frozen=True)
class FailedPool:
    """One heap of the trace.

    Attributes:
        pool: its name, limit and options.
        events: as for `one_after_another`; the OOM event, if any, is the last one.
        failure: what the log says of the failed request, with 0 for its event; None if none is known.
        findings: what is wrong with the dump.
        facts, totals: entries of `Origin.details`.
        stats: the statistics as printed.
    """

    pool: Pool
    events: Events
    failure: RecordedFailure | None
    findings: DumpFindings
    facts: dict[str, Any]
    totals: dict[str, int]
    stats: dict[str, str]


def failed_pool(dump: Dump, name: str, number: int, notes: list[Note], labels: Labels) -> FailedPool:
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
    free_bytes = int(heap.free_sizes.sum()) if known else 0
    other_end = [_OTHER_END[dump.end]] if dump.end in _OTHER_END else []  # the request gets none of its holes
    largest = _largest_free(dump, heap, other_end) if known else 0
    logs = [_marks_before_failure(notes, labels), _failed_pool_state(dump, heap, labels)]
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


def _marks_before_failure(notes: list[Note], labels: Labels) -> Events:
    marks: Events = np.zeros(len(notes), EVENT)
    marks["kind"], marks["bin"] = Kind.MARK, -1
    for mark, note in zip(marks, notes, strict=True):
        mark["label"], mark["size"], mark["time"] = labels.intern(note.text), note.size, note.time or 0
    return marks


def _failed_pool_state(dump: Dump, heap: DumpedHeap, labels: Labels) -> Events:
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
    """Bytes of the request: the best that the log says; 0 if nothing."""
    if dump.exact is not None:
        return dump.exact
    if dump.requested is not None and dump.requested.is_exact:
        return dump.requested.value
    if dump.rounded is not None:
        return min(dump.rounded, _MOST)
    printed = dump.requested or dump.bin_for
    return 0 if printed is None else printed.value


def _in_use_requested(dump: Dump) -> int | None:
    lines = dump.bins.values()
    if len(lines) < NUM_BINS or any(line.only_free for line in lines):
        return None
    return min(_MOST, sum(line.requested.value for line in lines))


def _failed_pool_limit(dump: Dump, heap: DumpedHeap) -> int | None:
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
    """Numbers that the events cannot give; the chunk lines never say what was requested for each chunk."""
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

_BEYOND: Final = 1 << 63
_LONGEST: Final = 1000  # characters of a message


class AllocationError(NamedTuple):
    """An error message about memory.

    Attributes:
        line, time, writer: of its record.
        name: of the allocator, "" where it does not say it.
        sizes: bytes of the request that the message allows; more than one where it does not say the type.
        printed: the size as printed, None where it gives a tensor.
        tensor: shape and type.
        op: the node of the graph.
        text: the message.
    """

    line: int
    time: int | None
    writer: str
    name: str
    sizes: tuple[int, ...]
    printed: PrintedSize | None
    tensor: str
    op: str
    text: str


def attach_errors(dumps: list[Dump], texts: list[tuple[int, LogRecord]]) -> list[Dump]:
    """Put what the errors say into the dumps; returns these and a `Dump` for each error without one, in order.

    There are no new ones after the first `MAX_POOLS`.

    Args:
        dumps: changed in place.
        texts: as `DumpCollector.texts`.
    """
    found: list[Dump] = []
    taken = 0
    for count, record in texts:
        found += dumps[taken:count]
        taken = count
        for error in _allocation_errors_in(record):
            if not _attach_error_to_dump(found, error) and len(found) <= MAX_POOLS:
                found.append(_dump_of_lone_error(error))
    return found + dumps[taken:]


def _attach_error_to_dump(dumps: list[Dump], error: AllocationError) -> bool:
    """Attach an error to the last dump that it fits; returns whether it tells of a known failure."""
    fitting = [dump for dump in reversed(dumps[-_RECENT:]) if _is_error_of_dump(dump, error)]
    for dump in fitting:
        if error.tensor and dump.tensor == error.tensor:
            return True
        if error.printed is not None and error.printed.is_exact and dump.exact == error.printed.value:
            return True
        exact = _agreed_request_size(dump, error)
        if exact is not None or (error.printed is not None and _dump_prints_size(dump, error.printed)):
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
    same_name = not (dump.name and error.name) or dump.name == error.name
    return same_name and (not (dump.writer and error.writer) or dump.writer == error.writer)


def _agreed_request_size(dump: Dump, error: AllocationError) -> int | None:
    """The size that message and dump agree on; None if they do not."""
    if dump.tensor and error.tensor:
        return None
    for size in error.sizes:
        rounded = round_up(size)
        if dump.rounded not in {None, rounded, size}:
            continue
        printed = dump.requested or dump.bin_for
        if printed is None and dump.ended and not dump.failed and len(error.sizes) == 1:
            return size  # of the dump just before it, whose beginning is missing
        if printed is not None and (
            printed.means(size) or (dump.requested is None and printed.means(rounded))
        ):
            return size
    return None


def _dump_prints_size(dump: Dump, printed: PrintedSize) -> bool:
    return printed.text in {size.text for size in (dump.requested, dump.bin_for) if size is not None}


def _describe_dump_by_error(dump: Dump, error: AllocationError) -> None:
    dump.tensor, dump.op = dump.tensor or error.tensor, dump.op or error.op
    dump.name = dump.name or error.name
    dump.message = error.text


def _dump_of_lone_error(error: AllocationError) -> Dump:
    dump = Dump(error.line, error.time, error.name, error.writer, has_warning=True, requested=error.printed)
    if len(error.sizes) == 1:
        dump.exact = error.sizes[0]
        dump.requested = printed_size(print_size(dump.exact))
    _describe_dump_by_error(dump, error)
    return dump


def _allocation_errors_in(record: LogRecord) -> Iterator[AllocationError]:
    """The errors in one record, without those that repeat the one before."""
    last = None
    for found in _ERROR.finditer(record.message):
        line = record.line + record.message.count("\n", 0, found.start())
        rest = record.message[found.start() : found.start() + 2 * _LONGEST]
        node = grammar.NODE.search(rest)
        op = "" if node is None else node[1] or node[2]
        text = " ".join(re.split(r"[\n\r]", rest, maxsplit=1)[0].split())[:_LONGEST]
        parts = found.groupdict()
        if parts["size"]:
            printed = printed_size(parts["size"])
            if printed is None:
                continue
            sizes: tuple[int, ...] = (printed.value,) if printed.is_exact else ()
            error = AllocationError(line, record.time, record.writer, "", sizes, printed, "", op, text)
        else:
            tensor = _error_tensor_text(parts["shape"], parts["type"])
            sizes = _error_tensor_bytes(parts["shape"], parts["type"])
            name = parts["name"] or ""
            error = AllocationError(line, record.time, record.writer, name, sizes, None, tensor, op, text)
        key = (error.sizes, error.printed, error.tensor, error.name)
        if key != last:
            yield error
        last = key


_ERROR: Final = re.compile(rf"{grammar.OOM_TENSOR.pattern}|{grammar.OUT_OF_BYTES.pattern}")


def _error_tensor_text(shape: str, type_: str | None) -> str:
    shape = "[" + ",".join(shape.replace(",", " ").split()) + "]"
    return f"{type_} {shape}" if type_ else shape


def _error_tensor_bytes(shape: str, type_: str | None) -> tuple[int, ...]:
    """Bytes of a tensor of this shape; without a type those of every element size, the usual one first."""
    elements = prod(int(number[:19]) for number in shape.replace(",", " ").split())
    widths = (4, 8, 2, 1, 16) if type_ is None else (TYPE_BYTES.get(type_),)
    return tuple(elements * width for width in widths if width is not None and 0 < elements * width < _BEYOND)


# ------------------------------------------------------------------------------
# The buffers at the peak of an XLA program, which XLA and JAX print after a failed request (`BufferAssignment`).

_BEGIN: Final = "BufferAssignment OOM Debugging."
_ROW: Final = re.compile(
    r"(parameter|constant|maybe_live_out|preallocated temp|total) (allocation|fragmentation):[ \t]{1,40}(\S{1,40})"
)
_BUFFER: Final = re.compile(r"\bBuffer \d{1,9}:")
_FIELD: Final = re.compile(
    r"(Size|XLA Label|Entry Parameter Subshape|Shape|op_name|source_file|source_line)[:=][ \t]{0,4}"
    r"(\"[^\"\n\r]{0,1000}\"|[^\n\r]{1,1000})"
)
_NAMES: Final = {"Size": "size", "XLA Label": "label", "Shape": "shape", "Entry Parameter Subshape": "shape"}
_MOST_TABLES, _MOST_BUFFERS, _LONGEST_NAME = 16, 200, 1 << 20


def buffer_tables(text: str) -> list[dict[str, Any]]:
    """The tables in a text, without repetitions, as JSON values.

    Each has `stats`, sizes as printed by their name, and `buffers`, a list of mappings: `size`, `op_name`,
    `source_file`, `source_line`, `label` and `shape`, as far as they are printed.
    """
    tables: list[dict[str, Any]] = []
    begin = text.find(_BEGIN)
    while begin >= 0 and len(tables) < _MOST_TABLES:
        end = text.find(_BEGIN, begin + 1)
        table = _peak_buffer_table(
            text[begin : min(end, begin + _LONGEST_NAME) if end >= 0 else begin + _LONGEST_NAME]
        )
        if table not in tables:
            tables.append(table)
        begin = end
    return tables


def _peak_buffer_table(text: str) -> dict[str, Any]:
    stats_text, _, buffers_text = text.partition("Peak buffers:")
    stats = {f"{what} {kind}": size for what, kind, size in _ROW.findall(stats_text)}
    starts = [found.end() for found in _BUFFER.finditer(buffers_text)][:_MOST_BUFFERS]
    stops = [*starts[1:], len(buffers_text)]
    return {
        "stats": stats,
        "buffers": [
            _peak_buffer_fields(buffers_text[start:stop]) for start, stop in zip(starts, stops, strict=False)
        ],
    }


def _peak_buffer_fields(text: str) -> dict[str, str]:
    fields = _FIELD.findall(text.partition("=====")[0])
    return {_NAMES.get(name, name): value.strip().strip('"').split('" ')[0] for name, value in fields}
