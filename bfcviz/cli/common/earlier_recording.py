"""EarlierRecording: the recording that `bfcviz record --force` replaces, when the new one has its first event.

::

    run.bfc/            [ earlier recording ]     before
    run.bfc/.earlier/   [ earlier recording ]     while the new one has no event; removed then, or moved back at the end
    run.bfc/            [ new recording ... ]
"""

import os
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from threading import Event, Thread
from typing import Final

from bfcviz.errors import FileError, OtherFiles
from bfcviz.events.storage.files import EARLIER, PRIVATE_FOLDER
from bfcviz.events.storage.recording_files import LABELS_FILE, files_of
from bfcviz.events.storage.recording_set import files_of_all, has_events, recordings_in
from bfcviz.events.storage.writer_lock import is_locked
from bfcviz.live.tensorflow.windows import files_of_windows, whole_windows

_PARTIAL: Final = f"{EARLIER}.partial"
"""Its name until all of it is moved there: an interrupted move is undone, whatever is in either folder."""

_LOOK_S: Final = 0.5
"""Seconds between two looks for the first event."""


class EarlierRecording:
    """The recording that a new one replaces: in a hidden subfolder until the new one has its first event.

    Args:
        folder: of both.

    Raises:
        FileError: it cannot be moved.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._has_ended = Event()
        try:
            _move(folder, folder / _PARTIAL)
            (folder / _PARTIAL).rename(folder / EARLIER)
        except OSError as error:
            _undo(folder)
            raise FileError(folder, "", f"cannot be emptied: {error.strerror}: {error.filename}") from error
        self._watch = Thread(target=self._remove_when_replaced, name="bfcviz-replace", daemon=True)
        self._watch.start()

    def is_kept(self) -> bool:
        """Whether it is there, and the new recording has no event."""
        return (self._folder / EARLIER).is_dir() and not _has_events(self._folder)

    def settle(self) -> None:
        """At the end of the program: remove it if it is replaced, otherwise the new one, and move it back."""
        self._has_ended.set()
        self._watch.join()
        _settle(self._folder)

    def _remove_when_replaced(self) -> None:
        while not self._has_ended.wait(_LOOK_S):
            if _has_events(self._folder):
                rmtree(self._folder / EARLIER, ignore_errors=True)
                return


def _has_events(folder: Path) -> bool:
    return has_events(folder) or bool(whole_windows(folder))


def _is_recorded_to(folder: Path) -> bool:
    return any(is_locked(path / LABELS_FILE) for path in recordings_in(folder).values())


def _undo(folder: Path) -> None:
    """Move back what an interrupted move had moved."""
    partial = folder / _PARTIAL
    if partial.is_dir():
        with suppress(OSError):
            _move(partial, folder)
            partial.rmdir()


def _settle(folder: Path) -> None:
    """Keep one of two recordings: the new one if it has an event, otherwise the earlier one.

    Both stay while a process that the program left behind still records; the next `bfcviz record` settles it.
    """
    _undo(folder)
    earlier = folder / EARLIER
    if not earlier.is_dir() or _is_recorded_to(folder):
        return
    if _has_events(folder):
        rmtree(earlier, ignore_errors=True)
        return
    with suppress(OSError):
        for path in files_of_all(folder) or files_of(folder):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        _move(earlier, folder)
        earlier.rmdir()


def _move(source: Path, target: Path) -> None:
    """Move all files of a folder, except those that the other has already."""
    target.mkdir(PRIVATE_FOLDER, exist_ok=True)
    for path in source.iterdir():
        if path != target and not os.path.lexists(target / path.name):
            path.rename(target / path.name)


def set_aside(folder: Path, *, force: bool) -> EarlierRecording:
    """Set aside the recording in a folder, which must hold nothing else.

    Raises:
        FileError: it holds more, the recording has not ended or cannot be moved, or `force` is false.
    """
    if _is_recorded_to(folder):
        raise FileError(folder, "", "is being recorded to by another process; choose another folder with -o")
    _settle(folder)  # of a `bfcviz record` that was killed
    own = files_of_all(folder) if recordings_in(folder) else files_of_windows(folder)
    others = sorted(path.name for path in {*folder.iterdir()} - {*own})
    if others:
        raise OtherFiles(folder, others)
    if not force:
        raise FileError(
            folder, "", "holds a recording already; choose another folder with -o, or give --force"
        )
    return EarlierRecording(folder)
