"""A folder with several recordings, one for each process: the workers of a cluster, or the ranks of a program.

::

    run.bfc/               may be a recording itself: of the process that started the others
        rank-0/            origin.json, labels.jsonl, events.bin
        rank-1/
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from bfcviz.errors import FileError
from bfcviz.events.storage.files import PRIVATE_FOLDER
from bfcviz.events.storage.recording_files import EVENTS_FILE, LABELS_FILE, ORIGIN_FILE, files_of, find_end

MAIN: Final = "main"
"""The name of the recording that is the folder itself."""

_LONGEST_NAME: Final = 80
_MOST_TRIES: Final = 10_000


def recordings_in(folder: Path) -> dict[str, Path]:
    """The recordings in a folder by their names; `rank-10` comes after `rank-9`. Empty if there is no such folder."""
    found = {MAIN: folder} if (folder / ORIGIN_FILE).is_file() else {}
    for place in sorted(_subfolders(folder), key=_in_order):
        if (place / ORIGIN_FILE).is_file():
            found[place.name] = place
    return found


def has_several(folder: Path) -> bool:
    """Whether the folder has recordings in subfolders."""
    return any((place / ORIGIN_FILE).is_file() for place in _subfolders(folder))


def has_events(folder: Path) -> bool:
    """Whether a recording in the folder has an event; False where none can be read."""
    for place in recordings_in(folder).values():
        with suppress(OSError), (place / EVENTS_FILE).open("rb") as file:
            if find_end(file.fileno(), 0):
                return True
    return False


def files_of_all(folder: Path) -> list[Path]:
    """The files of all recordings in a folder, and their subfolders without other files, in the order of removal."""
    found = files_of(folder) if _is_recording(folder) else []
    for place in filter(_is_recording, _subfolders(folder)):
        own = files_of(place)
        if {*place.iterdir()} == {*own}:
            found += [*own, place]
    return found


def _is_recording(folder: Path) -> bool:
    return (folder / ORIGIN_FILE).is_file() and (folder / LABELS_FILE).is_file()


def claim_subfolder(folder: Path, name: str) -> Path:
    """Make a new subfolder for the recording of one process: `name`, or `name-2`, `name-3` ... if it exists.

    Args:
        folder: the folder of all recordings.
        name: of a worker or rank; characters that do not belong into the name of a file become `_`.

    Raises:
        FileError: the subfolder cannot be made.
    """
    safe = re.sub(r"[^\w.+-]+", "_", name)[:_LONGEST_NAME].strip("._") or "worker"
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


def _subfolders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):  # it does not exist, or was removed
        for place in folder.iterdir():
            if not place.name.startswith(".") and place.is_dir() and not place.is_symlink():
                yield place


def _in_order(place: Path) -> list[tuple[bool, int, str]]:
    """A key that sorts numbers in names by their value."""
    parts = re.split(r"(\d+)", place.name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
