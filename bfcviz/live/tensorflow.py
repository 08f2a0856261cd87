"""observe_tensorflow: record windows of TensorFlow's own profiler, which contain every allocation.

::

    training     [window 1 ..........][window 2 ..........][window 3 ....
    folder       window-000001/**/*.xplane.pb  window-000002/ ...    each appears only when it is complete

`bfcviz.open` reads the folder as one trace; `bfcviz.importers.tensorflow.profiler_windows` opens windows as they
appear.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.storage.files import PRIVATE_FOLDER
from bfcviz.formats.tensorflow import WINDOW, whole_windows
from bfcviz.live.heap_provider import HeapProvider
from bfcviz.live.numpy import unserved
from bfcviz.periodic import Periodic

WINDOW_S: Final = 20.0  # of a fast training this is some 300 MB; a profile of 2 GB cannot be written


class TensorflowObserved(HeapProvider):
    """What `observe_tensorflow` returns; records windows within a `with`.

    Attributes:
        folder: the folder of the windows.
        count: windows recorded.
        missed: windows skipped because other code used the profiler.
        error: the error that ended it early; None: there was none.
    """

    way = "observe"
    title = "TensorFlow"
    is_shared = True

    def __init__(self, folder: Path, window_s: float, every_s: float) -> None:
        self.folder = folder
        self.count = self.missed = 0
        self.error: Exception | None = None
        self._window_s = window_s
        self._every_s = every_s
        self._periodic = Periodic(self._next_window, "bfcviz-tensorflow", failed=self._keep)
        self._profiler: Any = None

    @property
    def description(self) -> str:
        """How TensorFlow is observed, and what that means, as a sentence."""
        rest = f", one every {self._every_s:g} s" if self._every_s > self._window_s else ""
        text = (
            f"TensorFlow is observed in windows of {self._window_s:g} s{rest}, by its own profiler: {self.count} so "
            "far; what happens between them is not recorded"
        )
        if self.missed:
            text += f". {self.missed} were left out because the profiler was in use"
        return text if self.error is None else f"{text}. It ended early: {self.error}"

    @property
    def heaps(self) -> list[Any]:
        """None: TensorFlow's events are in the folder of the windows."""
        return []

    def _start(self) -> None:
        try:
            self._profiler = import_module("tensorflow").profiler.experimental
        except ImportError as error:
            raise LiveError(
                "TensorFlow cannot be observed, it is not installed: pip install tensorflow"
            ) from error
        self.folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        with unserved():
            self._periodic.start()

    def _stop(self, _error: BaseException | None) -> None:
        self._periodic.stop()

    def _keep(self, error: Exception) -> None:
        self.error = error

    def _next_window(self) -> float:
        """Record a window, which is cut short when the `with` ends; returns the seconds until the next."""
        pause = max(self._every_s - self._window_s, 0)
        name = f"{WINDOW}{self._next():06}"
        made = self.folder / f".{name}-{os.getpid()}"
        options = self._profiler.ProfilerOptions(
            host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
        )
        try:
            self._profiler.start(str(made), options=options)
        except Exception as error:
            if type(error).__name__ != "AlreadyExistsError":  # raised while another profile is recorded
                raise
            self.missed += 1
            return pause
        self._periodic.sleep(self._window_s)
        self._profiler.stop()
        made.replace(self.folder / name)
        self.count += 1
        return pause

    def _next(self) -> int:
        return 1 + max((int(each.name[len(WINDOW) :]) for each in whole_windows(self.folder)), default=0)


def observe_tensorflow(
    folder: str | os.PathLike[str], *, window_s: float = WINDOW_S, every_s: float | None = None
) -> TensorflowObserved:
    """Record windows of TensorFlow's allocations into a folder, within a `with`, in the process that trains.

    A window records every allocation of TensorFlow's BFC pools, at some cost, and is in memory until it is written. One
    follows the other: only what happens while the profiler writes a window is not recorded, none of it in a program
    that is shorter than one window. With a larger `every_s` nothing is recorded between windows, and nothing costs.

    A GPU's memory is such a pool. A CPU's memory is one, with memory events in its profile, only if TensorFlow is
    started with TF_CPU_ALLOCATOR_USE_BFC=true. A process has one profiler, so a profile that the program itself starts
    during a window fails.

    Args:
        folder: receives the windows, each in its own folder; created if missing.
        window_s: length of a window in seconds.
        every_s: seconds from the start of one window to the start of the next; None: each begins when the one before
            it is written.

    Raises:
        InvalidRequest: a time is out of range.
        LiveError: on entering: TensorFlow is not installed.
    """
    every_s = window_s if every_s is None else every_s
    if not 0 < window_s <= every_s < 1 << 31:
        raise InvalidRequest(
            f"windows of {window_s} s every {every_s} s were requested; give times above 0, window_s <= every_s"
        )
    return TensorflowObserved(Path(folder), window_s, every_s)
