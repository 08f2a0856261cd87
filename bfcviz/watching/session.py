"""Watch: frameworks' heaps, recorded and shown for the length of a `with`."""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from bfcviz.dashboard.sources import trace_of
from bfcviz.errors import LiveError
from bfcviz.events.trace import Trace
from bfcviz.live.capture.labels import checked_name
from bfcviz.live.numpy.serve import unserved
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.watching import notebook
from bfcviz.watching.alert_monitor import Guard
from bfcviz.watching.alerts import Alarm
from bfcviz.watching.dashboard import WatchDashboard
from bfcviz.watching.monitor import Lookout
from bfcviz.watching.oom_report import Failure, is_for_want_of_memory, last_failure
from bfcviz.watching.report import Report, report
from bfcviz.watching.settings import Settings, begin, in_order, recorded

_GUARDED: Final = 1 << 17  # events kept for alerts, which look at each once


class Watch:
    """What `bfcviz.watch` returns: nothing is watched before its `with` begins, or after it ends.

    Attributes:
        sources: what watches each framework, in `bfcviz.live`.
        traces: one for each heap; while the `with` lasts they grow, in other threads.
        alarms: the alerts that went off.
        failure: the request that ended the `with`, for want of memory; None where none did.
        errors: what went wrong beside the workload, in an alert's `call` or a picture.
    """

    _under_way: ClassVar["Watch | None"] = None

    def __init__(self, settings: Settings) -> None:
        self.sources: list[HeapProvider] = []
        self.traces: list[Trace] = []
        self.alarms: list[Alarm] = []
        self.failure: Failure | None = None
        self.errors: list[Exception] = []
        self._settings = settings
        self._heaps: list[Any] = []
        self._guards: list[tuple[Guard, Any]] = []
        self._lookout: Lookout | None = None
        self._dashboard: WatchDashboard | None = None
        self._showing = threading.Lock()  # between the lookout, and a dashboard that takes over from it
        self._undo = ExitStack()
        self._begun = False

    # -- what it has ----------------------------------------------------------------------------------------

    @property
    def says(self) -> str:
        """Which way each framework is watched, in words."""
        said = [*(source.description for source in self.sources), *self._settings.plan.notes]
        if self._begun and Watch._under_way is not self:
            said.append("This has ended: every framework has its own allocator again")
        return ". ".join(said) + "."

    @property
    def trace(self) -> Trace:
        """The recording: everything that happened, or with a ring in memory the newest of it; of the first heap."""
        self._refuse_before()
        return self.traces[0]

    @property
    def dashboard(self) -> WatchDashboard:
        """The live view; made where it was not displayed at the beginning, and anew where it was closed."""
        self._refuse_before()
        if self._dashboard is None or self._dashboard.closed:
            with unserved(), self._showing:
                self._dashboard = self._new_dashboard()
        return self._dashboard

    def report(self) -> Report:
        """The peak of the first heap: how much, how fragmented, and who held it; a table in a notebook."""
        return report(self.trace, says=self.says)

    def mark(self, name: str, value: int = 0) -> None:
        """Put a mark into the trace of each heap: a step, a phase, a note."""
        self._refuse_before()
        checked_name(name)  # a heap would take a number for that of a label
        for heap in (heap for source in self.sources for heap in source.heaps):
            heap.mark(name, value)

    def tell(self, error: BaseException) -> None:
        """Show the heap as it was where memory ran out, if that is what `error` is: as at the end of the `with`."""
        with unserved(), self._showing if self._dashboard is None else self._dashboard.inspector.lock:
            for trace in self.traces:
                trace.refresh()
            self._quietly(lambda: self._show_failure(error))

    def __repr__(self) -> str:
        return f"<Watch: {self.says if self._begun else 'not begun'}>"

    # -- from beginning to end ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._refuse()
        settings = self._settings
        with ExitStack() as spoilt, ExitStack() as undo:
            self._begun = True
            Watch._under_way = self
            undo.push(self._show_end)  # the last: first the sources go, then what is listed above them
            for wish in settings.plan.wishes:
                self.sources.append(recorded(wish, settings, undo, spoilt))
            undo.callback(self._look_last)
            for source, name in in_order(self.sources, settings.plan.wishes):
                begin(source, name, undo)
                undo.callback(self._quietly, source.settle)
            spoilt.pop_all()  # there is something to record
            with unserved():  # arrays of pictures, and of threads that make them, are not the workload's
                self._open()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.__exit__(kind, error, trace)

    def _refuse(self) -> None:
        if self._begun:
            raise LiveError(
                "this watch has begun before: make a new one with bfcviz.watch(), each has its own trace"
            )
        if Watch._under_way is not None:
            raise LiveError(
                f"something is watched already ({Watch._under_way.says}): leave that `with` first, or end it with "
                "%bfcviz_live off; it goes on as it was"
            )
        if threading.current_thread() is not threading.main_thread():
            raise LiveError(
                f"watch was to begin in the thread {threading.current_thread().name!r}, where it could not watch the "
                "others: begin it in the main thread; threads that start inside are watched too"
            )

    def _refuse_before(self) -> None:
        if not self.traces:
            raise LiveError("nothing is watched yet: this is known inside the `with`, and after it")

    def _open(self) -> None:
        """Begin to read what the heaps write."""
        self._join()
        if self._settings.dashboard and self.traces and notebook.has_kernel():
            self._dashboard = self._new_dashboard()
            notebook.show(self._dashboard)
        rings = any(trace.slack is not None for trace in self.traces)
        grow = any(wish.framework != "numpy" for wish in self._settings.plan.wishes)
        if self._guards or grow or rings:  # a dashboard reads rings too, until it is closed
            self._lookout = Lookout(self._look, self._failed)

    def _join(self) -> None:
        """Take in the heaps that came: there is one for each stream or device that is used."""
        settings = self._settings
        for heap in [heap for source in self.sources for heap in source.new_heaps(self._heaps)]:
            trace = trace_of(heap, settings.keep)
            if settings.alerts:
                self._guards.append((Guard(trace_of(heap, _GUARDED), settings.alerts), heap))
            self._heaps.append(heap)
            self.traces.append(trace)
            if self._dashboard is not None:
                self._dashboard.join(trace)

    def _new_dashboard(self) -> WatchDashboard:
        return WatchDashboard(self.traces, self.says, start=Watch._under_way is self)

    # -- beside the workload --------------------------------------------------------------------------------

    def _look(self) -> None:
        with self._showing:
            self._join()
            if self._dashboard is None or self._dashboard.closed:
                for trace in self.traces:
                    trace.refresh()
        for guard, heap in self._guards:
            for alarm in guard.look():
                self._alarm(alarm, heap)

    def _alarm(self, alarm: Alarm, heap: Any) -> None:
        self.alarms.append(alarm)
        heap.mark(*alarm.mark)
        self._notice(f"{alarm.heap}: {alarm.text}")
        if (call := alarm.alert.call) is not None:
            self._quietly(lambda: call(alarm))

    def _notice(self, text: str) -> None:
        if self._dashboard is not None:
            self._dashboard.notice(text)

    def _quietly(self, do: Callable[[], object]) -> None:
        """What goes wrong in it does not reach the workload."""
        try:
            do()
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.errors.append(error)
        self._notice(f"beside the workload: {type(error).__name__}: {error}")

    # -- the end --------------------------------------------------------------------------------------------

    def _look_last(self) -> None:
        with self._showing:
            self._join()
        if self._lookout is not None:
            self._lookout.stop()

    def _show_end(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        """The frameworks are as they were, and the recordings closed: show where it all stands."""
        Watch._under_way = None
        board = self._dashboard
        if board is not None:
            self._quietly(board.stop)
        for trace in self.traces:
            self._quietly(trace.refresh)
        if error is not None:
            self._quietly(lambda: self._show_failure(error))
        if board is not None:
            self._quietly(lambda: board.end(self.says))

    def _show_failure(self, error: BaseException) -> None:
        """If it is for want of memory; each failure once."""
        if not is_for_want_of_memory(error):
            return
        failed = [source for source in self.sources if source.out_of_memory is not None]
        heaps = [heap for source in failed for heap in source.heaps]
        for trace, heap in zip(self.traces, self._heaps, strict=True):
            found = last_failure(trace) if heap in heaps else None
            if found is None or found == self.failure:
                continue
            self.failure = found
            self._notice(found.words)
            if notebook.has_kernel():
                found.show(trace)
            else:
                error.add_note(str(found))


def _forget_parent() -> None:
    """In a forked process: it is the parent that watches."""
    Watch._under_way = None  # noqa: SLF001


os.register_at_fork(after_in_child=_forget_parent)
