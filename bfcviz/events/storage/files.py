"""Read files of unknown origin safely, with the JSON in them; lock a file, and replace one atomically."""

import ctypes
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError, system_error_cause

try:
    import fcntl
except ImportError:  # Windows: readers cannot distinguish a recording in progress from an interrupted one
    fcntl = None  # type: ignore[assignment]


EARLIER: Final = ".earlier"
"""In the folder of a recording that replaces another: the other, until the new one has an event."""

PRIVATE_FOLDER: Final = 0o700
PRIVATE_FILE: Final = 0o600
"""Permissions of a recording: it holds the command, and names of code and data, of the user who made it."""


def open_regular(path: Path) -> FileIO:
    """Open a regular file for reading, unbuffered; never blocks, as opening a pipe would.

    Raises:
        FileError: the file does not exist, or it is a folder, a pipe or a device.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening some devices has side effects
            raise FileError(path, "", "is not a file")
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise FileError(path, "", f"cannot be opened: {error.strerror}") from error
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "", f"cannot be opened: {error}") from error  # a name with a NUL
    file = FileIO(fd, "rb") if stat.S_ISREG(os.fstat(fd).st_mode) else None
    if file is None:
        os.close(fd)
        raise FileError(path, "", "is not a file")
    return file


def append(path: Path, data: bytes) -> None:
    """Append to a file that only this user can read, in one write; it is made where it is missing.

    Raises:
        OSError: it cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with FileIO(os.open(path, flags, PRIVATE_FILE), "ab") as file:
        file.write(data)


class OpenFile:
    """An open file for reading. It is closed with its last reference, so that other threads can still read from it."""

    def __init__(self, path: Path) -> None:
        with open_regular(path) as file:
            self.fd = os.dup(file.fileno())

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def read_at(self, start: int, num_bytes: int) -> bytes:
        """Up to `num_bytes` bytes of an open file from `start` on; fewer if it ends before."""
        parts = []
        while num_bytes and (part := os.pread(self.fd, num_bytes, start)):
            parts.append(part)
            start += len(part)
            num_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, into: NDArray[np.uint8], start: int) -> int:
        """Read an open file from byte `start` on until `into` is full, or it ends; returns how many bytes."""
        done = 0
        while done < len(into) and (read := os.preadv(self.fd, [into[done:].data], start + done)):
            done += read
        return done


_LEAST_LOOK: Final = 1 << 12
_MOST_LOOK: Final = 1 << 20
"""Bytes that are read at once to find a header: few at first, as a file may have damage before every header."""


def next_header(
    file: OpenFile, start: int, magic: bytes, num_bytes: int, is_intact: Callable[[bytes], bool]
) -> int:
    """Where the next intact header in a file begins, from byte `start` on; the end of the file if there is none.

    Args:
        file: an open file.
        start: of the search.
        magic: how a header begins.
        num_bytes: of a header.
        is_intact: whether so many bytes, which begin with `magic`, are a header.
    """
    look = _LEAST_LOOK
    while data := file.read_at(start, look):
        place = data.find(magic)
        while place >= 0:
            header = data[place : place + num_bytes]
            if len(header) < num_bytes:
                header = file.read_at(start + place, num_bytes)
            if is_intact(header):
                return start + place
            place = data.find(magic, place + 1)
        start += max(len(data) - len(magic) + 1, 1)
        look = min(2 * look, _MOST_LOOK)
    return start + len(magic)


def end_of_hole(fd: int) -> int:
    """The first byte of a file that is not in a hole at its beginning."""
    try:
        return os.lseek(fd, 0, os.SEEK_DATA)
    except (OSError, AttributeError):  # no data at all; or a system without holes
        return 0


_FAR: Final = 1 << 33  # a place in any file system with holes
_PUNCH: Final = 3  # FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE of linux/falloc.h


def free_space(fd: int, start: int, num_bytes: int) -> bool:
    """Give space of a file back, which becomes a hole of zeros; False where the file system has no holes."""
    punch = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if punch is None:
        return False
    punch.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(punch(fd, _PUNCH, start, num_bytes) == 0)


def can_free_space(fd: int) -> bool:
    """Whether the file system has holes. Frees a page far behind the end of the file, which changes nothing."""
    return free_space(fd, _FAR, 4096)


def read_small(path: Path, limit: int) -> bytes:
    """All bytes of a file of at most `limit` bytes.

    Raises:
        FileError: it cannot be read, or is larger.
    """
    with open_regular(path) as file, reading_file(path):
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise FileError(path, "", f"has {size} bytes, the limit is {limit}")
        return os.pread(file.fileno(), size, 0)


@contextmanager
def reading_file(path: Path) -> Iterator[None]:
    """Turn each OSError of the block, which reads a file, into a FileError that names `path`."""
    try:
        yield
    except OSError as error:
        raise FileError(path, "", f"cannot be read: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path, *, overwrite: bool, mode: int | None = None) -> Iterator[Path]:
    """A temporary file beside `path`, which replaces it if the block succeeds; otherwise it is removed.

    Args:
        path: the file.
        overwrite: whether it may exist.
        mode: its permissions; by default those of any new file.

    Raises:
        FileError: `path` exists and `overwrite` is false, or the file cannot be written.
    """
    if not overwrite and path.exists():
        raise FileError(path, "", "exists already; use another name, or overwrite=True")
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        if mode is not None:
            made.touch(mode, exist_ok=False)
        yield made
        _sync_file_to_disk(made)
        _publish_file(made, path, overwrite=overwrite)
    except OSError as error:
        raise FileError(path, "", f"cannot be written: {system_error_cause(error)}") from error
    finally:
        with suppress(OSError):  # of a read-only file system: nothing was written, and the error says so
            made.unlink(missing_ok=True)


def _publish_file(made: Path, path: Path, *, overwrite: bool) -> None:
    if not overwrite:
        try:
            os.link(made, path)  # unlike a rename it never replaces a file created meanwhile
        except FileExistsError:
            raise
        except OSError:
            pass  # a file system without links
        else:
            return
    made.replace(path)


def _sync_file_to_disk(path: Path) -> None:
    # A rename can reach the disk before the data: a power failure would leave an empty file.
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ------------------------------------------------------------------------------
# JSON from an unknown writer: every error is a ValueError, and the number of values is limited.

MAX_JSON_VALUES = 1 << 20
"""Values that one text may hold: a value takes up to 100 bytes of memory, and as few as 3 bytes of text."""

_VALUE_MARKS = (b",", b"{", b"[")
_NO_MARKS = bytes(set(range(256)) - set(b',{["'))
_PIECE = 1 << 16


def parse_file_json(text: str | bytes, most: int = MAX_JSON_VALUES) -> Any:
    """Parse the JSON of a file, in UTF-8; every error, and more than `most` values, is a ValueError."""
    values = num_values(text, most)
    if values > most:
        raise ValueError(f"holds about {values:,} values, the limit is {most:,}")
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode())
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from error


def num_values(text: str | bytes, enough: int = 0) -> int:
    """About how many values the JSON of a file holds; not exact if there are `enough` or fewer.

    Names of operations and shapes contain many commas and brackets, which do not separate values.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    values = sum(map(data.count, _VALUE_MARKS))
    if values <= enough:
        return values
    quotes = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    return sum(sum(map(part.count, _VALUE_MARKS)) for part in _outside_of_texts(quotes))


def _outside_of_texts(marks: bytes) -> Iterator[bytes]:
    """The parts of a file's JSON between quoted texts, joined piece by piece."""
    inside = False
    for start in range(0, len(marks), _PIECE):
        parts = marks[start : start + _PIECE].split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0


def _refuse_json_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite_json_number(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _refuse_json_constant(text)


_DECODER = json.JSONDecoder(
    parse_constant=_refuse_json_constant, parse_float=_finite_json_number
)  # created once: json.loads would create one for each line of labels


# ------------------------------------------------------------------------------
# Lock a file: the writer of a recording holds the lock until it ends.

_TRIES = 200

_PAUSE_S = 0.001


def lock(file: FileIO) -> None:
    """Lock the file until it is closed, or this process ends."""
    for _ in range(_TRIES):  # `is_locked` of a reader may hold it for a moment
        if try_lock(file.fileno()):
            return
        time.sleep(_PAUSE_S)


def try_lock(fd: int, *, without_locks: bool = True) -> bool:
    """Lock an open file; False if another process holds the lock.

    `without_locks`: the answer on a file system without locks, where readers cannot detect that a file is in use.
    """
    if fcntl is not None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
        else:
            return True
    return without_locks


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of the file.

    Raises:
        FileError: the file cannot be read.
    """
    with reading_file(path):  # a folder may not permit it
        if fcntl is None or not path.is_file():
            return False
    with open_regular(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without locks
    return False
