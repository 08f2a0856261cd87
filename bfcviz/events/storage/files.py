"""Files, carefully: read what a stranger wrote, and replace a file as a whole or not at all."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from bfcviz.errors import FileError


def open_regular(path: Path) -> FileIO:
    """Open a file for reading, unbuffered; never waits, as opening a pipe would.

    Raises:
        FileError: there is no such file, or it is a folder, a pipe, a device.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening some devices already does something
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


class OpenFile:
    """A file for reading. It is closed with its last reference, so that another thread can still read from it."""

    def __init__(self, path: Path) -> None:
        with open_regular(path) as file:
            self.fd = os.dup(file.fileno())

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def read_at(self, start: int, num_bytes: int) -> bytes:
        """The bytes from `start` on: fewer where the file ends before. A system call reads 2 GiB at most."""
        parts = []
        while num_bytes and (part := os.pread(self.fd, num_bytes, start)):
            parts.append(part)
            start += len(part)
            num_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def read_small(path: Path, limit: int) -> bytes:
    """The whole of a file that has no reason to be larger than `limit` bytes.

    Raises:
        FileError: it cannot be read, or is larger.
    """
    with open_regular(path) as file, reading(path):
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise FileError(path, "", f"has {size} bytes, the limit is {limit}")
        return os.pread(file.fileno(), size, 0)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn each OSError of the block into a FileError that names `path`."""
    try:
        yield
    except OSError as error:
        raise FileError(path, "", f"cannot be read: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new file beside `path`, that takes its place when the block ends well and goes otherwise.

    Raises:
        FileError: `path` is there and `overwrite` is false, or the disk refuses.
    """
    if not overwrite and path.exists():
        raise FileError(path, "", "exists already; give another name, or overwrite=True")
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield made
        _to_disk(made)
        _publish(made, path, overwrite=overwrite)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise FileError(path, "", f"cannot be written: {why}") from error
    finally:
        made.unlink(missing_ok=True)


def _publish(made: Path, path: Path, *, overwrite: bool) -> None:
    if not overwrite:
        try:
            os.link(made, path)  # unlike a rename it never takes the place of a file that came meanwhile
        except FileExistsError:
            raise
        except OSError:
            pass  # a file system without links
        else:
            return
    made.replace(path)


def _to_disk(path: Path) -> None:
    # A rename can reach the disk before the data does: a power cut would leave an empty file.
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
