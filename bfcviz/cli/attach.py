"""`bfcviz attach`: show the heaps of other processes as a live page, from the recordings that they are writing."""

import argparse
import asyncio
import math
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import Any

from bfcviz.cli import view
from bfcviz.errors import EmptyPath
from bfcviz.events.storage.folder import await_recording, has_begun, has_several
from bfcviz.formats.tensorflow import whole_windows
from bfcviz.live.recorded_process import CLAIM
from bfcviz.terminal import say

WAIT_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz attach`."""
    parser.add_argument(
        "file",
        metavar="FOLDER",
        help="the folder of `bfcviz record -o FOLDER`, before, during or after the recording",
    )
    parser.add_argument(
        "--wait",
        type=_parse_wait_seconds,
        default=WAIT_S,
        metavar="SECONDS",
        help=f"how long to wait for the recording to start (default: {WAIT_S:g})",
    )
    view.add_view_arguments(parser)


def _parse_wait_seconds(text: str) -> float:
    """The seconds of `bfcviz attach --wait`."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; give 0 or more")
    return seconds


def run(arguments: argparse.Namespace) -> None:
    """Wait for the recording that `bfcviz attach` is to show, then serve its page until Ctrl-C.

    Raises:
        MissingExtra: Voila is not installed.
        FileError: the path is not a recording.
        BfcvizError: no recording started in time, or the server cannot listen at that address.
    """
    view.need_voila_to_view("bfcviz attach")
    if not arguments.file:
        raise EmptyPath
    path = Path(arguments.file)
    if not _can_attach(path):
        say(f"Waiting for a recording in {path}; press Ctrl-C to stop.", file=sys.stderr)
    await_recording(path, arguments.wait, _can_attach)
    view.serve_view(arguments, __name__)


def prepare(_file: str) -> None:
    """Do nothing for `bfcviz attach`: the recording grows until the page shows it."""


def dashboard(file: str, theme: str) -> Any:
    """Make the page of `bfcviz attach`: of one process, of all that record there, or of TensorFlow's windows.

    Raises:
        BfcvizError: nothing there can be shown.
    """
    from bfcviz.dashboard.live_dashboard import follow  # noqa: PLC0415  the server needs no widgets
    from bfcviz.watching.workers_dashboard import follow_workers  # noqa: PLC0415

    path = Path(file)
    if _has_windows(path):
        return _newest_window_view(path, theme)
    return follow_workers(path, theme=theme) if has_several(path) else follow(file, wait_s=0, theme=theme)


def _can_attach(path: Path) -> bool:
    """Whether there is something in the folder that `bfcviz attach` can show."""
    return bool(whole_windows(path)) or (not (path / CLAIM).exists() and has_begun(path))


def _has_windows(path: Path) -> bool:
    """Whether `bfcviz attach` shows windows of TensorFlow's profiler: the folder holds them, or will."""
    return (path / CLAIM).exists() or bool(whole_windows(path))


def _newest_window_view(folder: Path, theme: str) -> Any:
    """What `bfcviz attach` shows of windows: the newest; a thread reads them, the kernel's event loop shows them.

    The page gets the widgets of the windows that are there, all at once. Later windows are read once it has said
    something: while it is busy making those, more of them would only make the first picture late.
    """
    from bfcviz.dashboard.trace_menus import LiveSeries  # noqa: PLC0415
    from bfcviz.importers.tensorflow.profiler_windows import ProfilerWindow, open_windows  # noqa: PLC0415

    series, loop = LiveSeries("window", theme=theme), asyncio.get_running_loop()
    windows = open_windows(folder, ended=series.ended)

    def show(window: ProfilerWindow, *, is_last: bool = True) -> None:
        if window.trace is None:
            series.say(str(window.error))
        else:
            series.add(window.path.name, window.trace, is_last=is_last)

    there = list(islice(windows, len(whole_windows(folder))))
    newest = next((window for window in reversed(there) if window.trace is not None), None)
    for window in there:
        show(window, is_last=window is newest)

    def read() -> None:
        for window in windows:
            if series.ended.is_set():  # the loop may have ended with it
                return
            loop.call_soon_threadsafe(show, window)

    reader = threading.Thread(target=read, name="bfcviz-windows", daemon=True)

    def page_speaks(*_: object) -> None:
        if reader.ident is None:
            reader.start()

    if series.inspector is None:
        page_speaks()
    else:
        series.inspector.page.on_msg(page_speaks)
    return series
