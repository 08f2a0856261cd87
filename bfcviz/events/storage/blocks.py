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
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.row_copy import copied
from bfcviz.events.schema import Events
from bfcviz.events.storage.block_codec import CODED, MOST_EVENTS, DamagedBlock, EventCodec
from bfcviz.events.storage.files import OpenFile

MAGIC: Final = b"\x89BFCviz\n"
EVENTS, LABELS, ORIGIN = 1, 2, 3

HEADER: Final = struct.Struct("<8sII QQQ QQQ II")
"""Magic, kind, rows of the codec; first step, events, checksum; bytes of index, keyframe, payload; 0, CRC."""

_LEVEL: Final = 1
_MOST_SECTION: Final = 1 << 31
_ZSTD: Final = pa.Codec("zstd", compression_level=_LEVEL)
_STREAMS: Final = 1 + len(CODED)


class Section(NamedTuple):
    """A section of a file, as its header says it.

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
        """Where the index begins in the file, in bytes."""
        return self.start + HEADER.size

    @property
    def keyframe_at(self) -> int:
        """Where the keyframe begins."""
        return self.index_at + self.index_bytes

    @property
    def payload_at(self) -> int:
        """Where the payload begins."""
        return self.keyframe_at + self.keyframe_bytes

    @property
    def end(self) -> int:
        """Where the next section begins."""
        return self.payload_at + self.payload_bytes

    @property
    def stop(self) -> int:
        """The step after its last event."""
        return self.first + self.events


def section(kind: int, payload: bytes) -> bytes:
    """A section without events: the labels, or the origin."""
    return _header(Section(0, kind, 0, 0, 0, zlib.crc32(payload), 0, 0, len(payload))) + payload


def event_section(codec: EventCodec, events: Events, index: bytes = b"", keyframe: bytes = b"") -> bytes:
    """Events as a section: 1 to MOST_EVENTS of them, in order.

    Args:
        codec: kept by the caller, who encodes many.
        events: shape (n,), dtype EVENT; the `seq` of the first says where they belong.
        index: what the model needs of all sections at once.
        keyframe: the state before the first event; empty: not stored here.
    """
    events = events if events.flags.c_contiguous else copied(events)
    rows, masks, residuals, checksum = codec.encode(events)
    payload = _packed([masks, *residuals])
    first = int(events["seq"][0])
    found = Section(0, EVENTS, rows, first, len(events), checksum, len(index), len(keyframe), len(payload))
    return b"".join([_header(found), index, keyframe, payload])


def decoded(codec: EventCodec, found: Section, payload: bytes) -> Events:
    """The events of a section.

    Raises:
        DamagedBlock: the payload is damaged.
    """
    try:
        masks, *residuals = _unpacked(payload, found.events)
        return codec.decode(found.rows, masks.astype(np.uint16), residuals, found.checksum)
    except (pa.ArrowException, OSError, struct.error) as error:
        raise DamagedBlock(f"cannot be decoded: {error}") from error


def _header(found: Section) -> bytes:
    data = HEADER.pack(MAGIC, *found[1:], 0, 0)[:-4]
    return data + struct.pack("<I", zlib.crc32(data))


def _section_at(data: bytes, start: int) -> Section | None:
    """The section whose header is `data`; None if it is damaged, or no header."""
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        return None
    *fields, _, check = HEADER.unpack(data[: HEADER.size])
    if check != zlib.crc32(data[: HEADER.size - 4]):
        return None
    found = Section(start, *fields[1:])
    sizes = (found.index_bytes, found.keyframe_bytes, found.payload_bytes)
    if max(sizes) > _MOST_SECTION or found.events > MOST_EVENTS or found.first >= 1 << 62:
        return None
    return None if found.kind == EVENTS and not found.events else found


# ------------------------------------------------------------------------------
# Columns of numbers as planes of bytes.


def _packed(streams: list[NDArray[np.unsignedinteger]]) -> bytes:
    directory, planes = [], []
    for stream in streams:
        width = (int(stream.max(initial=0)).bit_length() + 7) // 8
        directory += [len(stream), width]
        table = stream.view(np.uint8).reshape(len(stream), stream.itemsize)
        planes += [_ZSTD.compress(np.ascontiguousarray(table[:, i]), asbytes=True) for i in range(width)]
    lengths = [len(plane) for plane in planes]
    return b"".join(
        [struct.pack(f"<{len(directory)}I", *directory), struct.pack(f"<{len(lengths)}I", *lengths), *planes]
    )


def _unpacked(payload: bytes, count: int) -> list[NDArray[np.uint64]]:
    """The streams that `_packed` packed, of at most `count` numbers each; raises struct.error and Arrow's errors."""
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
            table[:, i] = np.frombuffer(_ZSTD.decompress(data, size, asbytes=True), np.uint8, size)
            place += length
        streams.append(table.view(np.uint64).reshape(size))
    return streams


# ------------------------------------------------------------------------------
# Find the sections of a file.

_LOOK: Final = 1 << 20


def sections_of(file: OpenFile, start: int = 0) -> Iterator[Section]:
    """The whole sections of a file from byte `start` on; reads their headers only.

    Where a header is damaged the next good one is searched. An incomplete section at the end is left out.
    """
    size = os.fstat(file.fd).st_size
    while start + HEADER.size <= size:
        found = _section_at(file.read_at(start, HEADER.size), start)
        if found is None:
            start = _next_header(file, start + 1)
        elif found.end > size:
            return
        else:
            yield found
            start = found.end


def _next_header(file: OpenFile, start: int) -> int:
    """Where the next intact header begins, from byte `start` on; the end of the file if there is none."""
    while data := file.read_at(start, _LOOK):
        place = data.find(MAGIC)
        while place >= 0:
            header = data[place : place + HEADER.size]
            if len(header) < HEADER.size:
                header = file.read_at(start + place, HEADER.size)
            if _section_at(header, start + place) is not None:
                return start + place
            place = data.find(MAGIC, place + 1)
        start += max(len(data) - len(MAGIC) + 1, 1)
    return start + len(MAGIC)
