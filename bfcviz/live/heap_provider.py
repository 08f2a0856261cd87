"""HeapProvider: serves or observes a framework for the length of a `with`, and provides its heaps."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from os import PathLike
from types import TracebackType
from typing import Any, ClassVar, Self

from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Pool
from bfcviz.events.schema import MAX_POOLS
from bfcviz.events.storage.recording import Recording, add_threads_to_recordings, name_thread_in_recordings
from bfcviz.frameworks import FRAMEWORKS, WatchRequest, Way, WayName, is_on_host, way_of
from bfcviz.live import labels_and_marks, memory_limits
from bfcviz.live.served_heap import OPTIONS
from bfcviz.units import format_bytes


class HeapProvider(ABC):
    """Base of everything that serves or observes a framework; it can be entered again after it ended.

    A subclass begins in `_start` and ends in `_stop`. A failed `_start` raises.

    Attributes:
        way: how the framework is watched.
        title: the framework's name for people.
        is_shared: whether several of a class may be active at once. One object never is active twice.
        on_failure: called when a request failed, in the thread that requested and before it gets the error, where the
            framework tells that (PyTorch, observed); `out_of_memory` says it for all.
    """

    way: ClassVar[WayName]
    title: ClassVar[str]
    is_shared: ClassVar[bool] = False
    on_failure: Callable[[], object] | None = None
    _active: ClassVar[tuple["HeapProvider", ...]] = ()
    """The active objects of a class; each class has its own."""

    @property
    @abstractmethod
    def description(self) -> str:
        """How the provider's framework is watched and what that means, in a sentence."""

    @property
    @abstractmethod
    def heaps(self) -> list[Any]:
        """The provider's heaps so far, each of which `LiveDashboard` can watch; more may come.

        All write to the log that was given, if it is on disk; otherwise the first.
        """

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The provider's numbers of the last failed request; None: none failed, or the framework raises its own."""
        return None

    @property
    def logs(self) -> list[Any]:
        """The event log of each heap of this provider."""
        return [heap.log for heap in self.heaps]

    def left_out(self, log: Any) -> list[str]:
        """The names of this provider's heaps that write to another log: a log takes 256."""
        return [str(heap.name) for heap in self.heaps if heap.log is not log]

    @property
    def is_active(self) -> bool:
        """Whether the provider's `with` has begun and has not ended."""
        return any(each is self for each in self._active)

    def new_heaps(self, known: Iterable[Any]) -> list[Any]:
        """The provider's heaps that are not in `known`."""
        before = {id(heap) for heap in known}
        return [heap for heap in self.heaps if id(heap) not in before]

    def settle(self) -> None:  # noqa: B027  most have nothing to do
        """Record the provider's deferred events."""

    def watch_here(self) -> None:  # noqa: B027  most watch the whole process
        """Let the provider watch this context, too (`contextvars`): NumPy is served per context, others per process."""

    def close(self) -> None:
        """End the provider, as leaving the `with` does; does nothing if it is not active."""
        if self.is_active:
            self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self._refuse_second()
        self._start()
        cls = type(self)
        cls._active = (*cls._active, self)
        add_threads_to_recordings()
        self._thread_names = ThreadStartHook(lambda: True, name_thread_in_recordings)
        self._thread_names.begin()
        labels_and_marks.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        labels_and_marks.end(self)
        self._thread_names.end()
        cls = type(self)
        cls._active = tuple(each for each in cls._active if each is not self)
        self._stop(error)

    def _refuse_second(self) -> None:
        """Raise LiveError if another provider is active and only one may be."""
        if self.is_active or (self._active and not self.is_shared):
            done = "served" if self.way == "serve" else "observed"
            heaps = ", ".join(map(_heap_name_and_limit, self._active[-1].heaps)) or "files of its own"
            raise LiveError(f"{self.title} is {done} already ({heaps}): leave that `with` first")

    @abstractmethod
    def _start(self) -> None:
        """Begin to serve or observe the framework; if it raises it must first restore everything."""

    @abstractmethod
    def _stop(self, error: BaseException | None) -> None:
        """End the provider; `error` is the exception that ends the `with`."""


def _heap_name_and_limit(heap: Any) -> str:
    limit = heap.limit
    return str(heap.name) if limit is None else f"{heap.name} of at most {format_bytes(limit)}"


class ThreadStartHook:
    """Extends a provider to new threads: they call `prepare` first if `is_wanted` was true where they were started."""

    def __init__(self, is_wanted: Callable[[], bool], prepare: Callable[[], object]) -> None:
        self._is_wanted = is_wanted
        self._prepare = prepare
        self._start: Callable[[threading.Thread], None] | None = None
        self._original = threading.Thread.start

    def begin(self) -> None:
        """Replace `threading.Thread.start`, so that new threads are watched, too."""
        self._original = original = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if self._start is None or not self._is_wanted():
                return original(thread)
            self._wrap(thread)
            try:
                original(thread)
            except BaseException:  # it runs already, or no thread can start
                vars(thread).pop("run", None)
                raise

        self._start = start
        threading.Thread.start = start  # type: ignore[method-assign, assignment]

    def end(self) -> None:
        """Restore `threading.Thread.start`; if other code has replaced it since, only pass calls on."""
        if threading.Thread.start is self._start:
            threading.Thread.start = self._original  # type: ignore[method-assign]
        self._start = None

    def _wrap(self, thread: threading.Thread) -> None:
        run = thread.run

        def prepared() -> None:
            # A thread that references itself would be freed late. The hook of another provider may have done so.
            vars(thread).pop("run", None)
            self._prepare()
            run()

        thread.run = prepared  # type: ignore[method-assign]


# ------------------------------------------------------------------------------
# Make the provider of a request: find and call `serve_<framework>` or `observe_<framework>`, by the table.


def complete_provider_request(request: WatchRequest) -> WatchRequest:
    """The request for a heap provider, with a limit if its heap is in host memory; default: what is available now."""
    if not is_on_host(request) or request.options.get("limit") is not None:
        return request
    return request._replace(options={**request.options, "limit": memory_limits.default_limit()})


def check_provider_limit(request: WatchRequest) -> None:
    """Raise LiveError if the limit of a provider's heap in host memory exceeds the machine's memory."""
    limit, total = request.options.get("limit"), memory_limits.total_memory()
    if limit is not None and is_on_host(request) and limit > total:
        raise LiveError(
            f"a heap of at most {format_bytes(limit)} was requested for {FRAMEWORKS[request.framework].title}, and "
            f"this machine has {format_bytes(total)} of memory: give a lower limit, or none"
        )


def provider_pool(request: WatchRequest) -> Pool:
    """The pool that a recording names before the provider's heap exists."""
    options = request.options.get("options", OPTIONS) if is_on_host(request) else None
    return Pool(request.framework, request.options.get("limit"), {} if options is None else vars(options))


def provider_function(framework: str, way: Way) -> Callable[..., HeapProvider]:
    """The function that makes a heap provider: `<way>_<framework>` in `bfcviz.live.<framework>`.

    Of a framework that is a folder, it is in `bfcviz.live.<framework>.<way>`.
    """
    module = import_module(f"bfcviz.live.{framework}")
    if hasattr(module, "__path__"):
        module = import_module(f"bfcviz.live.{framework}.{way.name}")
    function: Callable[..., HeapProvider] = getattr(module, f"{way.name}_{framework}")
    return function


def provider_of(
    request: WatchRequest,
    log: EventLog | Recording | None = None,
    folder: str | PathLike[str] | None = None,
) -> HeapProvider:
    """The heap provider that watches the framework, not begun yet.

    Args:
        request: the framework, the way and the options.
        log: receives the events, unless the request has a log; None: a ring in memory.
        folder: receives the files of a way without heaps.

    Raises:
        Exception: any error of the framework, or of the function for it.
    """
    way = way_of(request)
    make = provider_function(request.framework, way)
    if not way.has_heaps:
        return make(folder, **request.options)
    return make(**{"log": log, **request.options})


# ------------------------------------------------------------------------------
# The providers that are active now; and the logs and labels of a provider's heaps.


def active_providers(kind: type[HeapProvider] = HeapProvider) -> Iterable[HeapProvider]:
    """Every provider that serves or observes a framework now."""
    for each in kind.__subclasses__():
        yield from each.__dict__.get("_active", ())
        yield from active_providers(each)


def log_and_labels(log: EventLog | Recording | None, labels: Labels | None) -> tuple[EventLog, Labels]:
    """The log and labels of a provider's heaps: a recording has both; default: a ring in memory, and a new table."""
    if isinstance(log, Recording):
        return log.log, log.labels if labels is None else labels
    return EventLog() if log is None else log, Labels() if labels is None else labels


def logs_of_heaps(log: EventLog | None) -> Iterator[EventLog | None]:
    """The log of each heap of a provider in turn; None: the heap makes a ring of its own.

    All heaps write to a log on disk, as many as it takes. Of a ring in memory only the first one is sure to be read in
    time: several would overwrite the events of each other.
    """
    yield log
    while log is not None and log.path is not None and log.pools < MAX_POOLS:
        yield log
    while True:
        yield None
