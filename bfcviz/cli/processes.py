"""The number of a process in place of a file: the recording that it writes now, or what can be done without one."""

import json
import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Final

from bfcviz.errors import FileError
from bfcviz.events.storage.folder import EVENTS_FILE

_PROCESSES: Final = Path("/proc")
_RECORD: Final = "BFCVIZ_RECORD="
_START: Final = "start it by `bfcviz record -- COMMAND`, or with --on-oom, which costs next to nothing"


def recorded_folder(word: str) -> str:
    """The folder that a running process records into, where a word is the number of one; else the word itself.

    Raises:
        FileError: it is a number, names no file, and no process with this number is recorded.
    """
    if not (word.isascii() and word.isdecimal()) or os.path.lexists(word) or not _PROCESSES.is_dir():
        return word
    try:
        return str(_recording_of_process(_PROCESSES / word.lstrip("0").rjust(1, "0")))
    except (FileNotFoundError, ProcessLookupError):
        raise FileError(
            word,
            "",
            "there is no such file, and no process of this number on this machine now. If it was recorded, give the "
            "folder of `bfcviz record -o` (run.bfc where none was given); if it printed an error, its log",
        ) from None
    except PermissionError:
        raise FileError(
            word,
            "",
            f"there is no such file. The process of this number is one of {_owner_of(word)}, and you may not look "
            "whether it is recorded: if it is, give the folder of `bfcviz record -o`",
        ) from None


def _recording_of_process(process: Path) -> Path:
    """The folder of its recording, or of that of the program that it runs."""
    name = (process / "comm").read_text().strip()
    listed = process / "task" / process.name / "children"  # not of every kernel
    children = listed.read_text().split() if listed.exists() else []
    for each in (process, *(_PROCESSES / child for child in children)):
        with suppress(FileNotFoundError):  # a file that was just closed, or a child that has ended
            for link in (each / "fd").iterdir():
                target = link.readlink()
                if target.name == EVENTS_FILE:
                    is_here = target.exists() and target.samefile(link)  # else it is in a container
                    return target.parent if is_here else each / "root" / target.parent.relative_to("/")
    settings = next(
        (
            part
            for part in (process / "environ").read_text("utf-8", "replace").split("\0")
            if part.startswith(_RECORD)
        ),
        "",
    )
    if not settings:
        why = (
            f"there is no such file. Process {process.name} ({name}) runs without a recording, and bfcviz looks into "
            f"no process that it did not start: {_START}. What it holds of a GPU, the driver's tool tells (nvidia-smi)"
        )
    else:
        asked = json.loads(settings.removeprefix(_RECORD))
        why = f"there is no such file. Process {process.name} ({name}) "
        if "flight" in asked:
            why += (
                f"keeps its newest events in memory: kill -USR2 {process.name} writes them into {asked['folder']}, "
                "which bfcviz then reads"
            )
        else:
            why += (
                f"is to record into {asked['folder']}, and does not write there now: it has not imported the framework "
                "yet, or its recording has ended"
            )
    raise FileError(process.name, "", why)


def _owner_of(word: str) -> str:
    try:
        return f"user {pwd.getpwuid((_PROCESSES / word).stat().st_uid).pw_name}"
    except (KeyError, OSError):
        return "another user"
