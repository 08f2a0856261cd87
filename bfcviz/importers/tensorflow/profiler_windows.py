"""Open the profiler windows that `bfcviz.live.tensorflow.observe` records, as they appear in the folder."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bfcviz.errors import FileError
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.live.tensorflow.windows import whole_windows


class ProfilerWindow(NamedTuple):
    """A profiler window: its folder, and its trace or the error."""

    path: Path
    trace: Trace | None
    error: FileError | None


def open_windows(
    folder: str | os.PathLike[str], *, every_s: float = 0.5, ended: threading.Event | None = None
) -> Iterator[ProfilerWindow]:
    """Yield the windows in a folder, the oldest first, then each new one, until `ended` is set.

    Args:
        folder: of the windows; it may not exist yet.
        every_s: seconds between two checks of the folder.
        ended: the caller sets it when no more windows will appear; by default there is no waiting.
    """
    seen: set[Path] = set()
    while True:
        is_last = ended is None or ended.is_set()
        for path in whole_windows(Path(folder)):
            if path not in seen:
                seen.add(path)
                yield _opened(path)
        if is_last:
            return
        if ended is not None:
            ended.wait(every_s)


def _opened(window: Path) -> ProfilerWindow:
    """Open the profile in a window; a process writes one profile."""
    found = sorted(window.rglob("*.xplane.pb"))
    if not found:
        return ProfilerWindow(window, None, FileError(window, "", "a window without a profile (*.xplane.pb)"))
    try:
        return ProfilerWindow(window, open_trace(found[0]), None)
    except FileError as error:
        return ProfilerWindow(window, None, error)
