"""EarlierRecording: the recording that `bfcviz record --force` replaces, when the new one has its first event."""

import os
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from threading import Event, Thread
from typing import Final

from bfcviz.errors import FileError, OtherFiles
from bfcviz.events.storage.files import EARLIER, PRIVATE_FOLDER, is_locked
from bfcviz.events.storage.folder import (
    LABELS_FILE,
    files_of,
    files_of_all,
    has_folder_events,
    recordings_in,
)
from bfcviz.formats.tensorflow import whole_windows
from bfcviz.importers.tensorflow.profiler_windows import files_of_windows

# ::
#
#     run.bfc/            [ earlier recording ]   before
#     run.bfc/.earlier/   [ earlier recording ]   while the new one has no event; removed then, or moved back at the end
#     run.bfc/            [ new recording ... ]

_PARTIAL: Final = f"{EARLIER}.partial"
"""Its name until all of it is moved there: an interrupted move is undone, whatever is in either folder."""

_LOOK_S: Final = 0.5  # seconds between two looks for the first event


class EarlierRecording:
    """The recording that `bfcviz record --force` replaces: in a hidden subfolder until the new one has an event.

    Args:
        folder: of both.

    Raises:
        FileError: it cannot be moved.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._has_ended = Event()
        try:
            _move_recorded_files(folder, folder / _PARTIAL)
            (folder / _PARTIAL).rename(folder / EARLIER)
        except OSError as error:
            _undo_interrupted_move(folder)
            raise FileError(folder, "", f"cannot be emptied: {error.strerror}: {error.filename}") from error
        self._watch = Thread(target=self._remove_when_replaced, name="bfcviz-replace", daemon=True)
        self._watch.start()

    def is_kept(self) -> bool:
        """Whether the earlier recording is there, and the new one has no event."""
        return (self._folder / EARLIER).is_dir() and not _has_recorded_events(self._folder)

    def settle(self) -> None:
        """At the program's end: remove the earlier recording if it is replaced, else the new one, and move it back."""
        self._has_ended.set()
        self._watch.join()
        _keep_one_recording(self._folder)

    def _remove_when_replaced(self) -> None:
        while not self._has_ended.wait(_LOOK_S):
            if _has_recorded_events(self._folder):
                rmtree(self._folder / EARLIER, ignore_errors=True)
                return


def _has_recorded_events(folder: Path) -> bool:
    """Whether the earlier or the new recording has an event."""
    return has_folder_events(folder) or bool(whole_windows(folder))


def _is_recorded_to(folder: Path) -> bool:
    """Whether a process records to the folder of an earlier recording, which `bfcviz record` then refuses."""
    return any(is_locked(path / LABELS_FILE) for path in recordings_in(folder).values())


def _undo_interrupted_move(folder: Path) -> None:
    """Move back the earlier recording that an interrupted `bfcviz record --force` had moved."""
    partial = folder / _PARTIAL
    if partial.is_dir():
        with suppress(OSError):
            _move_recorded_files(partial, folder)
            partial.rmdir()


def _keep_one_recording(folder: Path) -> None:
    """Keep the earlier recording or the new one: the new one if it has an event, otherwise the earlier one.

    Both stay while a process that the program left behind still records; the next `bfcviz record` settles it.
    """
    _undo_interrupted_move(folder)
    earlier = folder / EARLIER
    if not earlier.is_dir() or _is_recorded_to(folder):
        return
    if _has_recorded_events(folder):
        rmtree(earlier, ignore_errors=True)
        return
    with suppress(OSError):
        for path in files_of_all(folder) or files_of(folder):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        _move_recorded_files(earlier, folder)
        earlier.rmdir()


def _move_recorded_files(source: Path, target: Path) -> None:
    """Move all files of an earlier recording, except those that the other folder has already."""
    target.mkdir(PRIVATE_FOLDER, exist_ok=True)
    for path in source.iterdir():
        if path != target and not os.path.lexists(target / path.name):
            path.rename(target / path.name)


def set_aside(folder: Path, *, force: bool) -> EarlierRecording:
    """Set aside the earlier recording that `bfcviz record --force` replaces; its folder must hold nothing else.

    Raises:
        FileError: it holds more, the recording has not ended or cannot be moved, or `force` is false.
    """
    if _is_recorded_to(folder):
        raise FileError(folder, "", "is being recorded to by another process; choose another folder with -o")
    _keep_one_recording(folder)  # of a `bfcviz record` that was killed
    own = files_of_all(folder) if recordings_in(folder) else files_of_windows(folder)
    others = sorted(path.name for path in {*folder.iterdir()} - {*own})
    if others:
        raise OtherFiles(folder, others)
    if not force:
        raise FileError(
            folder, "", "holds a recording already; choose another folder with -o, or give --force"
        )
    return EarlierRecording(folder)
