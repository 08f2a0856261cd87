"""Read the bytes of a regular file, plain or gzip, up to a limit, and its text in pieces; how much a file may hold."""

import codecs
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO, FileIO
from pathlib import Path
from typing import Final, NamedTuple

from bfcviz.errors import FileError
from bfcviz.events.storage.files import open_regular
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# How much an imported file may hold for its size on disk. All caps of the importers are defined here.
#
# A gzip file can unpack to 1000 times its size, and a message of two bytes becomes a Python object of some hundred
# bytes. So each cap is proportional to the size of the file on disk. Every file may hold the floor, so that small files
# are not refused.
#
# An uncompressed file does not reach these caps in practice: its events need more bytes.

MAX_BYTES: Final = (2 << 30) - 1
"""Maximum length of a Protocol Buffers message."""

MAX_EVENT_BYTES: Final = 1 << 20
"""Of one event; events in the bundled profiles have at most 300."""

MAX_NAME_BYTES: Final = 1 << 16
"""Of one name: of an operation, a shape, a thread or a plane; at most 284 in the bundled profiles."""


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, which is fast
class Cap:
    """The maximum count of `what` in an imported file: `rate` for each byte of the file, and at least `floor`."""

    what: str
    rate: float
    floor: int

    def most(self, file_size: int) -> int:
        """The maximum for a file of this size in bytes."""
        return max(self.floor, int(self.rate * file_size))


# Behind each: the most in the three bundled profiles, per byte of the file.
UNPACKED: Final = Cap("unpacked bytes", 16, 4 << 20)  # 7.3
UNPACKED_TEXT: Final = Cap("unpacked bytes of text", 128, 64 << 20)  # 80, of a log
UNPACKED_JSON: Final = Cap("unpacked bytes", 64, 4 << 20)
"""Of a Chrome trace, which is read in pieces; its text repeats itself more than a profile does."""
PARTS: Final = Cap("parts of planes (lines, names, statistics)", 1 / 8, 1 << 17)  # 1/309, planes included
EVENTS: Final = Cap("events", 1, 1 << 17)  # 1/9.5
STATS: Final = Cap("stats of memory events", 4, 1 << 20)  # 0.71
MEMORY_EVENTS: Final = Cap("memory events", 1 / 6, 1 << 16)  # 1/18
CHUNKS: Final = Cap("chunks", 1 / 12, 1 << 17)  # 1/28, of a memory dump
LABELS: Final = Cap("different labels", 1 / 16, 1 << 14)  # 1/857
TEXT: Final = Cap("characters of names", 4, 1 << 21)  # 0.08, of labels and heaps


class Limits:
    """Counts what an imported file holds; raises an error above the cap for its bytes on disk, compressed or not."""

    def __init__(self, path: object, file_size: int) -> None:
        self.path = path
        self.file_size = file_size
        self._left: dict[Cap, int] = {}  # how many more of each cap the file may hold

    @classmethod
    def of(cls, path: Path) -> "Limits":
        """The limits of a file on disk.

        Raises:
            FileError: the file does not exist.
        """
        try:
            return cls(path, path.stat().st_size)
        except (OSError, ValueError) as error:
            raise FileError(path, "", f"cannot be read: {getattr(error, 'strerror', error)}") from None

    def count(self, cap: Cap, more: int, place: str = "") -> None:
        """Add `more` to the count of what the file holds.

        Raises:
            FileError: the count exceeds the cap.
        """
        left = self._left.get(cap)
        self._left[cap] = left = (cap.most(self.file_size) if left is None else left) - more
        if left < 0:
            raise self.exceeded(cap, place)

    def exceeded(self, cap: Cap, place: str = "") -> FileError:
        """The error for a file that holds more than a cap."""
        return FileError(
            self.path,
            place,
            f"holds more than {cap.most(self.file_size):,} {cap.what}, the limit for a file of "
            f"{format_bytes(self.file_size)}; real profiles hold far fewer. If this one is real and compressed, "
            "unpack it with gunzip first; otherwise record it again",
        )


# ------------------------------------------------------------------------------
# Read the bytes of a regular file, plain or gzip, up to a limit, and its text in pieces.

GZIP_MAGIC = b"\x1f\x8b"

_PIECE = 1 << 20
_PACKED_PIECE = 1 << 14
"""Bytes of compressed data read at once. The rest is copied for each unpacked piece and each gzip member."""


class Content(NamedTuple):
    """The content of a file: `data` is what could be read; `cut` says why the end is missing, None if it is not."""

    data: bytes
    cut: str | None


def read_head(path: Path, size: int = 1 << 16) -> bytes:
    """Up to `size` bytes from the start of the file, unpacked if it is gzip. Raises as `ContentPieces`."""
    head = b""
    for piece in ContentPieces(path, UNPACKED):
        head += piece[: size - len(head)]
        if len(head) == size:
            break
    return head


def read_content(path: Path, unpacked: Cap = UNPACKED) -> Content:
    """All bytes of a file, unpacked if it is gzip, to no more than `unpacked` allows for its size.

    Raises:
        FileError: as `ContentPieces`; or there are more than `MAX_BYTES`.
    """
    data = BytesIO()  # returns its bytes without a copy
    pieces = ContentPieces(path, unpacked, MAX_BYTES)
    for piece in pieces:
        data.write(piece)
    return Content(data.getvalue(), pieces.cut)


class ContentPieces:
    """Iterates over the bytes of a file, unpacked if it is gzip, without holding them all.

    Args:
        path: of the file.
        unpacked: how many bytes a gzip file may unpack to.
        most: bytes of all pieces; None: a plain file may have any length.

    Attributes:
        cut: why the end is missing, None if nothing is missing; known after the last piece.

    Raises:
        FileError: on iteration: the file does not exist, cannot be read, is not a regular file, has more bytes than
            allowed, or its gzip data is corrupt.
    """

    def __init__(self, path: Path, unpacked: Cap, most: int | None = None) -> None:
        self.cut: str | None = None
        self._path = path
        self._cap = unpacked
        self._most = most

    def __iter__(self) -> Iterator[bytes]:
        try:
            if not self._path.is_file():
                what = "not a regular file" if self._path.exists() else "there is no such file"
                raise FileError(self._path, "", what)
            with open_regular(self._path) as file:
                size = os.fstat(file.fileno()).st_size
                if size == 0:  # also files in /proc, which the kernel generates on reading; some never end
                    return
                packed = file.read(2) == GZIP_MAGIC
                file.seek(0)
                if not packed:
                    self._check_length(size)
                length = 0
                for piece in self._unpacked(file) if packed else iter(partial(file.read, _PIECE), b""):
                    length += len(piece)
                    if packed and length > self._cap.most(size):
                        raise Limits(self._path, size).exceeded(self._cap)
                    self._check_length(length)
                    yield piece
        except OSError as error:
            raise FileError(self._path, "", f"cannot be read: {error.strerror or error}") from None

    def _check_length(self, length: int) -> None:
        if self._most is not None and length > self._most:
            raise FileError(self._path, "", f"holds more than {format_bytes(self._most)}, the limit")

    def _unpacked(self, file: FileIO) -> Iterator[bytes]:
        """The unpacked pieces of a gzip file of one or more members."""
        packed, inflate = b"", zlib.decompressobj(wbits=31)
        while packed or (packed := file.read(_PACKED_PIECE)):
            if inflate.eof:
                if not packed.strip(b"\0"):  # padding after the last member
                    packed = b""
                    continue
                inflate = zlib.decompressobj(wbits=31)
            try:
                yield inflate.decompress(packed, _PIECE)
            except zlib.error as error:
                place = f"near byte {file.tell() - len(packed)} of the gzip file"
                raise FileError(self._path, place, f"corrupt gzip data ({error})") from None
            packed = inflate.unconsumed_tail or inflate.unused_data
        if not inflate.eof:
            self.cut = f"the gzip file is cut off at byte {file.tell()}"


def decoded_pieces(pieces: Iterable[bytes]) -> Iterator[str]:
    """The text of a file piece by piece: UTF-8, or UTF-16 with a mark; other bytes become replacement characters."""
    rest, head = iter(pieces), b""
    while len(head) < 2 and (piece := next(rest, None)) is not None:
        head += piece
    is_utf_16 = head[:2] in {b"\xff\xfe", b"\xfe\xff"}
    decoder = codecs.getincrementaldecoder("utf-16" if is_utf_16 else "utf-8")("replace")
    yield decoder.decode(head)
    for piece in rest:
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)
