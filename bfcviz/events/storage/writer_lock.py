"""A file lock that marks a recording in progress; the kernel releases it when the writer ends for any reason."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from bfcviz.errors import FileError
from bfcviz.events.storage.files import open_regular

try:
    import fcntl
except ImportError:  # Windows: readers cannot distinguish a recording in progress from an interrupted one
    fcntl = None  # type: ignore[assignment]


_TRIES = 200
_PAUSE_S = 0.001


def lock(file: FileIO) -> None:
    """Lock the file until it is closed, or this process ends."""
    for _ in range(_TRIES):  # `is_locked` of a reader may hold it for a moment
        if _try_lock(file.fileno()):
            return
        time.sleep(_PAUSE_S)


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Lock the folder, so that only one process records to it.

    Raises:
        FileError: another process holds it, or it cannot be opened.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise FileError(folder, "", f"cannot be opened: {error.strerror}") from error
    try:
        if not _try_lock(fd):
            raise FileError(folder, "", "is being recorded to by another process; choose another folder")
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    """Lock an open file; False if another process holds the lock."""
    if fcntl is not None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system without locks: readers cannot detect that the recording is in progress
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of the file.

    Raises:
        FileError: the file cannot be read.
    """
    try:
        if fcntl is None or not path.is_file():
            return False
    except OSError as error:  # a folder without permission
        raise FileError(path, "", f"cannot be read: {error.strerror or error}") from error
    with open_regular(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without locks
    return False
