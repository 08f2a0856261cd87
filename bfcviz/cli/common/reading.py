"""Open a file with a progress bar on a terminal, and check where a command writes."""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from bfcviz.errors import FileError
from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.periodic import Periodic
from bfcviz.terminal import printable

_QUIET_S: Final = 0.5
"""Nothing is shown for so long: most files are read sooner."""

_PAUSE_S: Final = 0.2
_WIDTH: Final = 30
_ERASE: Final = "\r\x1b[K"


class ProgressBar:
    """One line on a terminal: what is read, how much of it, and for how long; a thread draws it.

    Attributes:
        share: how much is done, 0..1; None: unknown.
    """

    def __init__(self, text: str, stream: TextIO) -> None:
        self.share: float | None = None
        self._text = printable(text)
        self._stream = stream
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._is_drawn = False
        self._is_over = False

    def draw(self) -> float | None:
        """Draw the line; returns the seconds until the next time."""
        with self._lock:
            if self._is_over:
                return None
            elapsed = time.monotonic() - self._began
            if elapsed >= _QUIET_S:
                self._is_drawn = True
                self._stream.write(f"{_ERASE}{self._text} {self._bar()}{elapsed:.0f} s")
                self._stream.flush()
            return _PAUSE_S

    def erase(self) -> None:
        """Remove the line; it is not drawn again."""
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
def open_with_progress(file: str) -> Iterator[Trace]:
    """Open a file; until the end of the `with` a terminal shows how much of it was read.

    Raises:
        FileError: the file cannot be read.
    """
    if not sys.stderr.isatty():
        yield open_trace(file)
        return
    bar = ProgressBar(f"Reading {Path(file).name}", sys.stderr)
    drawing = Periodic(bar.draw, "bfcviz-progress")
    drawing.start()
    try:
        yield _CountedTrace(open_trace(file), bar)
    finally:
        bar.erase()
        drawing.stop()


def writable(out: Path, source: str, suffixes: Sequence[str], *, force: bool) -> Path:
    """`out`, checked before the work begins.

    Raises:
        FileError: its ending names no format, it exists, it is the source, or its folder does not exist.
    """
    if out.suffix.lower() not in suffixes:
        raise FileError(out, "", f"names no format: its name must end in {', '.join(suffixes)}")
    if out.exists() and Path(source).exists() and out.samefile(source):
        raise FileError(out, "", "is the file to read and would be overwritten; choose another path with -o")
    if out.is_dir():
        raise FileError(out, "", "is a folder; give the path of a file with -o")
    if out.exists() and not force:
        raise FileError(out, "", "exists already; choose another path with -o, or give --force")
    if not out.parent.is_dir():
        raise FileError(
            out, "", "cannot be written: its folder does not exist; make it, or choose another with -o"
        )
    return out
