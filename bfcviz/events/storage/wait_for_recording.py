"""Waiting for a recording that another process is about to begin."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.storage.files import reading
from bfcviz.events.storage.recording_files import LABELS_FILE, ORIGIN_FILE

_LOOK_S: Final = 0.05


def await_recording(path: Path, wait_s: float, begun: Callable[[Path], bool] | None = None) -> None:
    """Return once there is a recording, that may have ended as well.

    Args:
        path: the folder, which need not be there.
        wait_s: seconds, at most.
        begun: says whether there is, by default `has_begun`.

    Raises:
        FileError: there is something else.
        BfcvizError: none has begun in that time.
    """
    until = time.monotonic() + wait_s
    begun = begun or has_begun
    while not begun(path):
        left = until - time.monotonic()
        if left <= 0:
            raise BfcvizError(
                f"{path}: no recording has begun there, {wait_s:g} seconds were waited; one begins when the recorded "
                "program has imported its framework. Start it, or wait longer"
            )
        time.sleep(min(_LOOK_S, left))


def has_begun(path: Path) -> bool:
    """Whether there is a recording; raises FileError where something else is, or it may not be read."""
    with reading(path):
        return _has_begun(path)


def _has_begun(path: Path) -> bool:
    if not path.is_dir():
        if path.is_symlink() and not path.exists():
            raise FileError(
                path, "", f"is a link to {path.readlink()}, which is not there; give the folder itself"
            )
        if path.exists() and not path.is_dir():  # asked again: it may have come between two looks
            raise FileError(path, "", "is a file, not a recording's folder; bfcviz view shows files")
        return False
    if (path / ORIGIN_FILE).exists():
        return True
    if (path / LABELS_FILE).exists() or not any(path.iterdir()):
        return False  # on its way
    if (path / ORIGIN_FILE).exists():  # likewise
        return True
    raise FileError(
        path,
        "",
        f"is not a recording: it has no {ORIGIN_FILE}; give the folder that `bfcviz record -o` was given, or one that "
        "is empty or not there yet",
    )
