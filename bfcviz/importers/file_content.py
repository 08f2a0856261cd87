"""Read the bytes of a regular file, plain or gzip, up to a limit."""

import os
import zlib
from collections.abc import Iterator
from io import BytesIO, FileIO
from pathlib import Path
from typing import NamedTuple

from bfcviz.errors import FileError
from bfcviz.events.storage.files import open_regular
from bfcviz.importers.limits import MAX_BYTES, UNPACKED, Cap, Limits
from bfcviz.units import format_bytes

GZIP_MAGIC = b"\x1f\x8b"

_PIECE = 1 << 20
_PACKED_PIECE = 1 << 14
"""Bytes of compressed data read at once. The rest is copied for each unpacked piece and each gzip member."""


class Content(NamedTuple):
    """`data` is what could be read; `cut` says why the end is missing, None if nothing is missing."""

    data: bytes
    cut: str | None


def read_head(path: Path, size: int = 1 << 16) -> bytes:
    """Up to `size` bytes from the start of the file, unpacked if it is gzip.

    Raises:
        FileError: the file does not exist, cannot be read, is not a regular file, or its gzip data is corrupt.
    """
    return _collect(path, size, UNPACKED, stop_at_limit=True).data


def read_content(path: Path, limit: int = MAX_BYTES, unpacked: Cap = UNPACKED) -> Content:
    """All bytes of the file, unpacked if it is gzip.

    Args:
        path: of the file.
        limit: of the bytes.
        unpacked: what a gzip file may unpack to for its size.

    Raises:
        FileError: as `read_head`; or it has more than `limit` bytes, or more than a file of this size may unpack to.
    """
    return _collect(path, limit, unpacked, stop_at_limit=False)


class ContentPieces:
    """Iterates over the bytes of a file, unpacked if it is gzip, without holding them all.

    Args:
        path: of the file.
        unpacked: how many bytes a gzip file may unpack to.

    Attributes:
        cut: why the end is missing, None if nothing is missing; known after the last piece.

    Raises:
        FileError: on iteration, as `read_content`; a plain file may have any length.
    """

    def __init__(self, path: Path, unpacked: Cap) -> None:
        self.cut: str | None = None
        self._path = path
        self._cap = unpacked

    def __iter__(self) -> Iterator[bytes]:
        try:
            if not self._path.is_file():
                raise FileError(self._path, "", "not a regular file")
            with open_regular(self._path) as file:
                size = os.fstat(file.fileno()).st_size
                if not _is_packed(file):
                    yield from _plain(file)
                    return
                unpacked, total = _Unpacked(self._path, file), 0
                for piece in unpacked:
                    total += len(piece)
                    if total > self._cap.most(size):
                        raise Limits(self._path, size).exceeded(self._cap)
                    yield piece
                self.cut = unpacked.cut
        except OSError as error:
            raise FileError(self._path, "", f"cannot be read: {error.strerror or error}") from None


def _collect(path: Path, limit: int, unpacked: Cap, *, stop_at_limit: bool) -> Content:
    """Collect pieces until the end or the limit."""
    data = BytesIO()  # returns its bytes without a copy
    try:
        if not path.is_file():
            raise FileError(path, "", "not a regular file" if path.exists() else "there is no such file")
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:  # also files in /proc, which the kernel generates on reading; some never end
                return Content(b"", None)
            packed = _is_packed(file)
            if size > limit and not packed and not stop_at_limit:
                raise _too_long(path, limit)
            most = min(limit, unpacked.most(size))
            pieces = _Unpacked(path, file) if packed else _plain(file)
            for piece in pieces:
                data.write(piece[: limit + 1 - data.tell()])
                if data.tell() > most:
                    break
    except OSError as error:
        raise FileError(path, "", f"cannot be read: {error.strerror or error}") from None
    if data.tell() > most and not stop_at_limit:
        raise _too_long(path, limit) if most == limit else Limits(path, size).exceeded(unpacked)
    data.truncate(min(data.tell(), limit))
    return Content(data.getvalue(), pieces.cut if isinstance(pieces, _Unpacked) else None)


def _too_long(path: Path, limit: int) -> FileError:
    return FileError(path, "", f"holds more than {format_bytes(limit)}, the limit")


def _is_packed(file: FileIO) -> bool:
    packed = file.read(2) == GZIP_MAGIC
    file.seek(0)
    return packed


def _plain(file: FileIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


class _Unpacked:
    """Iterates over the unpacked pieces of a gzip file of one or more members; sets `cut` at the end."""

    def __init__(self, path: Path, file: FileIO) -> None:
        self.cut: str | None = None
        self._path = path
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)

    def __iter__(self) -> Iterator[bytes]:
        packed = b""
        while True:
            if not packed and not (packed := self._file.read(_PACKED_PIECE)):
                break
            if self._inflate.eof:
                if not packed.strip(b"\0"):  # padding after the last member
                    packed = b""
                    continue
                self._inflate = zlib.decompressobj(wbits=31)
            try:
                yield self._inflate.decompress(packed, _PIECE)
            except zlib.error as error:
                place = f"near byte {self._file.tell() - len(packed)} of the gzip file"
                raise FileError(self._path, place, f"corrupt gzip data ({error})") from None
            packed = self._inflate.unconsumed_tail or self._inflate.unused_data
        if not self._inflate.eof:
            self.cut = f"the gzip file is cut off at byte {self._file.tell()}"
