"""`landed`: the windows that `bfcviz.live.tensorflow.observe` records, each opened as it lands in the folder."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bfcviz.errors import FileError
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.live.tensorflow.windows import whole_windows


class Landed(NamedTuple):
    """A window: its folder, and its trace, or why there is none."""

    path: Path
    trace: Trace | None
    error: FileError | None


def landed(
    folder: str | os.PathLike[str], *, every_s: float = 0.5, ended: threading.Event | None = None
) -> Iterator[Landed]:
    """The windows in a folder, the oldest first, and then each new one, until `ended` is set and all are there.

    Args:
        folder: where they land; it may come later.
        every_s: seconds between two looks into it.
        ended: set by whoever knows that no more will come; by default there is no waiting for more.
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


def _opened(window: Path) -> Landed:
    """The profile in a window; one process writes one."""
    found = sorted(window.rglob("*.xplane.pb"))
    if not found:
        return Landed(window, None, FileError(window, "", "a window without a profile (*.xplane.pb)"))
    try:
        return Landed(window, open_trace(found[0]), None)
    except FileError as error:
        return Landed(window, None, error)
