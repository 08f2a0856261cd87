"""The progress bar of a command: one line on a terminal, while a file is read, ranks are read, or a search runs."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace, others_than_opened
from bfcviz.periodic import Periodic
from bfcviz.terminal import printable, say

if TYPE_CHECKING:  # a command that needs it waits for its import, and no other
    from bfcviz.whatif.search import SearchControl

_QUIET_S: Final = 0.5  # nothing is shown for so long: most files are read sooner

_PAUSE_S: Final = 0.2
_WIDTH: Final = 30
_ERASE: Final = "\r\x1b[K"


class ProgressBar:
    """One line on a terminal that shows progress: what is read, how much of it, and for how long; a thread draws it."""

    def __init__(self, text: str, stream: TextIO) -> None:
        self.share: float | None = None  # how much is done, 0..1; None: unknown
        self._text = printable(text)
        self._stream = stream
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._is_drawn = False
        self._is_over = False

    def draw(self) -> float | None:
        """Draw the progress bar; returns the seconds until the next time."""
        with self._lock:
            if self._is_over:
                return None
            elapsed = time.monotonic() - self._began
            if elapsed >= _QUIET_S:
                self._is_drawn = True
                self._stream.write(f"{_ERASE}{self._text} {self._bar()}{elapsed:.0f} s")
                self._stream.flush()
            return _PAUSE_S

    def count(self, done: int, total: int) -> None:
        """Note for the progress bar that so many of all are done."""
        self.share = done / max(total, 1)

    def erase(self) -> None:
        """Remove the progress bar; it is not drawn again."""
        with self._lock:
            self._is_over = True
            if self._is_drawn:
                self._stream.write(_ERASE)
                self._stream.flush()

    def _bar(self) -> str:
        if self.share is None:
            return ""
        full = int(_WIDTH * self.share)
        return f"[{'#' * full}{'.' * (_WIDTH - full)}] {100 * self.share:3.0f} % "


class _CountedTrace(Trace):
    """A trace that tells a progress bar how far its events were read."""

    def __init__(self, trace: Trace, bar: ProgressBar) -> None:
        super().__init__(trace.source)
        self.path = trace.path
        self._bar = bar

    def read(self, start: int, stop: int) -> Events:
        """As `Trace.read`."""
        if stop - start > 1:  # not one that looks at a single event
            self._bar.share = stop / max(len(self), 1)
        return super().read(start, stop)


@contextmanager
def open_with_progress(file: str, *, says_others: bool = True) -> Iterator[Trace]:
    """Open a file; until the end of the `with` a progress bar on a terminal shows how much of it was read.

    Args:
        file: to open.
        says_others: name the other recordings of a folder with several on standard error.

    Raises:
        FileError: the file cannot be read.
    """
    if says_others and (others := others_than_opened(file)):
        say(f"bfcviz: {others}", file=sys.stderr)
    if not sys.stderr.isatty():
        yield open_trace(file)
        return
    with drawn_progress_bar(f"Reading {Path(file).name}") as bar:
        yield _CountedTrace(open_trace(file), bar)


@contextmanager
def drawn_progress_bar(text: str) -> Iterator[ProgressBar]:
    """A progress bar, drawn until the end of the `with` where there is a terminal."""
    bar = ProgressBar(text, sys.stderr)
    if not sys.stderr.isatty():
        yield bar
        return
    drawing = Periodic(bar.draw, "bfcviz-progress")
    drawing.start()
    try:
        yield bar
    finally:
        bar.erase()
        drawing.stop()


@contextmanager
def search_control(text: str) -> "Iterator[SearchControl]":
    """A control for one search; until the end of the `with` a progress bar shows how far it is."""
    from bfcviz.whatif.search import SearchControl  # noqa: PLC0415

    with drawn_progress_bar(text) as bar:
        yield SearchControl(lambda done, total, _text: bar.count(done, total))
