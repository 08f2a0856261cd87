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

from bfcviz.errors import FileError, LiveError, system_error_cause
from bfcviz.events.storage.files import PRIVATE_FILE
from bfcviz.events.storage.folder import claim_subfolder, safe_folder_name
from bfcviz.frameworks import is_on_host, is_out_of_memory, resolve
from bfcviz.live.numpy import unserved
from bfcviz.live.process_names import is_launcher, name_of_process
from bfcviz.live.recorded_process import (
    FLIGHT_FOLDER,
    FLIGHT_KEEP,
    LAST,
    Order,
    follow_forks,
    recordings,
)
from bfcviz.periodic import Periodic
from bfcviz.terminal import say
from bfcviz.watching.alerts import Alarm, Alert
from bfcviz.watching.watch_session import Watch, events_in, watch

_MOST_FILES: Final = 20
"""Of a process; those of signals, and of the request that ends the program, are written in any case."""

_PAUSE_S: Final = 60.0
"""Between two files for the same reason: a number that swings around a threshold would fill the disk."""

_LOOK_S: Final = 0.2
"""Between two looks for a request that failed, where the framework does not tell it at once."""

_FAILED: Final = "request failed"

_TORCH: Final = {"capture": "label", "every_s": 3600.0}
"""PyTorch keeps the history, so it is read only when a file is written; stacks would cost it some 3 us a tensor."""

_TORCH_WITH_ALERTS: Final = {"capture": "label", "every_s": 1.0, "most_time": 0.005}


class FlightRecorder:
    """What `bfcviz.flight_recorder` returns; it records until `stop`, the end of its `with`, or of the program.

    A forked process does not record: it only inherits this object.

    Attributes:
        folder: where this process writes; made with its first file, and numbered if another has this name by then.
        written: the files so far, the newest last.
        watch: the watch that records.
    """

    def __init__(self, make: Callable[["FlightRecorder"], Watch], folder: Path, number: int | None) -> None:
        self.folder, self.written = folder, list[Path]()
        self._signal, self._before = number, signal.SIG_DFL if number is None else signal.getsignal(number)
        self._lock = threading.RLock()  # of a failure in the thread that writes, too
        self._process = os.getpid()
        self._count = 0  # of writes
        self._times: dict[str, float] = {}
        self._writing: list[threading.Thread] = []
        self._failures: list[Any] = []
        self._failure: Path | None = None
        self._look = Periodic(self._look_for_failures, "bfcviz flight recorder", at_exit=True)
        self.watch = make(self)
        self.watch.__enter__()
        self._is_open = True
        self._failures = self._last_failures()
        for source in self.watch.sources:
            source.on_failure = self._failed
        self._hook = sys.excepthook
        sys.excepthook = self._unhandled
        atexit.register(self.stop)
        if number is not None:
            signal.signal(number, self._asked)
        with unserved():
            self._look.start(_LOOK_S)

    @property
    def is_mine(self) -> bool:
        """Whether the flight recorder is of this process, not of the one that this was forked from."""
        return os.getpid() == self._process

    def write(self, reason: str = "asked") -> Path | None:
        """Write the events that the flight recorder keeps, a file a heap; the first file. None: there is none to write.

        Args:
            reason: why, for the name of the file.

        Raises:
            FileError: the folder cannot be made or written.
        """
        return self._write(reason) if len(self.written) < _MOST_FILES else None

    def stop(self, error: BaseException | None = None) -> None:
        """End the flight recorder; a failed request that is in no file yet is written, and the error names the file."""
        if not self._is_open or not self.is_mine:
            return
        self._is_open = False
        atexit.unregister(self.stop)
        self._look.stop()
        if sys.excepthook == self._unhandled:
            sys.excepthook = self._hook
        if (
            self._signal is not None
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(self._signal) == self._asked  # the program may have set its own since
        ):
            signal.signal(self._signal, self._before)
        self.settle()
        ran_out = error is not None and is_out_of_memory(error)
        before, path = self._failure, None
        try:
            path = self._failed(is_last=True, says=False)
            if path is None and ran_out:  # JAX tells no failed request
                path = self.watch.folder or self._safely(_FAILED, is_last=True, says=False)
        finally:
            self.watch.__exit__(None if error is None else type(error), error, None)
        line = f"bfcviz: the events are in {path}: bfcviz why {path}"
        if error is not None and ran_out and path is not None:
            error.add_note(line)
        elif path != before and self.watch.folder is None:
            say(line, file=sys.stderr)

    def end_with_worker(self) -> None:
        """Also end the flight recorder when multiprocessing ends this process: a worker skips `atexit`."""
        if (util := sys.modules.get("multiprocessing.util")) is not None:
            util.Finalize(None, self.stop, exitpriority=LAST)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(error)

    def passed(self, alarm: Alarm) -> None:
        """The flight recorder's threshold was passed: write, but not each time that the number swings."""
        self._safely(alarm.alert.measure)

    def settle(self) -> None:
        """Wait until the flight recorder's files that signals asked for are written."""
        for thread in self._writing:
            thread.join()
        self._writing.clear()

    # -- reasons to write ------------------------------------------------------------------------------------

    def _look_for_failures(self) -> float:
        self._failed()
        return _LOOK_S

    def _failed(self, *, is_last: bool = False, says: bool = True) -> Path | None:
        """The flight recorder writes the last failed request, unless a file has it; the file, or the folder of all.

        Args:
            is_last: in any case; else only if the last file of one is old enough.
            says: whether to print the file's path.
        """
        with self._lock:
            failures = self._last_failures()
            if failures == self._failures:
                return self._failure
            path = self.watch.folder or self._safely(_FAILED, is_last=is_last, says=says)
            if path is not None:
                self._failure, self._failures = path, failures
            return path

    def _last_failures(self) -> list[Any]:
        """The numbers of the last failed request of each framework."""
        found = [source.out_of_memory for source in self.watch.sources]
        return [failure and failure.numbers() for failure in found]

    def _unhandled(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self.stop(error)
        self._hook(kind, error, trace)

    def _asked(self, _number: int, _frame: object) -> None:
        if not self._is_open or not self.is_mine:
            return
        # Not here: the main thread may hold a lock that writing needs.
        thread = threading.Thread(
            target=self._safely, args=("signal",), kwargs={"is_last": True}, name="bfcviz flight recorder"
        )
        self._writing.append(thread)
        thread.start()

    # -- files -----------------------------------------------------------------------------------------------

    def _safely(self, reason: str, *, is_last: bool = False, says: bool = True) -> Path | None:
        """Let the flight recorder write, if its last file of this reason is old enough; keep an error for the watch."""
        now = time.monotonic()
        is_due = now - self._times.get(reason, -_PAUSE_S) >= _PAUSE_S and len(self.written) < _MOST_FILES
        if not (is_due or is_last):
            return None
        self._times[reason] = now
        try:
            path = self._write(reason)
        except Exception as error:  # noqa: BLE001  the program must not fail
            self.watch.errors.append(error)
            return None
        if path is not None and says:
            say(f"bfcviz: {reason}: wrote {path}", file=sys.stderr)
        return path

    def _write(self, reason: str) -> Path | None:
        from bfcviz.exporters.convert import convert  # noqa: PLC0415  nothing of it is needed while all goes well

        with unserved(), self._lock:  # its own arrays need no room in a heap that is full
            made: list[Path] = []
            name = re.sub(r"[^a-z0-9]+", "-", reason.lower()).strip("-")
            for number, trace in enumerate(self.watch.traces):
                if len(trace) > trace.first:
                    if not made:
                        self._claim_folder()
                        self._count += 1
                    path = self.folder / f"{self._count:02}-{name}{f'-heap{number}' if number else ''}.bfc"
                    convert(trace, path, mode=PRIVATE_FILE)
                    made.append(path)
            self.written += made
            return made[0] if made else None

    def _claim_folder(self) -> None:
        """Make the flight recorder's folder of this process: another run, or a process beside it, may have its name."""
        if self._count and self.folder.is_dir():
            return
        parent = self.folder.parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                parent, "", f"cannot hold the flight recorder's files: {system_error_cause(error)}"
            ) from error
        self.folder = claim_subfolder(parent, self.folder.name)


def flight_recorder(
    *names: str,
    keep: int | str = FLIGHT_KEEP,
    folder: str | os.PathLike[str] = FLIGHT_FOLDER,
    fragmentation: float | None = None,
    growth: int | str | None = None,
    ask_by: int | None = signal.SIGUSR2,
    **options: Any,
) -> FlightRecorder:
    """Keep the newest events of the frameworks in memory, and write them only when something happens.

    They are written when a request fails, also one that the program survives; an error that ends the program names the
    file. Also when a threshold is passed, when the signal comes, and by `FlightRecorder.write`. Of each reason, but for
    signals, one file a minute.

    PyTorch keeps the newest 100,000 events itself, which costs it up to 1 us of the processor a tensor. They have no
    stacks, for these cost it some 3 us more: `torch={"capture": "stack"}` keeps them.

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
    events = events_in(keep)

    def make(recorder: FlightRecorder) -> Watch:
        alerts = []
        if fragmentation is not None:
            alerts.append(Alert("external_fragmentation", above=fragmentation, call=recorder.passed))
        if growth is not None:
            alerts.append(Alert("growth_per_step", above=growth, call=recorder.passed))
        made = watch(*names, keep=events, dashboard=False, alerts=alerts, **options)
        made.prefer("torch", "observe", _TORCH_WITH_ALERTS if alerts else _TORCH)
        return made

    number = None if ask_by is None or signal.getsignal(ask_by) is not signal.SIG_DFL else ask_by
    name = f"{platform.node() or 'host'}-{name_of_process(os.environ) or f'process-{os.getpid()}'}"
    return FlightRecorder(make, Path(folder) / safe_folder_name(name), number)


def begin(order: Order, framework: str) -> str:
    """Begin the flight recorder of `bfcviz record --on-oom`, as `bfcviz.live.recorded_process.begin` a recording.

    Returns:
        `kept`: the events are kept in memory; `launcher`: this process only starts the ranks.

    Raises:
        BfcvizError: the framework cannot be watched here.
    """
    if is_launcher():
        return "launcher"
    import bfcviz.exporters.convert  # noqa: F401, PLC0415  now: later this Python may not find bfcviz

    request = resolve(framework, order["way"], order["options"])
    asked: dict[str, Any] = {framework: {"way": request.way, **request.options}}
    recordings.append(flight_recorder(folder=order["folder"], **order["flight"], **asked))
    recordings[-1].end_with_worker()
    follow_forks(order, framework, is_on_host=is_on_host(request))
    return "kept"
