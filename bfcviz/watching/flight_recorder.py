"""`bfcviz.flight_recorder`: the newest events in memory, written when a request fails or a signal asks.

::

    bfcviz.flight_recorder(torch=True)             # one line at the start of a training script, or
    with bfcviz.flight_recorder(numpy=True) as r:  # for a part of it
        train()
    kill -USR2 PID                                 # writes what there is now

Nothing is written while all goes well. Each process writes into a folder of its own, with host and rank in its name.
"""

import atexit
import os
import platform
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bfcviz.errors import LiveError
from bfcviz.events.schema import EVENT
from bfcviz.live.numpy.serve import unserved
from bfcviz.live.recorded_process import name_of_process
from bfcviz.units import parse_bytes
from bfcviz.watching.alerts import Alarm, Alert
from bfcviz.watching.reports import is_out_of_memory
from bfcviz.watching.session import Watch, watch

KEEP: Final = "64MiB"
_MOST_FILES: Final = 20
_PAUSE_S: Final = 60.0
"""Between two files of the same threshold: a number that swings around it would fill the disk."""


class FlightRecorder:
    """What `bfcviz.flight_recorder` returns; it records until `stop`, the end of its `with`, or of the program.

    Attributes:
        folder: where this process writes; made with its first file.
        written: the files so far, the newest last.
        watch: the watch that records.
    """

    def __init__(self, make: Callable[["FlightRecorder"], Watch], folder: Path, number: int | None) -> None:
        self.folder, self.written = folder, list[Path]()
        self._signal, self._before, self._lock = number, None, threading.Lock()
        self._times: dict[str, float] = {}
        self._writing: list[threading.Thread] = []
        self.watch = make(self)
        self.watch.__enter__()
        self._is_open = True
        self._hook = sys.excepthook
        sys.excepthook = self._unhandled
        atexit.register(self.stop)
        if number is not None:
            self._before = signal.signal(number, self._asked)

    def write(self, reason: str = "asked") -> Path | None:
        """Write the events that are kept, one file a heap; the file of the first heap. None: there is none to write.

        Args:
            reason: why, for the name of the file.

        Raises:
            FileError: the folder cannot be written.
        """
        from bfcviz.exporters.convert import convert  # noqa: PLC0415  nothing of it is needed while all goes well

        with unserved(), self._lock:  # its own arrays need no room in a heap that is full
            if len(self.written) >= _MOST_FILES:
                return None
            made = []
            for number, trace in enumerate(self.watch.traces):
                if len(trace) > trace.first:
                    self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    name = (
                        f"{len(self.written) + 1:02}-{re.sub(r'[^a-z0-9]+', '-', reason.lower()).strip('-')}"
                    )
                    path = self.folder / f"{name}{f'-heap{number}' if number else ''}.parquet"
                    convert(trace, path, overwrite=True)
                    path.chmod(0o600)
                    made.append(path)
            self.written += made
            return made[0] if made else None

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording; of an error that says that memory ran out the events are written first."""
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self.stop)
        if sys.excepthook == self._unhandled:
            sys.excepthook = self._hook
        if self._signal is not None and threading.current_thread() is threading.main_thread():
            signal.signal(self._signal, self._before)
        path = None
        self.settle()
        try:
            if error is not None and is_out_of_memory(error):
                path = self.watch.folder or self._safely("request failed")
        finally:
            self.watch.__exit__(None if error is None else type(error), error, None)
        if error is not None and path is not None:
            error.add_note(f"bfcviz: the events are in {path}: bfcviz why {path}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(error)

    def passed(self, alarm: Alarm) -> None:
        """A threshold was passed: write, but not each time that the number swings."""
        now = time.monotonic()
        if now - self._times.get(alarm.alert.measure, -_PAUSE_S) >= _PAUSE_S:
            self._times[alarm.alert.measure] = now
            self._safely(alarm.alert.measure)

    def _unhandled(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self.stop(error)
        self._hook(kind, error, trace)

    def settle(self) -> None:
        """Wait until the files that signals asked for are written."""
        for thread in self._writing:
            thread.join()
        self._writing.clear()

    def _asked(self, _number: int, _frame: object) -> None:
        # Not here: the main thread may hold a lock that writing needs.
        thread = threading.Thread(target=self._safely, args=("signal",), name="bfcviz flight recorder")
        self._writing.append(thread)
        thread.start()

    def _safely(self, reason: str) -> Path | None:
        """Write; what fails is an error of the watch, and none of the program."""
        try:
            return self.write(reason)
        except Exception as error:  # noqa: BLE001
            self.watch.errors.append(error)
            return None


def flight_recorder(
    *names: str,
    keep: int | str = KEEP,
    folder: str | os.PathLike[str] = "bfcviz-flight",
    fragmentation: float | None = None,
    growth: int | str | None = None,
    ask_by: int | None = signal.SIGUSR2,
    **options: Any,
) -> FlightRecorder:
    """Keep the newest events of the frameworks in memory, and write them only when something happens.

    They are written when a request fails and the program ends with its error, which then names the file; when a
    threshold is passed; when the signal comes; and by `FlightRecorder.write`.

    Args:
        names: frameworks, as for `bfcviz.watch`; none: those that it would choose.
        keep: memory for the events of each heap, in bytes or as text; an event takes 64.
        folder: where a folder of each process is made, named by host and rank or process number.
        fragmentation: write when the external fragmentation, 0..1, passes this.
        growth: write when the bytes in use grow by more than this from one mark of a step to the next.
        ask_by: the signal that asks for a file; None, or where the program handles it: no signal.
        options: frameworks and options of `bfcviz.watch`, such as `torch=True` or `limit="8GiB"`.

    Raises:
        LiveError: this is not the main thread, or `bfcviz.watch` would raise it.
        ValueError: a size is none.
    """
    if threading.current_thread() is not threading.main_thread():
        raise LiveError(
            "the flight recorder starts in the main thread, which gets signals and errors: start it there"
        )
    events = max(parse_bytes(keep, "keep") // EVENT.itemsize, 1)

    def make(recorder: FlightRecorder) -> Watch:
        alerts = []
        if fragmentation is not None:
            alerts.append(Alert("external_fragmentation", above=fragmentation, call=recorder.passed))
        if growth is not None:
            alerts.append(Alert("growth_per_step", above=growth, call=recorder.passed))
        return watch(*names, keep=events, dashboard=False, alerts=alerts, **options)

    number = None if ask_by is None or signal.getsignal(ask_by) is not signal.SIG_DFL else ask_by
    return FlightRecorder(make, Path(folder) / _name_of_process(), number)


def _name_of_process() -> str:
    host = re.sub(r"[^\w.-]+", "-", platform.node()) or "host"
    return f"{host}-{name_of_process(os.environ) or f'process-{os.getpid()}'}"
