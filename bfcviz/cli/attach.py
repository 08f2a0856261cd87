"""`bfcviz attach`: the heap of another process as a live page, from the recording which that one is writing."""

import argparse
import asyncio
import math
import sys
import threading
from pathlib import Path
from typing import Any

from bfcviz.cli import view
from bfcviz.errors import BfcvizError
from bfcviz.events.storage.wait_for_recording import await_recording, has_begun
from bfcviz.live.process.record import CLAIM
from bfcviz.live.tensorflow.windows import whole_windows
from bfcviz.terminal import say

WAIT_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bfcviz attach` takes."""
    parser.add_argument(
        "file", metavar="FOLDER", help="what `bfcviz record -o FOLDER` writes, now, soon or in the past"
    )
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=WAIT_S,
        metavar="SECONDS",
        help=f"how long to wait for a recording that has not begun (default: {WAIT_S:g})",
    )
    view.add_page_arguments(parser)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} seconds cannot be waited; give 0 or more")
    return seconds


def run(arguments: argparse.Namespace) -> None:
    """Wait for the recording, then serve its page until Ctrl-C.

    Raises:
        MissingExtra: Voila is not installed.
        FileError: the path is no recording.
        BfcvizError: none has begun in time, or nothing can listen at that address.
    """
    view.need_voila("bfcviz attach")
    path = Path(arguments.file)
    if not _has_begun(path):
        say(f"Waiting for a recording in {path}; Ctrl-C ends it.", file=sys.stderr)
    await_recording(path, arguments.wait, _has_begun)
    view.serve_page(view.page_code(arguments.file, arguments.theme, __name__), arguments)


def dashboard(file: str, theme: str) -> Any:
    """The page: a LiveDashboard of the recording, or TensorFlow's windows; or why there is none."""
    from bfcviz.dashboard.follow import follow  # noqa: PLC0415  widgets; the server needs none

    try:
        return (
            _windows(Path(file), theme) if _has_windows(Path(file)) else follow(file, wait_s=0, theme=theme)
        )
    except BfcvizError as error:
        say(f"bfcviz: error: {error}")
        return None


def _has_begun(path: Path) -> bool:
    return _has_windows(path) or has_begun(path)


def _has_windows(path: Path) -> bool:
    """Whether TensorFlow is recorded there, in windows, or was."""
    return (path / CLAIM).exists() or bool(whole_windows(path))


def _windows(folder: Path, theme: str) -> Any:
    """A view of the newest window; read in a thread, shown by the kernel's own."""
    from bfcviz.dashboard.trace_series import Series  # noqa: PLC0415
    from bfcviz.importers.tensorflow.profiler_windows import landed  # noqa: PLC0415

    series, loop = Series("window", theme=theme), asyncio.get_running_loop()

    def read() -> None:
        for window in landed(folder, ended=threading.Event()):
            if window.trace is None:
                loop.call_soon_threadsafe(series.say, str(window.error))
            else:
                loop.call_soon_threadsafe(series.add, window.path.name, window.trace)

    threading.Thread(target=read, daemon=True).start()
    return series
