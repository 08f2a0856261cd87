"""A file's bytes, plain or gzip, never more than a limit and never from anything but a regular file."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from bfcviz.errors import FileError
from bfcviz.units import format_bytes

GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = (2 << 30) - 1
"""Protocol Buffers allow no message longer than this, so no honest profile is; a gzip bomb would be."""

_PIECE = 1 << 20


class Content(NamedTuple):
    """`data` is what could be read; `cut` says why that is not all, None when it is all."""

    data: bytes
    cut: str | None


def read_head(path: Path, size: int = 1 << 16) -> bytes:
    """Up to `size` bytes from the file's beginning, unpacked if it is gzip.

    Raises:
        FileError: there is no such file, it may not be read, it is no regular file, or its gzip is corrupt.
    """
    return _collect(path, size, stop_at_limit=True).data


def read_content(path: Path, limit: int = MAX_BYTES) -> Content:
    """All bytes of the file, unpacked if it is gzip.

    Raises:
        FileError: as `read_head`, or there are more than `limit` bytes.
    """
    return _collect(path, limit, stop_at_limit=False)


def _collect(path: Path, limit: int, *, stop_at_limit: bool) -> Content:
    """What both readers do: gather pieces until the end or the limit."""
    data = bytearray()
    try:
        # A pipe or a device would make open() or read() wait for ever.
        if not path.is_file():
            raise FileError(path, "", "not a regular file" if path.exists() else "there is no such file")
        with path.open("rb") as file:
            packed = file.read(2) == GZIP_MAGIC
            file.seek(0)
            pieces = _Unpacked(path, file) if packed else _plain(file)
            for piece in pieces:
                data += piece
                if len(data) > limit:
                    break
    except OSError as error:
        raise FileError(path, "", f"cannot be read: {error.strerror or error}") from None
    if len(data) > limit:
        if not stop_at_limit:
            raise FileError(path, "", f"holds more than {format_bytes(limit)}, the most that is read")
        del data[limit:]
    return Content(bytes(data), pieces.cut if isinstance(pieces, _Unpacked) else None)


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


class _Unpacked:
    """Iterates over the unpacked pieces of a gzip file of one or more members; `cut` is set at its end."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.cut: str | None = None
        self._path = path
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)

    def __iter__(self) -> Iterator[bytes]:
        packed = b""
        while True:
            if not packed and not (packed := self._file.read(_PIECE)):
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
