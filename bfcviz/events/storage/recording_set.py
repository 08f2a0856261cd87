"""A folder with several recordings, one for each process: the workers of a cluster, or the ranks of a program.

::

    run.bfc/               may be a recording itself: of the process that started the others
        rank-0/            origin.json, labels.jsonl, events.bin
        rank-1/
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.storage.files import PRIVATE_FOLDER, reading
from bfcviz.events.storage.folder import (
    BLOCKS_FILE,
    EVENTS_FILE,
    LABELS_FILE,
    ORIGIN_FILE,
    files_of,
    find_end,
)

# ------------------------------------------------------------------------------
# A folder with several recordings, one for each process: the workers of a cluster, or the ranks of a program.

MAIN: Final = "main"
"""The name of the recording that is the folder itself."""

_LONGEST_NAME: Final = 80
_MOST_TRIES: Final = 10_000


def recordings_in(folder: Path) -> dict[str, Path]:
    """The recordings in a folder by their names; `rank-10` comes after `rank-9`. Empty if there is no such folder."""
    found = {MAIN: folder} if (folder / ORIGIN_FILE).is_file() else {}
    for place in sorted(_recording_subfolders(folder), key=in_order):
        if (place / ORIGIN_FILE).is_file():
            found[place.name] = place
    return found


def has_several(folder: Path) -> bool:
    """Whether the folder has recordings in subfolders."""
    return any((place / ORIGIN_FILE).is_file() for place in _recording_subfolders(folder))


def has_events(folder: Path) -> bool:
    """Whether a recording in the folder has an event; False where none can be read."""
    for place in recordings_in(folder).values():
        if (place / BLOCKS_FILE).is_file():
            return True
        with suppress(OSError), (place / EVENTS_FILE).open("rb") as file:
            if find_end(file.fileno(), 0):
                return True
    return False


def files_of_all(folder: Path) -> list[Path]:
    """The files of all recordings in a folder, and their subfolders without other files, in the order of removal."""
    found = files_of(folder) if _is_recording(folder) else []
    for place in filter(_is_recording, _recording_subfolders(folder)):
        own = files_of(place)
        if {*place.iterdir()} == {*own}:
            found += [*own, place]
    return found


def _is_recording(folder: Path) -> bool:
    return (folder / ORIGIN_FILE).is_file() and (folder / LABELS_FILE).is_file()


def safe_name(name: str) -> str:
    """A text as the name of a file: characters that do not belong into one become `_`, and it is not hidden."""
    return re.sub(r"[^\w.+-]+", "_", name)[:_LONGEST_NAME].strip("._") or "worker"


def claim_subfolder(folder: Path, name: str) -> Path:
    """Make a new subfolder for the recording of one process: `name`, or `name-2`, `name-3` ... if it exists.

    Args:
        folder: the folder of all recordings.
        name: of a worker or rank; `safe_name` is applied to it.

    Raises:
        FileError: the subfolder cannot be made.
    """
    safe = safe_name(name)
    for number in range(1, _MOST_TRIES):
        place = folder / (safe if number == 1 else f"{safe}-{number}")
        try:
            place.mkdir(PRIVATE_FOLDER)
        except FileExistsError:
            continue
        except OSError as error:
            raise FileError(place, "", f"cannot hold a recording: {error.strerror}") from error
        return place
    raise FileError(folder, "", f"has {_MOST_TRIES} recordings of {safe} already; give another folder")


def _recording_subfolders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):  # it does not exist, or was removed
        for place in folder.iterdir():
            if not place.name.startswith(".") and place.is_dir() and not place.is_symlink():
                yield place


def in_order(place: Path | str) -> list[tuple[bool, int, str]]:
    """A key that sorts the numbers in paths by their value."""
    parts = re.split(r"(\d+)", str(place))
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


# ------------------------------------------------------------------------------
# Wait until another process starts a recording.

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
        return _has_recording_begun(path)


def _has_recording_begun(path: Path) -> bool:
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
