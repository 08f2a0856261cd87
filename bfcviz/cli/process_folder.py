"""The number of a process in place of a file: the folder that it records into now, or what can be done without one."""

import json
import os
import pwd
import re
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bfcviz.errors import FileError

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
    """The folder that a running process records into, or the program that it runs."""
    from bfcviz.events.storage.folder import EVENTS_FILE  # noqa: PLC0415  only for a number

    name = (process / "comm").read_text("utf-8", "replace").strip()
    listed = process / "task" / process.name / "children"  # not of every kernel
    children = [_PROCESSES / child for child in listed.read_text().split()] if listed.exists() else []
    for each in (process, *children):
        for link, target in _written_files(each):
            if target.name == EVENTS_FILE:
                is_here = target.exists() and target.samefile(link)  # else it is in a container
                return target.parent if is_here else each / "root" / target.parent.relative_to("/")
    told, order = process, _record_order(process)
    for child in children:
        with suppress(OSError):
            told, order = (told, order) if order else (child, _record_order(child))
    why = f"there is no such file. Process {process.name} ({name}) "
    if not order:
        why += (
            f"runs without a recording, and bfcviz looks into no process that it did not start: {_START}. What it "
            "holds of a GPU, the driver's tool tells (such as nvidia-smi)"
        )
    elif "flight" in order and _handles(told, signal.SIGUSR2):
        why += (
            f"keeps its newest events in memory: kill -USR2 {told.name} writes them into {order['folder']}, which "
            "bfcviz then reads"
        )
    else:
        why += (
            f"is to record into {order['folder']}, and does not now: it has not imported the framework yet, or its "
            "recording has ended"
        )
    raise FileError(process.name, "", why)


def _written_files(process: Path) -> Iterator[tuple[Path, Path]]:
    """The links of the files that a process may write to, and what they lead to; a view of a recording only reads it.

    None where the process is another user's, or has ended.
    """
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):  # it was just closed
                if link.lstat().st_mode & stat.S_IWUSR:
                    yield link, link.readlink()


def _record_order(process: Path) -> dict[str, Any]:
    """What `bfcviz record` told a process that it started; empty: it did not."""
    settings = (process / "environ").read_text("utf-8", "replace").split("\0")
    told = (each.removeprefix(_RECORD) for each in settings if each.startswith(_RECORD))
    with suppress(ValueError):  # it may have been set by hand
        if isinstance(order := json.loads(next(told, "{}")), dict):
            return order
    return {}


def is_told_to_record(word: str) -> bool:
    """Whether `bfcviz record` told a process that runs now of this folder; also where the system does not say it."""
    return not _PROCESSES.is_dir() or any(word in order.values() for order in _record_orders())


def _record_orders() -> Iterator[dict[str, Any]]:
    for process in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it is another user's, or has ended
            if order := _record_order(process):
                yield order


def _handles(process: Path, number: signal.Signals) -> bool:
    """Whether a running process handles a signal, which ends it otherwise."""
    status = (process / "status").read_text("utf-8", "replace")
    handled = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)
    return handled is not None and bool(int(handled[1], 16) >> (number - 1) & 1)


def _owner_of(word: str) -> str:
    """The user whose process has this number, in words."""
    try:
        return f"user {pwd.getpwuid((_PROCESSES / word).stat().st_uid).pw_name}"
    except (KeyError, OSError):
        return "another user"
