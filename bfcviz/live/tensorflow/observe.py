"""TensorFlow, observed in windows: it lets no allocator in, but its own profiler notes every allocation while it is on.

::

    training     ........[window 1].................[window 2].................[window 3]....
    folder       window-000001/**/*.xplane.pb  window-000002/ ...    each there only when it is whole

`bfcviz.importers.tensorflow.profiler_windows` opens them as they land.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory
from bfcviz.live.numpy.serve import unserved
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.live.tensorflow.windows import WINDOW, whole_windows
from bfcviz.periodic import Periodic


class TensorflowObserved(HeapProvider):
    """What `observe_tensorflow` returns; records windows for the length of a `with`.

    Attributes:
        way: `observe`.
        folder: where the windows are.
        count: windows recorded.
        missed: windows that could not be, for somebody else was using the profiler.
        error: what ended it early, None where nothing did.
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
    def says(self) -> str:
        """Which way, and what that means."""
        text = (
            f"TensorFlow is observed in windows of {self._window_s:g} s, one every {self._every_s:g} s, by "
            "its own profiler: "
            f"{self.count} so far; what happens between them is not seen"
        )
        if self.missed:
            text += f". {self.missed} were left out, for the profiler was in use"
        return text if self.error is None else f"{text}. It ended early: {self.error}"

    @property
    def heaps(self) -> list[Any]:
        """None of its own: see the folder."""
        return []

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """None: TensorFlow writes it to its log, and nowhere else."""
        return None

    def settle(self) -> None:
        """A window is there when it is whole: there is nothing to be hastened."""

    def _start(self) -> None:
        try:
            self._profiler = import_module("tensorflow").profiler.experimental
        except ImportError as error:
            raise LiveError(
                "TensorFlow was to be observed, but is not installed: pip install tensorflow"
            ) from error
        self.folder.mkdir(parents=True, exist_ok=True)
        with unserved():
            self._periodic.start()

    def _stop(self, _error: BaseException | None) -> None:
        self._periodic.stop()

    def _keep(self, error: Exception) -> None:
        self.error = error

    def _next_window(self) -> float:
        """Record a window; returns the seconds until the next."""
        self._record()
        return max(self._every_s - self._window_s, 0)

    def _record(self) -> None:
        """One window; cut short where the end comes."""
        name = f"{WINDOW}{self._next():06}"
        made = self.folder / f".{name}-{os.getpid()}"
        options = self._profiler.ProfilerOptions(
            host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
        )
        try:
            self._profiler.start(str(made), options=options)
        except Exception as error:
            if type(error).__name__ != "AlreadyExistsError":  # TensorFlow's name for: a profile is being made
                raise
            self.missed += 1
            return
        self._periodic.sleep(self._window_s)
        self._profiler.stop()
        made.replace(self.folder / name)
        self.count += 1

    def _next(self) -> int:
        """A number that no window in the folder has."""
        return 1 + max((int(each.name[len(WINDOW) :]) for each in whole_windows(self.folder)), default=0)


def observe_tensorflow(
    folder: str | os.PathLike[str], *, window_s: float = 2.0, every_s: float = 30.0
) -> TensorflowObserved:
    """Record windows of TensorFlow's allocations into a folder, for the length of a `with`, in the process that trains.

    Every allocation of TensorFlow's BFC pools in a window is recorded, and costs something; between windows nothing is.
    A GPU's memory is such a pool. A CPU's is not, and its profile has no memory events, unless TensorFlow is started
    with TF_CPU_ALLOCATOR_USE_BFC=true. A profile that the program itself begins meanwhile fails, as there is one
    profiler in a process.

    Args:
        folder: where they go, each in a folder of its own; made where it is not there.
        window_s: how long a window is, in seconds.
        every_s: seconds from the beginning of one window to that of the next.

    Raises:
        InvalidRequest: times that cannot be.
        LiveError: on entering: TensorFlow is not installed.
    """
    if not 0 < window_s <= every_s < 1 << 31:
        raise InvalidRequest(
            f"windows of {window_s} s every {every_s} s were asked for; give times above 0, the window's the shorter"
        )
    return TensorflowObserved(Path(folder), window_s, every_s)
