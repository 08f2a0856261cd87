"""Read a profile of TensorFlow or XLA (`xplane.pb`, plain or gzip)."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bfcviz.errors import FileError
from bfcviz.events.origin import Origin, Status
from bfcviz.events.trace import Trace
from bfcviz.formats.tensorflow import whole_windows
from bfcviz.importers.file_content import Limits, read_content
from bfcviz.importers.file_format import Format
from bfcviz.importers.open_trace import open_trace
from bfcviz.importers.protobuf_wire import Wire
from bfcviz.importers.tensorflow.memory_events import collect_requests, read_space
from bfcviz.importers.tensorflow.reconstruct import reconstruct

# ------------------------------------------------------------------------------
# Read a profile of TensorFlow or XLA (`xplane.pb`, plain or gzip).


def read_profile(path: Path) -> Trace:
    """The trace in a profile of TensorFlow or XLA; `origin.details` holds the checks of its reconstruction.

    Raises:
        FileError: it cannot be read, is corrupt, or holds no events of a BFC heap.
    """
    limits = Limits.of(path)
    content = read_content(path)
    space = read_space(Wire(path, content.data, limits))
    missing = tuple(cut for cut in (content.cut, space.cut) if cut is not None)
    recorded = collect_requests(space, path)
    rebuilt = reconstruct(recorded)
    left_out = tuple(f"left out: {count} {what}" for what, count in recorded.left_out.items())
    problems = left_out + rebuilt.reasons
    status = Status.DEGRADED if problems else Status.TRUNCATED if missing else Status.COMPLETE
    origin = Origin(
        format=Format.XPLANE.value,
        source=path.name,
        status=status,
        reasons=missing + problems,
        pools=rebuilt.pools,
        details={
            "checks": list(rebuilt.checks),
            "facts": list(rebuilt.facts),
            "threads": {str(number): name for number, name in recorded.threads.items()},
        },
    )
    return Trace.from_events(rebuilt.events, recorded.labels, origin)


# ------------------------------------------------------------------------------
# Open the profiler windows that `bfcviz.live.tensorflow` records, as they appear in the folder.


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
