"""Watch: records and shows the heaps of frameworks while a `with` runs."""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, ParamSpec, Self, TypeVar

from bfcviz import frameworks, notebook
from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import KEEP_BYTES
from bfcviz.events.schema import EVENT
from bfcviz.events.sliding_window import KEEP
from bfcviz.events.storage.drain import FolderDrain, check_can_free_space
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.frameworks import (
    FRAMEWORKS,
    WATCHABLE,
    Asked,
    WatchRequest,
    check_watchable_framework,
    is_out_of_memory,
    request_of,
    resolve,
    title_of,
    unwatchable,
    way_of,
)
from bfcviz.live import heap_provider
from bfcviz.live.heap_provider import HeapProvider
from bfcviz.live.labels_and_marks import checked_name, put_mark
from bfcviz.live.numpy import unserved
from bfcviz.live.stack_capture import Chosen, Stacks
from bfcviz.model.trace_from_source import trace_of
from bfcviz.model.trace_index import IndexBuilder
from bfcviz.units import format_bytes, parse_bytes
from bfcviz.watching.alerts import Alarm, Alert, AlertMonitor, MonitorThread, check_alerts
from bfcviz.watching.watch_reports import OomReport, Report, last_oom_report, report

if TYPE_CHECKING:
    from bfcviz.watching.watch_dashboard import WatchDashboard

P = ParamSpec("P")
T = TypeVar("T")

# ------------------------------------------------------------------------------
# Choose which frameworks to watch and how, from the arguments of `bfcviz.watch`; make and start the heap providers.


Capture = Chosen | Stacks
"""What is recorded with each allocation: `nothing`, `label`, `stack`, or which frames of it."""


class Plan(NamedTuple):
    """What a watch chose: the frameworks to watch, and notes on those that are not."""

    requests: list[WatchRequest]
    notes: list[str]


@dataclass(frozen=True)
class WatchSettings:
    """The arguments of `bfcviz.watch`, checked."""

    plan: Plan
    path: Path | None
    dashboard: bool
    alerts: tuple[Alert, ...]
    keep: int
    keep_bytes: int | None = None  # of packed events on disk; None: all


def watch_plan(asked: Mapping[str, Asked], limit: int | None = None, capture: Capture | None = None) -> Plan:
    """Choose what a `bfcviz.watch` watches.

    Args:
        asked: framework -> its argument; a missing one counts as None.
        limit: bytes; the limit of heaps that serve, where their own options set none.
        capture: what is recorded with each allocation, where their own options do not set it.

    Raises:
        LiveError: an unknown framework, way or option, frameworks that exclude each other, or nothing to watch.
    """
    for name in asked:
        check_watchable_framework(name)
    named = [name for name in FRAMEWORKS if asked.get(name) not in (None, False)]
    requests = [request_of(name, asked[name]) for name in named]
    allowed = [name for name in WATCHABLE if asked.get(name) is not False]
    found = Plan(requests, []) if requests else _default_plan(allowed)
    if not found.requests:
        raise LiveError(f"there is nothing to watch: remove `=False` from one of {', '.join(WATCHABLE)}")
    _check_sharing(found.requests)
    requests = _with_watch_capture(_with_limit(found.requests, limit), capture)
    serving = [request for request in requests if request.way == "serve"]
    if len(serving) == 1:  # else the limit may be meant for the larger memory
        heap_provider.check_provider_limit(serving[0])
    return found._replace(requests=requests)


def _check_sharing(requests: list[WatchRequest]) -> None:
    """Refuse a watch that serves two frameworks of which one also serves the other."""
    serving = {request.framework for request in requests if request.way == "serve"}
    for request in requests:
        if others := serving.intersection(way_of(request).serves_also):
            both = " and ".join(FRAMEWORKS[name].title for name in sorted(others))
            title = title_of(request)
            raise LiveError(
                f"{title} and {both} cannot be served from separate heaps: {title}'s heap can serve {both} too; "
                f"use {request.framework}='serve' alone, with {request.framework}.allocators"
            )


def _with_limit(requests: list[WatchRequest], limit: int | None) -> list[WatchRequest]:
    """Add the limit of a watch to the requests that take one and set none."""
    if limit is None:
        return requests
    if all(way_of(request).option("limit") is None for request in requests):
        watched = " and ".join(title_of(request) for request in requests)
        raise LiveError(
            f"limit={format_bytes(limit)} was given, but {watched} would only be observed, and an observed framework "
            "allocates its own memory: remove the limit, or use way 'serve'"
        )
    return [_with_default_option(request, "limit", limit) for request in requests]


def _with_watch_capture(requests: list[WatchRequest], capture: Capture | None) -> list[WatchRequest]:
    """Add the capture of a watch to the requests that take one; refuse stacks for a way without them."""
    if capture is None:
        return requests
    if capture not in ("nothing", "label"):
        for request in requests:
            if not way_of(request).takes_stacks:
                raise LiveError(
                    f"capture={capture!r} records stacks, but {title_of(request)}, way {request.way!r}, does not take "
                    "this choice: remove capture"
                )
    return [_with_default_option(request, "capture", capture) for request in requests]


def _with_default_option(request: WatchRequest, name: str, value: object) -> WatchRequest:
    if way_of(request).option(name) is None or name in request.options:
        return request
    return resolve(request.framework, request.way, {**request.options, name: value})


def _default_plan(names: list[str]) -> Plan:
    """What a watch watches by default: CuPy with a GPU, else NumPy; an imported PyTorch with a GPU; notes why not."""
    requests, notes = [], []
    problem = _why_not_watch_cupy() if "cupy" in names else "cupy=False"
    if problem is None:
        requests.append(resolve("cupy"))
    elif "numpy" in names:
        requests.append(resolve("numpy"))
        if "cupy" in names and find_spec("cupy") is not None:
            notes.append(f"CuPy is installed but not watched: {problem}")
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in names:
        if torch.cuda.is_available():
            requests.append(resolve("torch"))
        else:
            notes.append(
                "PyTorch is imported but not watched: it sees no GPU, and tensors on the CPU cannot be watched"
            )
    return Plan(requests, notes)


def _why_not_watch_cupy() -> str | None:
    """Why a watch cannot choose CuPy; None where it can."""
    if find_spec("cupy") is None:
        return "it is not installed"
    try:
        cupy = import_module("cupy")
        try:
            is_available = cupy.cuda.is_available()
        except RuntimeError:  # CuPy 13, where there is no driver
            is_available = False
    except Exception as error:  # noqa: BLE001  a build for another machine raises many kinds of errors
        return f"it cannot be imported ({type(error).__name__})"
    return None if is_available else "there is no GPU, or no driver"


RING_EVENTS: Final = 1 << 18
"""Events in the ring that NumPy's heap writes to where nothing is recorded to disk: 16 MiB."""


def make_watch_source(
    request: WatchRequest, settings: WatchSettings, undo: ExitStack, discard: ExitStack
) -> HeapProvider:
    """Make the heap provider of a watch for one framework, not started, and the log that it writes to.

    Args:
        request: the framework and how to watch it.
        settings: of the watch.
        undo: closes the log.
        discard: removes the recording, for a watch that cannot start.
    """
    request = heap_provider.complete_provider_request(request)
    log: Recording | EventLog | None = EventLog(RING_EVENTS) if frameworks.is_on_host(request) else None
    if settings.path is not None:
        if "log" in request.options:
            raise LiveError(f"{title_of(request)} has its own log and path={settings.path}: give one of them")
        folder = settings.path if len(settings.plan.requests) == 1 else settings.path / request.framework
        details = frameworks.details_of(request)
        if settings.keep_bytes is not None:
            details[KEEP_BYTES] = settings.keep_bytes
        log = undo.enter_context(Recording(folder, [heap_provider.provider_pool(request)], details=details))
        discard.callback(log.discard)
        if settings.keep_bytes is not None:
            check_can_free_space(folder, "keep")
    return open_source(request, log)


def open_source(request: WatchRequest, log: EventLog | Recording | None) -> HeapProvider:
    """The heap provider that a watch takes for a framework, not started.

    Args:
        request: the framework and how to watch it.
        log: where it writes events; None: to a ring that it makes.

    Raises:
        LiveError: the framework cannot be watched here; the message says why.
        BfcvizError: another error of its module.
    """
    try:
        source: HeapProvider = heap_provider.provider_of(request, log)
    except (BfcvizError, TypeError, ValueError):
        raise
    except Exception as error:  # frameworks raise many kinds without a GPU, driver or matching build
        raise unwatchable(title_of(request), error) from error
    return source


def start_order(
    sources: Sequence[HeapProvider], requests: Sequence[WatchRequest]
) -> list[tuple[HeapProvider, str]]:
    """The sources of a watch in the order to start them, each with the name of its framework.

    NumPy's is the last, so that threads which the others start are not served.
    """
    pairs = sorted(zip(sources, requests, strict=True), key=lambda pair: frameworks.is_on_host(pair[1]))
    return [(source, title_of(request)) for source, request in pairs]


def start_source(source: HeapProvider, name: str, undo: ExitStack) -> None:
    """Start to watch the framework called `name`, until `undo`."""
    try:
        undo.enter_context(source)
    except BfcvizError:
        raise
    except Exception as error:
        raise unwatchable(name, error) from error


# ------------------------------------------------------------------------------
# Watch

_MONITOR_KEEP: Final = 1 << 17  # events kept for alerts, which read each event once


class Watch:
    """What `bfcviz.watch` returns; it watches from the start of its `with` to the end.

    Attributes:
        current: the watch whose `with` runs; None where none does.
        sources: the heap provider of each framework, from `bfcviz.live`.
        traces: one for each heap, or each recording with all its heaps, with the events until now; other threads extend
            them while the `with` runs.
        alarms: the alerts that went off.
        folder: what it records to; None: memory.
        failure: the failed request that ended the `with`; None where memory did not run out.
        errors: errors outside the workload, such as in an alert's `call` or in a picture.
    """

    current: ClassVar["Watch | None"] = None

    def __init__(self, settings: WatchSettings) -> None:
        self.sources: list[HeapProvider] = []
        self._traces: dict[Any, Trace] = {}  # by the log that the heaps of each write to
        self.alarms: list[Alarm] = []
        self.failure: OomReport | None = None
        self.errors: list[Exception] = []
        self._settings = settings
        self.folder = settings.path
        self._heaps: list[Any] = []
        self._monitors: list[tuple[AlertMonitor, Any]] = []  # with the heap of each
        self._monitor_thread: MonitorThread | None = None
        self._drain: FolderDrain | None = None
        self._dashboard: WatchDashboard | None = None
        self._reading = threading.Lock()  # either the monitor thread reads the traces, or a new dashboard
        self._undo = ExitStack()
        self._started = False

    def prefer(self, framework: str, way: str, options: Mapping[str, Any]) -> None:
        """Before the `with` of a watch: use these options of a way where the program gave none."""
        found = self._settings.plan.requests
        requests = [
            resolve(framework, way, {**options, **each.options}) if each[:2] == (framework, way) else each
            for each in found
        ]
        self._settings = replace(self._settings, plan=self._settings.plan._replace(requests=requests))

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
        """The trace of each watched heap, or of all that are recorded together, as `trace`."""
        if Watch.current is self:
            self._refresh()
        return list(self._traces.values())

    @property
    def trace(self) -> Trace:
        """The trace of the first watched heap, with the events until now: all, or with a ring in memory the newest."""
        self._check_started()
        return self.traces[0]

    @property
    def dashboard(self) -> "WatchDashboard":
        """The live view of the watch; made now if it was not displayed at the start, or was closed."""
        self._check_started()
        if self._dashboard is None or self._dashboard.closed:
            with unserved(), self._reading:
                self._dashboard = self._new_dashboard()
        return self._dashboard

    def report(self) -> Report:
        """The peak of the first watched heap: its bytes, fragmentation and holders; a card in a notebook."""
        with unserved():
            return report(self.trace, says=self.says)

    def mark(self, name: str, value: float = 0) -> None:
        """Record a mark on each watched heap: a step, a phase, a note, or a number such as a loss; as `bfcviz.mark`."""
        self._check_started()
        put_mark(self.sources, checked_name(name), value)

    def tell(self, error: BaseException) -> None:
        """Let the watch show the failed request, as the end of the `with` does, if `error` says that memory ran out."""
        self._refresh()
        with unserved():
            self._run_safely(lambda: self._show_failure(error))

    def _refresh(self) -> None:
        """Let the traces of the watch have the events until now."""
        dashboard = None if self._dashboard is None or self._dashboard.closed else self._dashboard
        with unserved():
            for source in self.sources:
                self._run_safely(source.settle)
        with unserved(), self._reading if dashboard is None else dashboard.inspector.lock:
            for trace in self._traces.values():
                trace.refresh()

    def __repr__(self) -> str:
        return f"<Watch: {self.says if self._started else 'not started'}>"

    # -- start ----------------------------------------------------------------------------------------------

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function, watched at each call: a decorator. `function.watch` is the watch of the last call."""

        @wraps(function)
        def watched(*arguments: P.args, **named: P.kwargs) -> T:
            settings = replace(self._settings, path=_unused_watch_folder(self._settings.path))
            watched.watch = Watch(settings)  # type: ignore[attr-defined]
            with watched.watch:  # type: ignore[attr-defined]
                return function(*arguments, **named)

        return watched

    def __enter__(self) -> Self:
        self._check_can_start()
        settings = self._settings
        with ExitStack() as discard, ExitStack() as undo:
            self._started = True
            Watch.current = self
            undo.push(self._show_end)  # runs last, after the sources and the logs have ended
            undo.callback(self._run_safely, self._end_drain)
            for request in settings.plan.requests:
                self.sources.append(make_watch_source(request, settings, undo, discard))
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
        """Start to read what the watched heaps write."""
        self._add_heaps()
        if self.folder is not None:
            self._drain = FolderDrain(self.folder, IndexBuilder, self._settings.keep_bytes)
        if self._settings.dashboard and self._traces and notebook.has_kernel():
            self._dashboard = self._new_dashboard()
            notebook.show(self._dashboard)
        has_rings = any(trace.slack is not None for trace in self._traces.values())
        more_heaps = any(request.framework != "numpy" for request in self._settings.plan.requests)
        if self._monitors or more_heaps or has_rings:  # a dashboard reads rings too, until it is closed
            self._monitor_thread = MonitorThread(self._check, self._failed)

    def _end_drain(self) -> None:
        """Pack what is left of the recordings of the watch, which are closed."""
        if self._drain is not None:
            self._drain.end()

    def _add_heaps(self) -> None:
        """Add the new heaps to the watch: a framework makes one for each stream or device that it uses."""
        settings = self._settings
        for heap in [heap for source in self.sources for heap in source.new_heaps(self._heaps)]:
            if settings.alerts:
                trace = trace_of(heap, _MONITOR_KEEP)
                self._monitors.append((AlertMonitor(trace, settings.alerts, heap.pool), heap))
            self._heaps.append(heap)
            if heap.log in self._traces:  # recorded with the others
                continue
            self._traces[heap.log] = trace = trace_of(heap, settings.keep)
            if self._dashboard is not None:
                self._dashboard.add_trace(trace)

    def _new_dashboard(self) -> "WatchDashboard":
        from bfcviz.watching.watch_dashboard import WatchDashboard  # noqa: PLC0415  widgets: a training script has no page

        return WatchDashboard(list(self._traces.values()), self.says, start=Watch.current is self)

    # -- in the monitor thread ------------------------------------------------------------------------------

    def _check(self) -> None:
        with self._reading:
            self._add_heaps()
            if self._dashboard is None or self._dashboard.closed:
                for trace in self._traces.values():
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
        """Call a function of the watch; its errors do not reach the workload."""
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
        """Show the watch's last state; the frameworks use their own allocators again, the recordings are closed."""
        Watch.current = None
        dashboard = self._dashboard
        if dashboard is not None:
            self._run_safely(dashboard.stop)
        for trace in self._traces.values():
            self._run_safely(trace.refresh)
        if error is not None:
            self._run_safely(lambda: self._show_failure(error))
        if dashboard is not None:
            self._run_safely(lambda: dashboard.end(self.says, error))

    def _show_failure(self, error: BaseException) -> None:
        """Show the failed request of the watch, if `error` says that memory ran out; each request once."""
        if not is_out_of_memory(error):
            return
        failed = [source for source in self.sources if source.out_of_memory is not None]
        failed_logs = [log for source in failed for log in source.logs]
        for log, trace in self._traces.items():
            found = last_oom_report(trace) if log in failed_logs else None
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


# ------------------------------------------------------------------------------
# `bfcviz.watch`: watch the memory of frameworks while a `with` runs.
#
# ::
#
#     | with bfcviz.watch(numpy=True, limit="512MiB") as w:
#     |     train()
#     | w.trace      # the recording
#     | w.dashboard  # the view
#
# There are two ways. *Serve*: our own heap becomes the framework's allocator, so every split, merge and extension is
# recorded; arrays that outlive the `with` keep their memory. *Observe*: the framework keeps its own allocator, and
# what it reports is recorded. `w.says` and the dashboard name the way. By default NumPy and CuPy are served, and
# PyTorch, RMM and JAX are observed. NumPy can only be served, JAX can only be observed.


def watch(  # noqa: PLR0913  the options, and every framework by its name
    *names: str,
    limit: int | str | None = None,
    capture: Capture | None = None,
    path: str | os.PathLike[str] | None = None,
    dashboard: bool = True,
    alerts: Iterable[Alert] = (),
    keep: int | str = KEEP,
    **frameworks: Asked,
) -> Watch:
    """Watch frameworks' memory in a `with`: *serve* them from our own heap, or *observe* what they report.

    Without a framework, CuPy is served if there is a GPU, else NumPy; PyTorch is also observed if it is imported and
    has a GPU.

    Args:
        names: frameworks that are watched in the usual way: `watch("numpy")` is `watch(numpy=True)`.
        frameworks: `numpy`, `cupy`, `torch`, `rmm` or `jax`: True for the usual way; "serve" or "observe"; or a mapping
            with options of its function in `bfcviz.live`, and optionally `way`: `torch={"devices": [0]}`. Without
            `way` the options choose it: `torch={"mechanism": "replace"}` serves. False: do not watch it.
        limit: how large a heap that serves may grow, in bytes or as text; beyond it the framework is out of memory.
        capture: what is recorded with each allocation: `nothing`, the current `label`, the Python `stack` as well, or
            `Stacks`; `bfcviz.live.stack_capture` states the cost. By default the stack, where it can be read: not
            if bfcviz is not compiled, PyTorch is served, or RMM is observed by its log.
        path: a new folder to record to, with a subfolder for each framework if there are several; where it holds
            something, `path-2`, `path-3` ..., which `Watch.folder` names. It gets the heaps of all devices and streams;
            a thread packs a long recording while it grows, to some 2 to 6 bytes an event. By default the newest events
            are kept in memory.
        dashboard: in a notebook: display the live view under the cell.
        alerts: thresholds; see `Alert`.
        keep: how many of the newest events of each heap are kept in memory where nothing is recorded to disk, 64 bytes
            each; or their size as text, such as "64MiB". With `path` only a size counts: that of the packed events
            which each recording keeps on disk. By default it keeps all.

    Raises:
        LiveError: the arguments contradict each other or are unknown. When the `with` begins, also: a framework cannot
            be watched here; it stays unchanged.
        ValueError: the limit is not a size, or `keep` is none.
        FileError: when the `with` begins: the folder is not empty, or its file system cannot free what is not kept.
    """
    most = None if limit is None else parse_bytes(limit, "limit")
    if any(map(callable, names)):
        raise LiveError(
            "bfcviz.watch was given a function: write @bfcviz.watch() above it, with the brackets"
        )
    if twice := [name for name in names if name in frameworks]:
        raise LiveError(f"{twice[0]} was given twice, as a name and as an argument: give one of both")
    found = watch_plan({**dict.fromkeys(names, True), **frameworks}, most, capture)
    folder = None if path is None else _unused_watch_folder(Path(path))
    kept = KEEP if folder is not None else keep if isinstance(keep, int) else events_in(keep)
    kept_bytes = parse_bytes(keep, "keep") if folder is not None and isinstance(keep, str) else None
    return Watch(WatchSettings(found, folder, dashboard, check_alerts(alerts), kept, kept_bytes))


def events_in(keep: int | str) -> int:
    """How many events the ring of a watched heap has, for its size in bytes or as text."""
    return max(parse_bytes(keep, "keep") // EVENT.itemsize, 1)


def _unused_watch_folder(folder: Path | None) -> Path | None:
    """The folder of a watch, or the first of `folder-2`, `folder-3` ... that holds nothing: a cell may run again."""
    if folder is None:
        return None
    numbered = chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in count(2)))
    return next(each for each in numbered if not each.is_dir() or not any(each.iterdir()))


def _watch_signature() -> Signature:
    """A signature of `bfcviz.watch` that names every framework, for `help` and completion."""
    own = signature(watch)
    kind = Parameter.KEYWORD_ONLY
    frameworks = [Parameter(name, kind, default=None, annotation=Asked) for name in WATCHABLE]
    names, *options = (each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD)
    return own.replace(parameters=[names, *frameworks, *options])


watch.__signature__ = _watch_signature()  # type: ignore[attr-defined]
