"""`bfcviz record`: a program as it is, with its heap recorded."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import bfcviz
from bfcviz.cli import child_process
from bfcviz.cli.command import DONE, FAILED
from bfcviz.cli.framework_options import Selection, add_framework_arguments, selection_of
from bfcviz.errors import BfcvizError, FileError, LiveError, OtherFiles
from bfcviz.terminal import say

EPILOG: Final = """\
Recording begins in the first Python process that imports the framework, after that import, and ends with Python. The
program's code, input, output, signals and exit status are its own; the status is 1 where the program ended well and
its recording could not be written (a full disk, a folder that was removed). Other processes (multiprocessing's
workers, what the program starts) run as ever and are counted, not recorded. A program that is no Python, or Python
with -I, -E or -S, runs unrecorded, and that is said. With CuPy, PyTorch, RMM and JAX the GPU is first used as recording
begins: what a program does between the import and its own first use (fork workers, configure JAX) may then come too
late."""

_PACKAGE: Final = Path(bfcviz.__file__).parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bfcviz record` takes."""
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
        help="remove a recording that is there and has ended; refused where the folder holds anything else",
    )
    add_framework_arguments(parser)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND ...",
        help="such as python train.py --epochs 3",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command, recorded, and return its exit status; 1 where that is 0 and the recording cannot be written.

    Raises:
        FileError: the folder is taken, or cannot be made.
        BfcvizError: the command cannot be started.
    """
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not words:
        arguments.refuse("no command was given; write it last: bfcviz record -o run.bfc -- python train.py")
    selection = _selection(arguments)
    folder = arguments.out.absolute()
    # The lock and --force bring NumPy along, and it threads.
    with (
        _place_for_words() as told,
        child_process.signals_kept() as mask,
        _held(folder, force=arguments.force),
    ):
        try:
            status = child_process.run(words, _environment(_order(selection, folder, told)), mask)
            is_recorded = _sum_up(arguments.out, Path(told))
        finally:
            with suppress(OSError):  # it holds something, or the program has taken it away
                folder.rmdir()
    return status or (DONE if is_recorded else FAILED)


@contextmanager
def _held(folder: Path, *, force: bool) -> Iterator[None]:
    """Make the folder, empty, and hold it: another `bfcviz record` that wants it is refused before anything runs."""
    from bfcviz.events.storage.writer_lock import hold_folder  # noqa: PLC0415

    if not folder.is_dir():
        make_way(folder, force=force)
    with hold_folder(folder):
        make_way(folder, force=force)
        yield


@contextmanager
def _place_for_words() -> Iterator[str]:
    try:
        place = tempfile.TemporaryDirectory(prefix="bfcviz-record-", ignore_cleanup_errors=True)
    except OSError as error:
        raise BfcvizError(
            f"recorded processes cannot write their reports to {tempfile.gettempdir()}: {error.strerror}; make "
            "room there, or set TMPDIR to another folder"
        ) from error
    with place as told:
        yield told


def _selection(arguments: argparse.Namespace) -> Selection:
    try:
        return selection_of(arguments)
    except LiveError as error:
        arguments.refuse(str(error))
        raise


def _sum_up(folder: Path, told: Path) -> bool:
    """Print the one line; returns whether everything was written."""
    from bfcviz.cli.recording_summary import summary  # noqa: PLC0415  NumPy and more, not needed until now

    try:
        line, is_written = summary(folder, told)
    except (BfcvizError, OSError) as error:
        line, is_written = f"error: {error}", False
    say(f"bfcviz: {line}", file=sys.stderr)
    return is_written


def make_way(folder: Path, *, force: bool) -> None:
    """Make the folder, empty; one that is there must be empty, or with `force` a recording that has ended.

    Raises:
        FileError: it is anything else, or cannot be made.
    """
    if folder.is_dir() and any(folder.iterdir()):
        _take_away(folder, force=force)
    elif folder.exists() and not folder.is_dir():
        raise FileError(folder, "", "is in the way of a recording, which is a folder; choose another with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, "", f"cannot hold a recording: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise FileError(folder, "", "cannot hold a recording: it may not be written to")


def _take_away(folder: Path, *, force: bool) -> None:
    from bfcviz.events.storage.folder_reader import LABELS_FILE, ORIGIN_FILE, files_of  # noqa: PLC0415  with NumPy, seldom needed
    from bfcviz.events.storage.writer_lock import is_locked  # noqa: PLC0415
    from bfcviz.live.tensorflow.windows import files_of_windows  # noqa: PLC0415

    is_recording = (folder / ORIGIN_FILE).is_file() and (folder / LABELS_FILE).is_file()
    own = files_of(folder) if is_recording else files_of_windows(folder)
    others = sorted(path.name for path in {*folder.iterdir()} - {*own})
    if others:
        raise OtherFiles(folder, others)
    if is_recording and is_locked(folder / LABELS_FILE):
        raise FileError(folder, "", "is being recorded to by another process; choose another folder with -o")
    if not force:
        raise FileError(
            folder, "", "holds a recording already; choose another folder with -o, or give --force"
        )
    try:
        for path in own:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    except OSError as error:
        raise FileError(folder, "", f"cannot be emptied: {error.strerror}: {error.filename}") from error


def _order(selection: Selection, folder: Path, told: str) -> dict[str, Any]:
    return {
        **selection._asdict(),
        "folder": str(folder),
        "told": told,
        "home": str(_PACKAGE.parent),
    }


def _environment(order: dict[str, Any]) -> dict[str, str]:
    places = [str(_PACKAGE / "live" / "startup"), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(place for place in places if place)
    return {**os.environ, "PYTHONPATH": path, "BFCVIZ_RECORD": json.dumps(order)}
