"""`bfcviz attach`: the heap of another process as a live page, from the recording which that one is writing."""

import argparse
import sys
from pathlib import Path
from typing import Any

from bfcviz.cli import view
from bfcviz.errors import BfcvizError
from bfcviz.events.awaiting import await_recording, has_begun

WAIT_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bfcviz attach` takes."""
    parser.add_argument(
        "file", metavar="FOLDER", help="what `bfcviz record -o FOLDER` writes, now, soon or in the past"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=WAIT_S,
        metavar="SECONDS",
        help=f"how long to wait for a recording that has not begun (default: {WAIT_S:g})",
    )
    view.add_page_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Wait for the recording, then serve its page until Ctrl-C.

    Raises:
        MissingExtra: Voila is not installed.
        FileError: the path is no recording.
        BfcvizError: none has begun in time, or nothing can listen at that address.
    """
    view.need_voila("bfcviz attach")
    path = Path(arguments.file)
    if not has_begun(path):
        print(f"Waiting for a recording in {path}; Ctrl-C ends it.", file=sys.stderr, flush=True)
    await_recording(path, arguments.wait)
    view.serve_page(view.page_code(arguments.file, arguments.theme, __name__), arguments)


def dashboard(file: str, theme: str) -> Any:
    """The page: a LiveDashboard of the recording; or why there is none."""
    from bfcviz.dashboard.follow import follow  # noqa: PLC0415  widgets; the server needs none

    try:
        return follow(file, wait=0, theme=theme)
    except BfcvizError as error:
        print(f"bfcviz: error: {error}")
        return None
