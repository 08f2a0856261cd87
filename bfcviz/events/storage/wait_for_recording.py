"""Wait until another process starts a recording."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.storage.files import reading
from bfcviz.events.storage.recording_files import LABELS_FILE, ORIGIN_FILE
from bfcviz.events.storage.recording_set import has_several

_LOOK_S: Final = 0.05


def await_recording(path: Path, wait_s: float, begun: Callable[[Path], bool] | None = None) -> None:
    """Wait for a recording; it may also have ended already.

    Args:
        path: the folder, which may not exist yet.
        wait_s: maximum wait in seconds.
        begun: returns whether the recording has started; by default `has_begun`.

    Raises:
        FileError: the path holds something else.
        BfcvizError: no recording started in that time.
    """
    until = time.monotonic() + wait_s
    begun = begun or has_begun
    while not begun(path):
        left = until - time.monotonic()
        if left <= 0:
            raise BfcvizError(
                f"{path}: no recording started there within {wait_s:g} s; it starts when the recorded program has "
                "imported its framework. Start the program, or wait longer"
            )
        time.sleep(min(_LOOK_S, left))


def has_begun(path: Path) -> bool:
    """Whether a recording has started, also in a subfolder.

    Raises:
        FileError: the path holds something else, or cannot be read.
    """
    with reading(path):
        return _has_begun(path)


def _has_begun(path: Path) -> bool:
    if not path.is_dir():
        if path.is_symlink() and not path.exists():
            raise FileError(
                path, "", f"is a link to {path.readlink()}, which does not exist; give the folder itself"
            )
        if path.exists() and not path.is_dir():  # checked again: it may have been created meanwhile
            raise FileError(path, "", "is a file, not a recording's folder; bfcviz view shows files")
        return False
    if (path / ORIGIN_FILE).exists() or has_several(path):
        return True
    if (path / LABELS_FILE).exists() or all(_is_being_created(place) for place in path.iterdir()):
        return False
    if (path / ORIGIN_FILE).exists() or has_several(path):  # created meanwhile
        return True
    raise FileError(
        path,
        "",
        f"is not a recording: it has no {ORIGIN_FILE}; give the folder of `bfcviz record -o`, or one that is empty or "
        "does not exist yet",
    )


def _is_being_created(place: Path) -> bool:
    """Whether this is the subfolder of a process that is about to record."""
    return place.is_dir() and all(each.name == LABELS_FILE for each in place.iterdir())
