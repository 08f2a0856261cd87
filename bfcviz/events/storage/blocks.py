"""Blocks of events as bytes, and files of them: about 3 bytes an event instead of 64, without a loss.

::

    section   [ header 72 | index | keyframe | payload ]      of EVENTS; of LABELS and ORIGIN: [ header | payload ]
    file      [ EVENTS ][ EVENTS ] ... [ LABELS ][ ORIGIN ]   only ever appended to

    payload   directory: of the masks and of each field's residuals, how many and how many bytes each; then, of each,
              all lowest bytes, all second bytes, ..., each packed with zstd

A block is decoded alone: it names what it needs of earlier ones. `block_codec` says what masks and residuals are. A
header has a checksum of its own, so that a reader finds the sections behind a damaged one; the checksum of the events
is that of the records themselves, so it proves that they came back bit for bit. `index` and `keyframe` are bytes for
the model: what it needs of all blocks at once, and the state before the first event.
"""

import os
import struct
import sys
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from bfcviz.errors import FileError
from bfcviz.events.event_source import GroupSource, Source
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_ORIGIN_BYTES, Origin, origin_from_json
from bfcviz.events.schema import Events
from bfcviz.events.storage.block_codec import CODED, MOST_EVENTS, DamagedBlock, EventCodec
from bfcviz.events.storage.files import OpenFile, end_of_hole, next_header, reading_file
from bfcviz.events.storage.label_file import MAX_LABELS_TEXT, pack_labels, unpack_labels
from bfcviz.events.structured_arrays import copied, joined

MAGIC: Final = b"\x89BFCviz\n"
EVENTS, LABELS, ORIGIN = 1, 2, 3

HEADER: Final = struct.Struct("<8sII QQQ QQQ II")
"""Magic, kind, rows of the codec; first step, events, checksum; bytes of index, keyframe, payload; 0, CRC."""

_STREAMS: Final = 1 + len(CODED)

_LEAST_PAYLOAD: Final = 8 * _STREAMS
_MOST_BYTES_AN_EVENT: Final = 8 * _STREAMS
_MOST_OVERHEAD: Final = 1 << 16
_MOST_INDEX: Final = 1 << 24
_MOST_INDEXES: Final = 1 << 29
_MOST_KEYFRAME: Final = 1 << 28
_MOST_TEXT: Final = {LABELS: MAX_LABELS_TEXT, ORIGIN: MAX_ORIGIN_BYTES}
_MOST_UNKNOWN: Final = 1 << 31
"""Bytes of the parts of a section. Each part is read whole, and a file with holes can claim any size for nothing."""

_MOST_STEP: Final = 1 << 56
"""Times the bytes of a record, it is still a place in a file."""


class Section(NamedTuple):
    """A section of a file of blocks, as its header says it.

    Attributes:
        start: of the header in the file, in bytes.
        kind: EVENTS, LABELS or ORIGIN.
        first: the step before its first event.
        events: how many it has.
    """

    start: int
    kind: int
    rows: int
    first: int
    events: int
    checksum: int
    index_bytes: int
    keyframe_bytes: int
    payload_bytes: int

    @property
    def index_at(self) -> int:
        """Where the index of a block begins in the file, in bytes."""
        return self.start + HEADER.size

    @property
    def keyframe_at(self) -> int:
        """Where the keyframe of a block begins in the file."""
        return self.index_at + self.index_bytes

    @property
    def payload_at(self) -> int:
        """Where the payload of a block begins in the file."""
        return self.keyframe_at + self.keyframe_bytes

    @property
    def end(self) -> int:
        """Where the section after a block begins in the file."""
        return self.payload_at + self.payload_bytes

    @property
    def stop(self) -> int:
        """The step after the last event of a block."""
        return self.first + self.events


def section(kind: int, payload: bytes) -> bytes:
    """A section of a file of blocks without events: the labels, or the origin."""
    return _section_header(Section(0, kind, 0, 0, 0, zlib.crc32(payload), 0, 0, len(payload))) + payload


def event_section(codec: EventCodec, events: Events, index: bytes = b"", keyframe: bytes = b"") -> bytes:
    """A block of events as a section: 1 to MOST_EVENTS of them, in order.

    Args:
        codec: kept by the caller, who encodes many.
        events: shape (n,), dtype EVENT; the `seq` of the first says where they belong.
        index: what the model needs of all sections at once.
        keyframe: the state before the first event; empty: not stored here. One that readers refuse as too large is
            left out: they find the state from an earlier one.
    """
    keyframe = keyframe if is_keyframe_stored(keyframe) else b""
    events = events if events.flags.c_contiguous else copied(events)
    rows, masks, residuals, checksum = codec.encode(events)
    payload = _packed_block_streams([masks, *residuals])
    first = int(events["seq"][0])
    found = Section(0, EVENTS, rows, first, len(events), checksum, len(index), len(keyframe), len(payload))
    return b"".join([_section_header(found), index, keyframe, payload])


def is_keyframe_stored(keyframe: bytes) -> bool:
    """Whether the section of a block stores its keyframe: there is one, and it is not too large."""
    return 0 < len(keyframe) <= _MOST_KEYFRAME


def decoded(codec: EventCodec, found: Section, payload: bytes) -> Events:
    """The events of a block's section.

    Raises:
        DamagedBlock: the payload is damaged.
    """
    try:
        masks, *residuals = _unpacked_block_streams(payload, found.events)
        return codec.decode(found.rows, masks.astype(np.uint16), residuals, found.checksum)
    except DamagedBlock:
        raise
    except (zstd.ZstdError, ValueError, EOFError, struct.error) as error:
        raise DamagedBlock(f"cannot be decoded: {error}") from error


def _section_header(found: Section) -> bytes:
    data = HEADER.pack(MAGIC, *found[1:], 0, 0)[:-4]
    return data + struct.pack("<I", zlib.crc32(data))


def _section_at(data: bytes, start: int) -> Section | None:
    """The section of a block whose header is `data`; None if it is damaged, or no header."""
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        return None
    *fields, _, check = HEADER.unpack(data[: HEADER.size])
    if check != zlib.crc32(data[: HEADER.size - 4]):
        return None
    found = Section(start, *fields[1:])
    return found if found.first < _MOST_STEP and _has_possible_sizes(found) else None


def _has_possible_sizes(found: Section) -> bool:
    """Whether each part of a block has a size that a writer gives it, for so many events."""
    if found.kind == EVENTS:
        most = _MOST_BYTES_AN_EVENT * found.events + _MOST_OVERHEAD
        return (
            0 < found.events <= MOST_EVENTS
            and _LEAST_PAYLOAD <= found.payload_bytes <= most
            and found.index_bytes <= _MOST_INDEX
            and found.keyframe_bytes <= _MOST_KEYFRAME
        )
    most = _MOST_TEXT.get(found.kind, _MOST_UNKNOWN)
    return found.payload_bytes <= most and not (found.events or found.index_bytes or found.keyframe_bytes)


# ------------------------------------------------------------------------------
# Columns of numbers as planes of bytes.


def _packed_block_streams(streams: list[NDArray[np.unsignedinteger]]) -> bytes:
    directory, planes = [], []
    for stream in streams:
        width = (int(stream.max(initial=0)).bit_length() + 7) // 8
        directory += [len(stream), width]
        table = stream.view(np.uint8).reshape(len(stream), stream.itemsize)
        planes += [zstd.compress(table[:, i].tobytes(), level=1) for i in range(width)]
    numbers = [*directory, *map(len, planes)]
    return b"".join([struct.pack(f"<{len(numbers)}I", *numbers), *planes])


def _unpacked_block_streams(payload: bytes, count: int) -> list[NDArray[np.uint64]]:
    """The streams of a payload in a file of blocks, at most `count` numbers each; undoes `_packed_block_streams`.

    Raises: errors of struct and zstd.
    """
    directory = struct.unpack_from(f"<{2 * _STREAMS}I", payload)
    counts, widths = directory[::2], directory[1::2]
    if counts[0] != count or max(counts) > count or max(widths) > 8:
        raise DamagedBlock(f"has an impossible directory for {count} events")
    lengths = struct.unpack_from(f"<{sum(widths)}I", payload, 8 * _STREAMS)
    place = 8 * _STREAMS + 4 * len(lengths)
    streams, planes = [], iter(lengths)
    for size, width in zip(counts, widths, strict=True):
        table = np.zeros((size, 8), np.uint8)
        for i in range(width if size else 0):
            length = next(planes)
            data = payload[place : place + length]
            table[:, i] = np.frombuffer(zstd.ZstdDecompressor().decompress(data, size), np.uint8, size)
            place += length
        streams.append(table.view(np.uint64).reshape(size))
    return streams


# ------------------------------------------------------------------------------
# Find the sections of a file.


def sections_of(file: OpenFile, start: int = 0) -> Iterator[Section]:
    """The whole sections of a file of blocks from byte `start` on; reads their headers only.

    Where a header is damaged the next good one is searched. An incomplete section at the end is left out.
    """
    size = os.fstat(file.fd).st_size
    return (found for found in _intact_sections(file, start, size) if found.end <= size)


def append_place(file: OpenFile, start: int) -> int:
    """Where a block can be appended: the end of the file, or where one begins that was not written to its end."""
    size = os.fstat(file.fd).st_size
    return next((found.start for found in _intact_sections(file, start, size) if found.end > size), size)


def _intact_sections(file: OpenFile, start: int, size: int) -> Iterator[Section]:
    while start + HEADER.size <= size:
        found = _section_at(file.read_at(start, HEADER.size), start)
        if found is None:
            start = next_header(file, start + 1, MAGIC, HEADER.size, _is_section)
        else:
            yield found
            start = found.end


def _is_section(header: bytes) -> bool:
    return _section_at(header, 0) is not None


# ------------------------------------------------------------------------------
# A whole trace as one file of sections.

Describe = Callable[[Events], tuple[bytes, bytes]]
"""Given the events of each block in order, returns its index, and the state before it (empty: none is stored)."""

LEAST_BLOCK: Final = 256
MANY_BLOCKS: Final = 1024
"""A file with more blocks must have `LEAST_BLOCK` events in each on average: each takes memory when it is opened."""


def write_blocks(source: Source, path: Path, describe: Describe | None) -> None:
    """Write the trace that `source` reads as a file of blocks to `path`, which the caller makes and removes.

    Raises:
        OSError: it cannot be written.
        TraceError: there are too many labels for one file.
    """
    codec, length = EventCodec(), source.length  # a recording in progress may grow meanwhile
    with path.open("wb") as file:
        for start in range(source.first, length, MOST_EVENTS):
            events = source.read(start, min(start + MOST_EVENTS, length))
            if describe is None:
                index, keyframe = b"", _kept_block_keyframe(source, start)
            else:
                index, keyframe = describe(events)
            file.write(event_section(codec, events, index, keyframe))
        file.write(section(LABELS, pack_labels(source.labels).encode()))
        more = {"events": length, "labels": len(source.labels), "first": source.first}
        file.write(section(ORIGIN, source.origin.to_json(**more).encode()))


def _kept_block_keyframe(source: Source, step: int) -> bytes:
    known = source.keyframe_before(step) if step else None
    return known[1] if known is not None and known[0] == step else b""


class _BlockReader:
    """Reads the parts of known blocks: in the order of their events, None for damaged ones."""

    path: Path
    _file: OpenFile
    _codec: EventCodec
    _sections: Sequence[Section | None]

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        """The last keyframe at or before `step` in a file of blocks.

        Raises:
            FileError: a drain has freed it since the sections were looked for.
        """
        for each in reversed(self._sections):
            if each is not None and each.first <= step and each.keyframe_bytes:
                with reading_file(self.path):
                    state = self._file.read_at(each.keyframe_at, each.keyframe_bytes)
                if each.start < end_of_hole(self._file.fd):
                    place = f"the state at step {each.first}"
                    raise FileError(self.path, place, "is no longer kept: only the newest are")
                return each.first, state
        return None

    def index_entries(self) -> list[bytes] | None:
        """The index of each block; None where one has none, or where they are too large."""
        sections = self._sections  # `refresh`, in another thread, may replace the list
        found = [each for each in sections if each is not None and each.index_bytes]
        if len(found) < len(sections) or sum(each.index_bytes for each in found) > _MOST_INDEXES:
            return None
        with reading_file(self.path):
            return [self._file.read_at(each.index_at, each.index_bytes) for each in found]

    def _events_of(self, found: Section) -> Events:
        """The events of a block's section. Raises FileError."""
        with reading_file(self.path):
            payload = self._file.read_at(found.payload_at, found.payload_bytes)
        try:
            return decoded(self._codec, found, payload)
        except DamagedBlock as error:
            place = f"events {found.first} to {found.stop}"
            raise FileError(self.path, place, f"the block {error}") from error


class BlockSource(_BlockReader, GroupSource):
    """The events of a file of blocks; opening reads headers, labels and origin.

    Raises:
        FileError: the file is not one of ours, or its end is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._codec = EventCodec()
        with reading_file(path):
            self._file = OpenFile(path)
            found = _limited_block_sections(path, sections_of(self._file))
        origin, more = self._origin(found)
        labels = self._read_labels(found)
        first, end = more.get("first"), more.get("events")
        if type(first) is not int or type(end) is not int or not 0 <= first <= end < _MOST_STEP:
            raise FileError(path, "origin", "does not say which events there are")
        self._sections, starts = _in_order(found, first, end)
        super().__init__(labels, origin, starts)
        self.first = int(starts[0])
        if len(labels) != more.get("labels"):
            self.degrade(f"{len(labels)} of {str(more.get('labels'))[:20]} labels can be read")
        if None in self._sections:
            lost = sum(
                int(starts[i + 1] - starts[i]) for i, each in enumerate(self._sections) if each is None
            )
            self.degrade(f"{lost:,} of {self.length - self.first:,} events are damaged and cannot be read")

    def _decode(self, group: int) -> Events:
        found = self._sections[group]
        if found is None:
            place = f"events {self._starts[group]} to {self._starts[group + 1]}"
            raise FileError(self.path, place, "are damaged: their header is")
        return self._events_of(found)

    def _origin(self, found: list[Section]) -> tuple[Origin, dict[str, Any]]:
        origins = [each for each in found if each.kind == ORIGIN]
        if not origins:
            raise FileError(self.path, "", "has no origin: it is damaged, or was not written to its end")
        try:
            return origin_from_json(self._text_of(origins[-1]))
        except ValueError as error:
            raise FileError(self.path, "origin", str(error)) from error

    def _read_labels(self, found: list[Section]) -> Labels:
        tables = [each for each in found if each.kind == LABELS]
        if not tables:
            return Labels()
        try:
            return unpack_labels(self._text_of(tables[-1]))
        except ValueError as error:
            raise FileError(self.path, "labels", str(error)) from error

    def _text_of(self, found: Section) -> bytes:
        text = self._file.read_at(found.payload_at, found.payload_bytes)
        if zlib.crc32(text) != found.checksum:
            raise ValueError("does not match its checksum")
        return text


class BlockFile(_BlockReader):
    """A file of blocks that may still grow: those of a recording, from its first event on.

    A drain may free the first blocks, up to one with a keyframe; zeros, in a hole, are in their place.

    Raises:
        FileError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = OpenFile(path)
        self._codec = EventCodec()
        self._lock = Lock()
        self._sections: list[Section] = []
        self._events = 0  # of all sections
        self._decoded: OrderedDict[int, Events] = OrderedDict()  # by the place in the file
        self.refresh()

    @property
    def first(self) -> int:
        """The first step that a file of blocks keeps."""
        return self._sections[0].first if self._sections and self._is_cut else 0

    @property
    def stop(self) -> int:
        """The step after the last event of all complete blocks."""
        return self._sections[-1].stop if self._sections else 0

    @property
    def end(self) -> int:
        """Where the next block begins in the file, in bytes."""
        return self._sections[-1].end if self._sections else 0

    @property
    def _place(self) -> int:
        """Where new blocks are looked for, in bytes."""
        return max(self.end, end_of_hole(self._file.fd))

    def refresh(self) -> None:
        """Look for new blocks in the file."""
        with self._lock, reading_file(self.path):
            found = sections_of(self._file, self._place)
            for each in _limited_block_sections(self.path, found, len(self._sections), self._events):
                if each.kind == EVENTS and each.first >= self.stop:
                    self._sections.append(each)
                    self._events += each.events
            self._is_cut = self._file.read_at(0, len(MAGIC)) == bytes(len(MAGIC))
            if self._is_cut:
                self._drop_before(end_of_hole(self._file.fd))  # a drain may have freed more meanwhile

    @property
    def lost(self) -> int:
        """Events between the blocks: those of blocks with a damaged header."""
        return self.stop - self.first - self._events

    @property
    def most_lost(self) -> int:
        """Events that may have been in blocks behind the last one that can be read: their headers are damaged."""
        with reading_file(self.path):
            rest = os.fstat(self._file.fd).st_size - self.end
        return rest // (HEADER.size + _LEAST_PAYLOAD) * MOST_EVENTS

    @property
    def append_place(self) -> int:
        """Where the next block can be written, in bytes: over one that is not whole, and behind all damage."""
        with reading_file(self.path):
            return append_place(self._file, self._place)

    @property
    def undescribed(self) -> int | None:
        """The first step of the first block without an index: what describes them gave up. None: all have one."""
        return next((each.first for each in self._sections if not each.index_bytes), None)

    def keyframe_places(self) -> list[int]:
        """Where the blocks with a keyframe begin, in bytes."""
        return [each.start for each in self._sections if each.keyframe_bytes]

    def _drop_before(self, hole: int) -> None:
        """Forget the blocks that were freed, and those after them that need an earlier one to be read."""
        kept = next(
            (i for i, each in enumerate(self._sections) if each.start >= hole and each.keyframe_bytes), None
        )
        if kept:
            self._events -= sum(each.events for each in self._sections[:kept])
            self._sections = self._sections[kept:]

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop) from blocks, which must lie before `stop` of the file. Raises FileError."""
        parts = []
        sections = self._sections  # `refresh`, in another thread, may replace the list
        while start < stop:
            place = bisect_right(sections, start, key=lambda each: each.first) - 1
            if place < 0 or start >= sections[place].stop:
                raise FileError(self.path, f"event {start}", "is damaged: the header of its block is")
            found = sections[place]
            end = min(stop, found.stop)
            parts.append(self._block(found)[start - found.first : end - found.first])
            start = end
        return parts[0] if len(parts) == 1 else joined(parts)

    def _block(self, found: Section) -> Events:
        with self._lock:
            events = self._decoded.pop(found.start, None)
            self._decoded[found.start] = self._read(found) if events is None else events
            while len(self._decoded) > _KEPT_BLOCKS:
                self._decoded.popitem(last=False)
            return self._decoded[found.start]

    def _read(self, found: Section) -> Events:
        try:
            return self._events_of(found)
        except FileError:
            if found.start >= end_of_hole(self._file.fd):
                raise
            place = f"events {found.first} to {found.stop}"
            raise FileError(self.path, place, "are no longer kept: only the newest are") from None


_KEPT_BLOCKS: Final = 4


def _limited_block_sections(
    path: Path, sections: Iterator[Section], count: int = 0, events: int = 0
) -> list[Section]:
    """All sections of a file, unless they are too many blocks for their events."""
    found = []
    for each in sections:
        found.append(each)
        count += 1
        events += each.events
        if count > max(MANY_BLOCKS, events // LEAST_BLOCK):
            raise FileError(path, "", f"has {count:,} blocks of {events / count:.0f} events on average")
    return found


def _in_order(found: list[Section], first: int, end: int) -> tuple[list[Section | None], NDArray[np.int64]]:
    """The blocks of the events [first, end) by ascending step, None for what is missing, and where each begins."""
    groups: list[Section | None] = []
    starts = [first]
    for each in sorted((each for each in found if each.kind == EVENTS), key=lambda each: each.first):
        if each.first < starts[-1] or each.stop > end:  # a copy of an earlier one, or of another trace
            continue
        if each.first > starts[-1]:
            groups.append(None)
            starts.append(each.first)
        groups.append(each)
        starts.append(each.stop)
    if starts[-1] < end:
        groups.append(None)
        starts.append(end)
    return groups, np.array(starts, np.int64)
