"""The mark of a recording under way: a lock that the kernel lets go when the writer ends, however it ends."""

from contextlib import suppress
from io import FileIO
from pathlib import Path

from bfcviz.events.files import open_regular

try:
    import fcntl
except ImportError:  # Windows: a recording under way cannot be told from one that broke off
    fcntl = None  # type: ignore[assignment]


def lock(file: FileIO) -> None:
    """Hold the file until it is closed, or this process ends."""
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks: readers cannot tell that it still grows
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(path: Path) -> bool:
    """Whether someone holds the file."""
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
