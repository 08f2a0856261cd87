"""Watch: records and shows the heaps of frameworks while a `with` runs."""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from bfcviz.dashboard import notebook
from bfcviz.errors import LiveError
from bfcviz.events.trace import Trace
from bfcviz.live.capture.labels import checked_name
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.numpy.serve import unserved
from bfcviz.model.trace_from_source import trace_of
from bfcviz.watching.alerts import Alarm, AlertMonitor, MonitorThread
from bfcviz.watching.chosen_frameworks import WatchSettings, make_source, start_order, start_source
from bfcviz.watching.dashboard import WatchDashboard
from bfcviz.watching.reports import OomReport, Report, is_out_of_memory, last_failure, report

_MONITOR_KEEP: Final = 1 << 17  # events kept for alerts, which read each event once


class Watch:
    """What `bfcviz.watch` returns; it watches from the start of its `with` to the end.

    Attributes:
        current: the watch whose `with` runs; None where none does.
        sources: the heap provider of each framework, from `bfcviz.live`.
        traces: one for each heap, with the events until now; other threads extend them while the `with` runs.
        alarms: the alerts that went off.
        failure: the failed request that ended the `with`; None where memory did not run out.
        errors: errors outside the workload, such as in an alert's `call` or in a picture.
    """

    current: ClassVar["Watch | None"] = None

    def __init__(self, settings: WatchSettings) -> None:
        self.sources: list[HeapProvider] = []
        self._traces: list[Trace] = []
        self.alarms: list[Alarm] = []
        self.failure: OomReport | None = None
        self.errors: list[Exception] = []
        self._settings = settings
        self._heaps: list[Any] = []
        self._monitors: list[tuple[AlertMonitor, Any]] = []  # with the heap of each
        self._monitor_thread: MonitorThread | None = None
        self._dashboard: WatchDashboard | None = None
        self._reading = threading.Lock()  # either the monitor thread reads the traces, or a new dashboard
        self._undo = ExitStack()
        self._started = False

    # -- results --------------------------------------------------------------------------------------------

    @property
    def says(self) -> str:
        """How each framework is watched, as text."""
        sentences = [*(source.description for source in self.sources), *self._settings.plan.notes]
        if self._started and Watch.current is not self:
            sentences.append("The watch has ended: every framework uses its own allocator again")
        return ". ".join(sentences) + "."

    @property
    def traces(self) -> list[Trace]:
        """The trace of each heap, as `trace`."""
        if Watch.current is self:
            self._refresh()
        return list(self._traces)

    @property
    def trace(self) -> Trace:
        """The trace of the first heap, with the events until now: all, or with a ring in memory the newest."""
        self._check_started()
        return self.traces[0]

    @property
    def dashboard(self) -> WatchDashboard:
        """The live view; made now if it was not displayed at the start, or was closed."""
        self._check_started()
        if self._dashboard is None or self._dashboard.closed:
            with unserved(), self._reading:
                self._dashboard = self._new_dashboard()
        return self._dashboard

    def report(self) -> Report:
        """The peak of the first heap: its bytes, fragmentation and holders; a card in a notebook."""
        with unserved():
            return report(self.trace, says=self.says)

    def mark(self, name: str, value: int = 0) -> None:
        """Record a mark on each heap: a step, a phase, a note."""
        self._check_started()
        checked_name(name)  # a heap takes a number as the number of a label
        for heap in (heap for source in self.sources for heap in source.heaps):
            heap.mark(name, value)

    def tell(self, error: BaseException) -> None:
        """Show the failed request, as the end of the `with` does, if `error` says that memory ran out."""
        self._refresh()
        with unserved():
            self._run_safely(lambda: self._show_failure(error))

    def _refresh(self) -> None:
        """Let the traces have the events until now."""
        dashboard = None if self._dashboard is None or self._dashboard.closed else self._dashboard
        with unserved():
            for source in self.sources:
                self._run_safely(source.settle)
        with unserved(), self._reading if dashboard is None else dashboard.inspector.lock:
            for trace in self._traces:
                trace.refresh()

    def __repr__(self) -> str:
        return f"<Watch: {self.says if self._started else 'not started'}>"

    # -- start ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._check_can_start()
        settings = self._settings
        with ExitStack() as discard, ExitStack() as undo:
            self._started = True
            Watch.current = self
            undo.push(self._show_end)  # runs last, after the sources and the logs have ended
            for request in settings.plan.requests:
                self.sources.append(make_source(request, settings, undo, discard))
            undo.callback(self._check_last)
            for source, name in start_order(self.sources, settings.plan.requests):
                start_source(source, name, undo)
                undo.callback(self._run_safely, source.settle)
            discard.pop_all()  # every source has started: keep the recordings
            with unserved():  # the arrays of pictures do not belong to the workload
                self._open()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.__exit__(kind, error, trace)

    def _check_can_start(self) -> None:
        if self._started:
            raise LiveError("this watch has been used already: make a new one with bfcviz.watch()")
        if Watch.current is not None:
            raise LiveError(
                f"another watch is running ({Watch.current.says}): leave its `with` first, or end it with "
                "%bfcviz_live off; it is unchanged"
            )
        if threading.current_thread() is not threading.main_thread():
            name = threading.current_thread().name
            raise LiveError(
                f"watch cannot start in the thread {name!r}, where it would not watch the other threads: start it in "
                "the main thread; it also watches threads that start inside"
            )

    def _check_started(self) -> None:
        if not self._traces:
            raise LiveError("this watch has not started: use this inside its `with`, or after it")

    def _open(self) -> None:
        """Start to read what the heaps write."""
        self._add_heaps()
        if self._settings.dashboard and self._traces and notebook.has_kernel():
            self._dashboard = self._new_dashboard()
            notebook.show(self._dashboard)
        has_rings = any(trace.slack is not None for trace in self._traces)
        more_heaps = any(request.framework != "numpy" for request in self._settings.plan.requests)
        if self._monitors or more_heaps or has_rings:  # a dashboard reads rings too, until it is closed
            self._monitor_thread = MonitorThread(self._check, self._failed)

    def _add_heaps(self) -> None:
        """Add the new heaps: a framework makes one for each stream or device that it uses."""
        settings = self._settings
        for heap in [heap for source in self.sources for heap in source.new_heaps(self._heaps)]:
            trace = trace_of(heap, settings.keep)
            if settings.alerts:
                self._monitors.append((AlertMonitor(trace_of(heap, _MONITOR_KEEP), settings.alerts), heap))
            self._heaps.append(heap)
            self._traces.append(trace)
            if self._dashboard is not None:
                self._dashboard.add_trace(trace)

    def _new_dashboard(self) -> WatchDashboard:
        return WatchDashboard(self._traces, self.says, start=Watch.current is self)

    # -- in the monitor thread ------------------------------------------------------------------------------

    def _check(self) -> None:
        with self._reading:
            self._add_heaps()
            if self._dashboard is None or self._dashboard.closed:
                for trace in self._traces:
                    trace.refresh()
        for monitor, heap in self._monitors:
            for alarm in monitor.check():
                self._report_alarm(alarm, heap)

    def _report_alarm(self, alarm: Alarm, heap: Any) -> None:
        self.alarms.append(alarm)
        heap.mark(*alarm.mark)
        self._notice(f"{alarm.heap}: {alarm.text}")
        if (call := alarm.alert.call) is not None:
            self._run_safely(lambda: call(alarm))

    def _notice(self, text: str) -> None:
        if self._dashboard is not None:
            self._dashboard.notice(text)

    def _run_safely(self, function: Callable[[], object]) -> None:
        """Call a function; its errors do not reach the workload."""
        try:
            function()
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.errors.append(error)
        self._notice(f"error outside the workload: {type(error).__name__}: {error}")

    # -- end ------------------------------------------------------------------------------------------------

    def _check_last(self) -> None:
        with self._reading:
            self._add_heaps()
        if self._monitor_thread is not None:
            self._monitor_thread.stop()

    def _show_end(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        """Show the last state; the frameworks use their own allocators again and the recordings are closed."""
        Watch.current = None
        dashboard = self._dashboard
        if dashboard is not None:
            self._run_safely(dashboard.stop)
        for trace in self._traces:
            self._run_safely(trace.refresh)
        if error is not None:
            self._run_safely(lambda: self._show_failure(error))
        if dashboard is not None:
            self._run_safely(lambda: dashboard.end(self.says))

    def _show_failure(self, error: BaseException) -> None:
        """Show the failed request, if `error` says that memory ran out; each request once."""
        if not is_out_of_memory(error):
            return
        failed = [source for source in self.sources if source.out_of_memory is not None]
        failed_heaps = [heap for source in failed for heap in source.heaps]
        for trace, heap in zip(self._traces, self._heaps, strict=True):
            found = last_failure(trace) if heap in failed_heaps else None
            if found is None or found == self.failure:
                continue
            self.failure = found
            self._notice(found.headline)
            if notebook.has_kernel():
                notebook.show(found)
            else:
                error.add_note(found.note)


def _forget_parents_watch() -> None:
    """In a forked process: only the parent watches."""
    Watch.current = None


os.register_at_fork(after_in_child=_forget_parents_watch)
