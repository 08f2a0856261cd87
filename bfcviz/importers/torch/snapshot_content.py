"""SnapshotContent: the parts of a snapshot, checked. Versions of PyTorch differ in keys; no version number is read."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from bfcviz.code_places import CodePlace, is_own, own_place
from bfcviz.errors import FileError
from bfcviz.events.labels import MAX_LABEL_BYTES, Labels
from bfcviz.events.schema import Events
from bfcviz.formats.torch import metadata_text, stack_words
from bfcviz.formats.torch_segments import MAX_ADDRESS, STATES, block_sizes, with_frames
from bfcviz.importers.file_content import TEXT
from bfcviz.importers.heap_state import HEAP_CHUNK, HeapChunks, HeapRegion, events_of_state
from bfcviz.importers.torch.allocation_history import (
    EntrySource,
    TraceRange,
    TraceRows,
    forward_in,
    number_in,
    number_of,
    pool_words,
    words_in,
)

# ------------------------------------------------------------------------------
# SnapshotContent: the parts of a snapshot, checked. Versions of PyTorch differ in keys; no version number is read.

# ruff: noqa: TRY004  all damage in a file is one error, a ValueError


_NEEDED = ("device", "address", "total_size", "blocks")


class Annotation(NamedTuple):
    """The begin or end of a named range of the program.

    `time`: microseconds; `number`: both ends of a range have the same, and no other range has it.
    """

    name: str
    begins: bool
    device: int
    time: int
    number: int


@dataclass
class SnapshotContent:
    """What a snapshot holds.

    Attributes:
        segments: of each device, by ascending address; with the keys of the file.
        traces: of each device that has entries.
        cut_traces: devices whose trace is cut off, or missing because the file is cut off.
        settings: of the allocator.
        annotations: in the order of the file.
        notes: what the snapshot holds that is left out.
    """

    segments: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    traces: dict[int, TraceRange] = field(default_factory=dict)
    cut_traces: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    annotations: list[Annotation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def devices(self) -> list[int]:
        """Numbers of the devices that hold anything, ascending."""
        return sorted({*self.segments, *self.traces})


def content_of(path: object, value: object, cut: str | None) -> SnapshotContent:
    """The parts of what a pickle holds.

    Args:
        path: of the file, for errors.
        value: a dict, or before PyTorch 2.0 a list of segments.
        cut: why the end of the file is missing; `value` is then what is whole.

    Raises:
        FileError: it is no snapshot, its segments are missing, or a part of it is impossible.
    """
    whole = {"segments": value} if isinstance(value, list) else value
    if not isinstance(whole, dict) or not isinstance(whole.get("segments"), list):
        raise FileError(path, "", _why_no_snapshot(whole, cut))
    found = SnapshotContent(cut_traces=cut is not None)
    try:
        for number, segment in enumerate(whole["segments"]):
            device = _checked_segment(number, segment)
            found.segments.setdefault(device, []).append(segment)
        for segments in found.segments.values():
            segments.sort(key=lambda segment: int(segment["address"]))
            _check_segment_overlaps(segments)
        _add_device_traces(found, whole.get("device_traces", []))
        found.annotations += _snapshot_annotations(whole.get("external_annotations", []))
    except ValueError as error:
        raise FileError(path, "", str(error)) from None
    settings = whole.get("allocator_settings")
    found.settings = settings if isinstance(settings, dict) else {}
    if whole.get("host_segments") or any(_list_in_snapshot(whole.get("host_traces"))):
        found.notes.append(
            "memory of the host (host_segments, host_traces) is left out: only devices are shown"
        )
    return found


def _why_no_snapshot(whole: object, cut: str | None) -> str:
    if cut is not None:
        return (
            f"{cut}, before the end of its segments: without them the heap is not known. Copy the file again"
        )
    keys = ", ".join(map(str, whole)) if isinstance(whole, dict) else ""
    holds = f"a dict with the keys {keys[:200]}" if keys else f"a {type(whole).__name__}"
    return (
        f"this pickle holds {holds}, no PyTorch snapshot: that is a dict with segments and device_traces, "
        "which torch.cuda.memory._dump_snapshot writes"
    )


def _checked_segment(number: int, segment: object) -> int:
    """Check one segment and its blocks; returns its device."""
    if not isinstance(segment, dict) or not all(key in segment for key in _NEEDED):
        raise ValueError(f"segment {number} has not all of {', '.join(_NEEDED)}")
    address, size = number_in(segment["address"], "address"), number_in(segment["total_size"], "total_size")
    number_in(segment.get("stream", 0), "stream")
    if not size or address + size > MAX_ADDRESS:
        raise ValueError(f"segment {number} has {size} bytes at {address:#x}, which is no memory")
    at, blocks = address, segment["blocks"]
    if not isinstance(blocks, list):
        raise ValueError(f"segment {number} has blocks that are not a list")
    for place, block in enumerate(blocks):
        at = _checked_block(f"block {place} of segment {number}", block, at)
    if at != address + size:
        raise ValueError(
            f"the blocks of segment {number}, at {address:#x}, have {at - address:,} bytes, the segment {size:,}"
        )
    return number_in(segment["device"], "device")


def _checked_block(what: str, block: object, at: int) -> int:
    """Check a block that begins at `at`; returns where it ends."""
    if not isinstance(block, dict) or not number_in(block.get("size"), f"size of {what}"):
        raise ValueError(f"{what} has no size")
    if block.get("address", at) != at:
        raise ValueError(f"{what} does not begin where the block before it ends")
    state = block.get("state")
    if not isinstance(state, str) or state not in STATES:
        raise ValueError(f"{what} has the unknown state {str(state)[:40]!r}")
    number_in(block.get("requested_size", 0), f"requested_size of {what}")
    return at + int(block["size"])


def _check_segment_overlaps(segments: Sequence[Mapping[str, Any]]) -> None:
    stop = 0
    for segment in segments:
        if segment["address"] < stop:
            raise ValueError(f"the segment at {segment['address']:#x} overlaps the one before it")
        stop = segment["address"] + segment["total_size"]


def _add_device_traces(found: SnapshotContent, traces: object) -> None:
    if isinstance(traces, TraceRange):  # the entries of one device, without the list around them
        traces = [traces]
    for device, trace in enumerate(_list_in_snapshot(traces)):
        if isinstance(trace, TraceRange):
            found.traces[device] = trace
        elif trace:
            raise ValueError(f"the trace of device {device} is no list of entries")


def _snapshot_annotations(entries: object) -> list[Annotation]:
    """The annotations; an end belongs to the newest begin of that name and device."""
    found: list[Annotation] = []
    open_ranges: dict[tuple[str, int], list[int]] = {}
    for entry in _list_in_snapshot(entries):
        if (
            not isinstance(entry, dict)
            or entry.get("stage") not in ("START", "END")
            or "time_us" not in entry
        ):
            continue
        device = number_in(entry.get("device", 0), "device of an annotation")
        time = number_in(entry["time_us"], "time_us of an annotation")
        name, begins = words_in(entry.get("name")), entry["stage"] == "START"
        begun = open_ranges.setdefault((name, device), [])
        number = len(found) + 1 if begins or not begun else begun.pop()
        if begins:
            begun.append(number)
        found.append(Annotation(name, begins, device, time, number))
    return found


def _list_in_snapshot(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# ------------------------------------------------------------------------------
# The state of one device in a snapshot: its chunks, and what it holds in PyTorch's words.

Segment = Mapping[str, Any]


def totals_of(segments: Sequence[Segment], entries: int) -> dict[str, int]:
    """Sums over the blocks, by PyTorch's names; sizes in bytes.

    `active` includes blocks that were freed while another stream may still use them; `allocated` does not.
    """
    blocks = [block for segment in segments for block in segment["blocks"]]
    inactive = [block["size"] for block in blocks if not STATES[block["state"]]]
    active = [block for block in blocks if STATES[block["state"]]]
    return {
        "segments": len(segments),
        "blocks": len(blocks),
        "reserved": sum(segment["total_size"] for segment in segments),
        "allocated": sum(block["size"] for block in active if block["state"] == "active_allocated"),
        "active": sum(block["size"] for block in active),
        "requested": sum(block_sizes(block)[1] for block in active),
        "inactive_blocks": len(inactive),
        "inactive_bytes": sum(inactive),
        "largest_inactive": max(inactive, default=0),
        "trace_entries": entries,
    }


def state_events(
    segments: Sequence[Segment],
    label_of: Callable[[Mapping[str, Any], Segment], int],
    stream_of: Callable[[int], int],
) -> Events:
    """Events that build exactly the blocks of a device.

    Args:
        segments: of the device, by ascending address.
        label_of: the label of a block of a segment.
        stream_of: the number of a stream.
    """
    regions = [HeapRegion(segment["address"], segment["total_size"]) for segment in segments]
    return events_of_state(_snapshot_chunks(segments, label_of, stream_of), regions)


def _snapshot_chunks(
    segments: Sequence[Segment],
    label_of: Callable[[Mapping[str, Any], Segment], int],
    stream_of: Callable[[int], int],
) -> HeapChunks:
    rows = []
    for segment in segments:
        at, stream = segment["address"], stream_of(segment.get("stream", 0))
        for block in segment["blocks"]:
            size, requested = block_sizes(block)
            in_use = STATES[block["state"]]
            rows.append((at, size, requested, label_of(block, segment) if in_use else 0, stream, in_use))
            at += size
    return np.array(rows, HEAP_CHUNK)


# ------------------------------------------------------------------------------
# Names from the code that a frame was generated from, or that a gradient belongs to.

BEFORE: Final = "allocated before the recording began"
"""The name of memory without a stack that is older than the first entry."""

BEFORE_KEPT: Final = "allocated before the entries that were kept"
"""The same, where PyTorch overwrote entries."""

_TRACEBACK_LINE: Final = re.compile(
    r'File "(?P<file>[^"\n]{1,4000})", line (?P<line>\d{1,9}), in (?P<function>[^\n]{1,400})'
)


def places_of_traceback(text: str) -> list[CodePlace]:
    """The places of a Python traceback, which has the innermost last; here it is first."""
    found = [
        CodePlace(line["function"].strip(), line["file"], int(line["line"]))
        for line in _TRACEBACK_LINE.finditer(text)
    ]
    return found[::-1]


def stack_of_traceback(text: str) -> str:
    """A Python traceback as a stack, a frame a line; text of another form as it is."""
    return "\n".join(place.text for place in places_of_traceback(text)) or text.strip()


def _name_beside(lines: list[CodePlace], origin: str, forward: str) -> str:
    """The program's line that generated code was made from, or that a gradient without Python frames belongs to."""
    if compiled := own_place(places_of_traceback(origin)):
        return compiled.name
    place = own_place(places_of_traceback(forward))
    own = own_place(lines)
    return "" if place is None or (own is not None and is_own(own)) else f"gradient of {place.name}"


# ------------------------------------------------------------------------------
# SnapshotLabels: the labels of a snapshot's allocations, each made once.

_LONGEST: Final = MAX_LABEL_BYTES // 8  # JSON escapes a character with up to 6 bytes


class SnapshotLabels:
    """Interns where entries and blocks come from: name, stack, compile context, private pool.

    Args:
        labels: the table.
        rows: has the stacks.
        file_size: bytes; the text of all stacks together has a limit in proportion.
        before: the name of memory without a stack that is older than the first entry.

    Attributes:
        without_stack: labels whose stack was left out, because of the limit.
    """

    def __init__(self, labels: Labels, rows: TraceRows, file_size: int, before: str = BEFORE) -> None:
        self.without_stack = 0
        self._labels = labels
        self._before = before
        self._rows = rows
        self._most = TEXT.most(file_size)
        self._characters = 0
        self._numbers: dict[EntrySource, int] = {}

    def of_block(self, block: Mapping[str, Any], segment: Mapping[str, Any]) -> int:
        """The label of a block in use."""
        return self.of(self._source(block, segment))

    def of_old(self, block: Mapping[str, Any], segment: Mapping[str, Any], name: str = "") -> int:
        """The label of a block that is older than the first entry; `name`: of a later annotation."""
        source = self._source(block, segment)
        metadata = name or source.metadata or ("" if source.stack else self._before)
        return self.of(source._replace(metadata=metadata))

    def _source(self, block: Mapping[str, Any], segment: Mapping[str, Any]) -> EntrySource:
        stack = number_of(with_frames(block).get("frames"))
        metadata, context = metadata_text(block.get("user_metadata")), words_in(block.get("compile_context"))
        pool, forward = pool_words(segment.get("segment_pool_id")), forward_in(block.get("forward_frames"))
        return EntrySource(stack, metadata, context, pool, forward)

    def of_row(self, source: int, pool: str = "", name: str = "") -> int:
        """The label of an entry, by its `TraceRows.source`.

        Args:
            source: its number.
            pool: of its segment, if the entry does not say it.
            name: of a later annotation.
        """
        found = self._rows.sources[source]
        found = found._replace(metadata=name) if name else found
        return self.of(found if found.pool or not pool else found._replace(pool=pool))

    def of(self, source: EntrySource) -> int:
        """The label of a source; 0 if nothing is known of it."""
        known = self._numbers.get(source)
        if known is None:
            known = self._numbers[source] = self._intern(source)
        return known

    def _intern(self, source: EntrySource) -> int:
        metadata, context = source.metadata, source.context
        frames = self._rows.stacks[source.stack]
        lines = [CodePlace(frame.name, frame.filename, frame.line) for frame in frames]
        compiled = next((frame for frame in frames if frame.node or frame.origin), None)
        node, origin = ("", "") if compiled is None else (compiled.node, compiled.origin)
        forward = source.forward
        if not self._fits(lines, metadata, context, node, origin, forward):
            self.without_stack += 1
            lines, node, origin, forward = lines[:1], "", "", ""
            if not self._fits(lines, metadata, context):
                lines, metadata, context = [], "", ""
        name, stack = stack_words(metadata or _name_beside(lines, origin, forward), lines)
        details = {"stack": stack, "compile_context": context, "private_pool": source.pool, "fx_node": node}
        details |= {"fx_code": stack_of_traceback(origin), "forward_stack": stack_of_traceback(forward)}
        details["no_stack"] = name if name == self._before else ""
        details = {key: text for key, text in details.items() if text}
        return self._labels.intern(name, **details) if name or details else 0

    def _fits(self, lines: list[CodePlace], *texts: str) -> bool:
        """Count the characters of a label, if the limits allow them."""
        length = sum(len(line.file) + len(line.function) + 16 for line in lines) + sum(map(len, texts))
        if length > _LONGEST or self._characters + length > self._most:
            return False
        self._characters += length
        return True
