"""Labels on disk: lines that a recording appends, of which a drain packs the first ones; at rest one packed text.

::

    labels.jsonl    [ hole                  | line | line | line ]    the writer appends
    labels.packed   [ piece ][ piece ]                                a drain appends a piece, and then makes the hole

No line is ever dropped, also where the events that named it were: an event may name a label again at any time, and only
the writer has it in memory. Packed, labels that differ in a number take a few bytes each. A place in the first file
stays the same when the lines before it are packed, so readers and copies go on where they were. JSON has no byte 0: a
reader that meets one is in the hole, and takes the piece. A kill at any moment loses nothing: a piece is complete
before its lines are freed, and one that is not is written again.
"""

import base64
import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

from bfcviz.errors import TraceError
from bfcviz.events.label_table import MAX_LABEL_BYTES, Labels
from bfcviz.events.storage.files import (
    MAX_JSON_VALUES,
    PRIVATE_FILE,
    OpenFile,
    can_free_space,
    end_of_hole,
    free_space,
    next_header,
    num_values,
    open_regular,
    reading_file,
)

LABELS_FILE: Final = "labels.jsonl"
PACKED_LABELS_FILE: Final = "labels.packed"

_HEADER: Final = struct.Struct("<8sQIIII")
"""Magic, place of the first line; bytes of the lines, packed bytes, checksum of the lines, checksum of the header."""

_MAGIC: Final = b"\x89BFCvl\n\0"
_LEAST: Final = 1 << 16
_PIECE: Final = 1 << 20
_MOST: Final = _PIECE + MAX_LABEL_BYTES
_PAGE: Final = 4096
"""No piece has fewer bytes of lines: many small ones would take a reader much time and memory."""


class LabelPiece(NamedTuple):
    """Packed lines of labels: those at [first, stop) of the first file; `at`: where they are packed."""

    first: int
    stop: int
    at: int
    packed: int
    checksum: int


class LabelFile:
    """Reads the labels of the recording in a folder, also while another process writes and packs them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pieces: list[LabelPiece] = []
        self._packed: OpenFile | None = None
        self._next = 0  # where the next piece is looked for

    @property
    def end(self) -> int:
        """Where the next piece of labels can be written: over one that is not whole, and behind all damage."""
        if self._packed is None:
            return 0
        size = os.fstat(self._packed.fd).st_size
        return size if self._piece_at(self._packed, self._next) is None else self._next

    @property
    def stop(self) -> int:
        """The place of the first line of labels that is not packed."""
        return self._pieces[-1].stop if self._pieces else 0

    def read(self, start: int) -> Iterator[bytes]:
        """The bytes of all lines of labels from a place on, in parts.

        Raises:
            FileError: the file is missing, or cannot be read.
        """
        path = self._folder / LABELS_FILE
        with open_regular(path) as file, reading_file(path):
            while part := self._part(file, start):
                yield part
                start += len(part)

    def refresh(self) -> None:
        """Look for new pieces of labels. Behind a damaged header the next good one is searched."""
        path = self._folder / PACKED_LABELS_FILE
        if self._packed is None and path.is_file():
            self._packed = OpenFile(path)
        while self._packed is not None and self._next + _HEADER.size <= (
            size := os.fstat(self._packed.fd).st_size
        ):
            piece = self._piece_at(self._packed, self._next)
            if piece is None:
                found = next_header(self._packed, self._next + 1, _MAGIC, _HEADER.size, self._is_header)
                self._next = min(found, size - _HEADER.size + 1)  # more of a header may come
            elif piece.at + piece.packed > size:
                return
            else:
                self._pieces.append(piece)
                self._next = piece.at + piece.packed

    def _part(self, file: FileIO, start: int) -> bytes:
        """Bytes of labels from a place on: the rest of a piece, or what the first file has there."""
        size = _PIECE
        if start < self.stop:
            number = bisect_right(self._pieces, start, key=lambda piece: piece.stop)
            piece = self._pieces[number]
            if start >= piece.first and (lines := self._unpacked(piece)):
                return lines[start - piece.first :]
            # It is damaged, or the header of the one before it: the next one may be whole.
            size = min(size, (piece.stop if start >= piece.first else piece.first) - start)
        file.seek(start)
        part = file.read(size) or b""  # /proc/kmsg has none for now
        if b"\0" in part and start >= self.stop:
            self.refresh()
            if start < self.stop:
                return self._part(file, start)
        return part

    def _unpacked(self, piece: LabelPiece) -> bytes:
        """The lines of a piece of labels; empty where it is damaged."""
        assert self._packed is not None
        inflate = zlib.decompressobj()
        try:
            lines = inflate.decompress(
                self._packed.read_at(piece.at, piece.packed), piece.stop - piece.first + 1
            )
        except zlib.error:
            return b""
        is_whole = len(lines) == piece.stop - piece.first and zlib.crc32(lines) == piece.checksum
        return lines if is_whole else b""

    def _piece_at(self, file: OpenFile, place: int) -> LabelPiece | None:
        """The piece of labels whose header is at a place of the packed file; it may not be whole."""
        data = file.read_at(place, _HEADER.size)
        if not self._is_header(data):
            return None
        _, first, size, packed, checksum, _ = _HEADER.unpack(data)
        return LabelPiece(first, first + size, place + _HEADER.size, packed, checksum)

    def _is_header(self, data: bytes) -> bool:
        """Whether bytes are the header of a piece of labels behind those that are known."""
        if len(data) < _HEADER.size or not data.startswith(_MAGIC):
            return False
        _, first, size, packed, _, check = _HEADER.unpack(data)
        is_possible = first >= self.stop and _PAGE <= size <= _MOST and 0 < packed <= _MOST
        return bool(is_possible and check == zlib.crc32(data[:-4]))


class LabelPacker:
    """Packs the lines of a recording's labels; only one process at a time may."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._out: FileIO | None = None
        self._stop = self._end = 0
        self._can_free = True

    def pack(self) -> None:
        """Pack all whole lines of labels, if they are enough for a piece.

        Raises:
            FileError: the labels cannot be read.
            OSError: the disk is full; a later call goes on.
        """
        path = self._folder / LABELS_FILE
        while self._can_free and path.stat().st_size - self._stop >= _LEAST:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                self._can_free = can_free_space(fd)  # looked at first: else the piece is useless
                if not self._can_free or not (lines := self._lines(path)):
                    return
                self._write(lines)
                self._can_free = free_space(fd, 0, self._stop // _PAGE * _PAGE)
            finally:
                os.close(fd)

    def close(self) -> None:
        """End the packing of labels."""
        if self._out is not None:
            self._out.close()

    def _lines(self, path: Path) -> bytes:
        """The next whole lines of labels, about a piece; empty where there are too few, or they are lost."""
        if self._out is None:
            self._open()
        with open_regular(path) as file:
            file.seek(self._stop)
            data = file.read(_PIECE)
            if b"\n" not in data:
                data += file.read(MAX_LABEL_BYTES)
        lines = data[: data.rfind(b"\n") + 1]
        return b"" if len(lines) < _LEAST or b"\0" in lines else lines

    def _open(self) -> None:
        known = LabelFile(self._folder)
        known.refresh()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._out = FileIO(os.open(self._folder / PACKED_LABELS_FILE, flags, PRIVATE_FILE), "r+b")
        with open_regular(
            self._folder / LABELS_FILE
        ) as file:  # lines that were freed may be in a damaged piece
            self._stop = max(known.stop, end_of_hole(file.fileno()))
        self._end = known.end
        self._out.truncate(self._end)  # a drain that was killed may have left a part of a piece

    def _write(self, lines: bytes) -> None:
        assert self._out is not None
        packed = zlib.compress(lines)
        header = _HEADER.pack(_MAGIC, self._stop, len(lines), len(packed), zlib.crc32(lines), 0)[:-4]
        rest = memoryview(header + struct.pack("<I", zlib.crc32(header)) + packed)
        end = self._end + len(rest)
        self._out.seek(self._end)
        try:
            while rest:
                rest = rest[self._out.write(rest) :]
        except OSError:
            self._out.truncate(self._end)
            raise
        self._stop, self._end = self._stop + len(lines), end


# ------------------------------------------------------------------------------
# A table of labels as one text, for the footer of a Parquet file or a section of a .bfc file; safe to unpack.


MAX_LABELS_TEXT = 60_000_000
"""Of packed labels: readers of Parquet accept footer entries of up to 100 MB."""

MAX_UNPACKED_LABELS = 1 << 29

LEAST_UNPACKED = 1 << 26
UNPACKED_A_BYTE = 250
VALUES_A_BYTE = 4
"""Limits per byte of packed labels: unpacked bytes (at least `LEAST_UNPACKED`), and names or details. The bundled runs
have up to 13 bytes and 0.75 values; stacks that differ in one of 80 frames 101 bytes, and recursions 212. Labels above
the limit are packed less tightly (`_PIECES`)."""

_PIECES = (1 << 16, 1 << 14, 1 << 12, 1 << 10)
"""Bytes of labels that are packed separately. A packed piece has 9 bytes or more, so 1 KiB suffices."""


def pack_labels(labels: Labels) -> str:
    """The labels as text for a Parquet footer: compressed JSON in base64.

    Raises:
        TraceError: the labels do not fit in one file.
    """
    table = labels.to_json().encode()
    if len(table) > MAX_UNPACKED_LABELS:
        raise TraceError(
            f"{len(labels)} labels need {len(table)} bytes; a file holds {MAX_UNPACKED_LABELS}: record fewer or "
            "shorter stacks and names"
        )
    values = num_values(table)
    for piece in (len(table), *_PIECES):
        # Text, because Polars and others reject a footer that is not UTF-8.
        text = base64.b64encode(_deflated_labels(table, piece)).decode()
        if len(text) > MAX_LABELS_TEXT:
            raise TraceError(
                f"{len(labels)} labels pack to {len(text)} bytes; a file holds {MAX_LABELS_TEXT}"
            )
        if len(table) <= _most_label_bytes(len(text)) and values <= _most_label_values(len(text)):
            break
    return text


def _deflated_labels(table: bytes, piece: int) -> bytes:
    """The labels compressed, each piece independently."""
    deflate = zlib.compressobj(6)
    parts = []
    for start in range(0, len(table), piece):
        parts += [deflate.compress(table[start : start + piece]), deflate.flush(zlib.Z_FULL_FLUSH)]
    return b"".join([*parts, deflate.flush()])


def _most_label_bytes(packed: int) -> int:
    return min(MAX_UNPACKED_LABELS, max(LEAST_UNPACKED, UNPACKED_A_BYTE * packed))


def _most_label_values(packed: int) -> int:
    return max(MAX_JSON_VALUES, VALUES_A_BYTE * packed)


def unpack_labels(text: bytes) -> Labels:
    """The labels that `pack_labels` wrote.

    Raises:
        ValueError: the text is invalid, or needs more memory than a text of this length may need.
    """
    limit = _most_label_bytes(len(text))
    inflate = zlib.decompressobj()
    try:
        table = inflate.decompress(base64.b64decode(text, validate=True), limit)
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked ({error})") from error
    if not inflate.eof:
        raise ValueError(f"is incomplete, or needs more than {limit} bytes")
    return Labels.from_json(table, _most_label_values(len(text)))
