"""`bfcviz record`: run an unchanged program and record its heap."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import bfcviz
from bfcviz.cli.command import DONE, FAILED
from bfcviz.cli.common import child_process
from bfcviz.cli.common.framework_options import Selection, add_framework_arguments, selection_of
from bfcviz.errors import BfcvizError, FileError, LiveError
from bfcviz.terminal import say

if TYPE_CHECKING:
    from bfcviz.cli.common.earlier_recording import EarlierRecording

EPILOG: Final = """\
Recording starts in each Python process that imports the framework, after that import, and ends with that process. The
first process records into the folder itself; ranks (of torchrun, or with RANK), workers of multiprocessing and further
processes into subfolders, rank-0, rank-1 and so on: `bfcviz attach FOLDER` shows all of them. Not recorded are
processes forked without multiprocessing, or forked and on a GPU; their number is reported. The program keeps its own
code, input, output, signals and exit status. The status is 1 if the program succeeded but a recording could not be
written (a full disk, a removed folder). A program that is not Python, or Python with -I, -E or -S, runs without a
recording, and a message says so. With CuPy, PyTorch, RMM and JAX the GPU is first used when the
recording starts: what the program does between the import and its own first use (fork workers, configure JAX) may then
be too late."""

_PACKAGE: Final = Path(bfcviz.__file__).parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz record`."""
    parser.epilog = EPILOG
    parser.set_defaults(refuse=parser.error)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("run.bfc"),
        metavar="FOLDER",
        help="a new folder for the recording (default: run.bfc)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace a recording that has ended, when the new one has its first event; refused if the folder "
        "contains other files",
    )
    parser.add_argument(
        "--no-command",
        dest="keeps_command",
        action="store_false",
        help="leave the command line out of the recording (otherwise values that look like keys, tokens or "
        "passwords are masked in it)",
    )
    add_framework_arguments(parser)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND ...",
        help="the program to run, such as python train.py --epochs 3",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and record it; return its exit status, or 1 if that is 0 and the recording cannot be written.

    Raises:
        FileError: the folder is in use, or cannot be made.
        BfcvizError: the command cannot be started.
    """
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not words:
        arguments.refuse("no command was given; put it last: bfcviz record -o run.bfc -- python train.py")
    selection = _selection(arguments)
    folder = arguments.out.absolute()
    # The lock and --force import NumPy, which starts threads: signals are blocked first.
    with (
        _report_folder() as reports,
        child_process.signals_blocked() as mask,
        _locked_folder(folder, force=arguments.force) as earlier,
    ):
        request = _request(selection, folder, reports, keeps_command=arguments.keeps_command)
        try:
            status = child_process.run(words, _environment(request), mask)
            is_recorded = _print_summary(arguments.out, Path(reports), earlier)
        finally:
            if earlier is not None:
                earlier.settle()
            with suppress(OSError):  # it is not empty, or the program has removed it
                folder.rmdir()
    return status or (DONE if is_recorded else FAILED)


@contextmanager
def _locked_folder(folder: Path, *, force: bool) -> Iterator["EarlierRecording | None"]:
    """Make an empty folder and lock it: another `bfcviz record` for this folder fails before its program runs.

    Yields the recording that was in it, with `force`.
    """
    from bfcviz.events.storage.writer_lock import hold_folder  # noqa: PLC0415

    if not folder.is_dir():
        prepare_folder(folder, force=force)
    with hold_folder(folder):
        yield prepare_folder(folder, force=force)


@contextmanager
def _report_folder() -> Iterator[str]:
    """Make a temporary folder, in which each recorded process writes its reports."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="bfcviz-record-", ignore_cleanup_errors=True)
    except OSError as error:
        raise BfcvizError(
            f"recorded processes cannot write their reports to a temporary folder: {error.strerror}; free some space, "
            "or set TMPDIR to another folder"
        ) from error
    with folder as path:
        yield path


def _selection(arguments: argparse.Namespace) -> Selection:
    try:
        return selection_of(arguments)
    except LiveError as error:
        arguments.refuse(str(error))
        raise


def _print_summary(folder: Path, reports: Path, earlier: "EarlierRecording | None") -> bool:
    """Print one line about the recording; return whether everything was written."""
    from bfcviz.cli.common.recording_summary import NOTHING, summary  # noqa: PLC0415  imports NumPy, first needed here

    is_kept = earlier is not None and earlier.is_kept()
    try:
        line, is_written = summary(folder, reports)
        if is_kept and not line.startswith(NOTHING):
            line = f"{NOTHING}the program ended before the first event"
    except (BfcvizError, OSError) as error:
        line, is_written = f"error: {error}", False
    if is_kept:
        line += f"; the earlier recording in {folder} is kept"
    say(f"bfcviz: {line}", file=sys.stderr)
    return is_written


def prepare_folder(folder: Path, *, force: bool) -> "EarlierRecording | None":
    """Make an empty folder; an existing one must be empty, or with `force` a recording that has ended.

    Returns:
        That recording, set aside.

    Raises:
        FileError: the folder contains other files, or cannot be made.
    """
    from bfcviz.cli.common.earlier_recording import set_aside  # noqa: PLC0415  imports NumPy
    from bfcviz.events.storage.files import PRIVATE_FOLDER  # noqa: PLC0415

    earlier = None
    if folder.is_dir() and any(folder.iterdir()):
        earlier = set_aside(folder, force=force)
    elif folder.exists() and not folder.is_dir():
        raise FileError(folder, "", "is a file, and a recording is a folder; choose another path with -o")
    try:
        folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, "", f"cannot hold a recording: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise FileError(folder, "", "cannot hold a recording: no permission to write to it")
    return earlier


def _request(selection: Selection, folder: Path, reports: str, *, keeps_command: bool) -> dict[str, Any]:
    """What the recorded process is to do, for `live.process.startup`."""
    return {
        **selection._asdict(),
        "folder": str(folder),
        "told": reports,
        "command": keeps_command,
        "home": str(_PACKAGE.parent),
    }


def _environment(request: dict[str, Any]) -> dict[str, str]:
    folders = [str(_PACKAGE / "live" / "process" / "startup"), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(folder for folder in folders if folder)
    return {**os.environ, "PYTHONPATH": path, "BFCVIZ_RECORD": json.dumps(request)}
