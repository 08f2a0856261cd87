"""Choose which frameworks to watch and how, from the arguments of `bfcviz.watch`; make and start the heap providers."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.frameworks.supported_frameworks import FRAMEWORKS, WATCHABLE
from bfcviz.frameworks.watch_request import WatchRequest, find, resolve, way_of
from bfcviz.live import providers
from bfcviz.live.capture import marks
from bfcviz.live.capture.stacks import Chosen, Stacks
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.units import format_bytes
from bfcviz.watching.alerts import Alert

Asked = bool | str | Mapping[str, Any] | None
"""The value of a framework's argument. None: the default choice. True: the usual way. `serve` or `observe`: that way. A
mapping: options of its function in `bfcviz.live`, and optionally `way`."""

Capture = Chosen | Stacks
"""What is recorded with each allocation: `nothing`, `label`, `stack`, or which frames of it."""


class Plan(NamedTuple):
    """The frameworks to watch, and notes on those that are not."""

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


def plan(asked: Mapping[str, Asked], limit: int | None = None, capture: Capture | None = None) -> Plan:
    """Choose what to watch.

    Args:
        asked: framework -> its argument; a missing one counts as None.
        limit: bytes; the limit of heaps that serve, where their own options set none.
        capture: what is recorded with each allocation, where their own options do not set it.

    Raises:
        LiveError: an unknown framework, way or option, frameworks that exclude each other, or nothing to watch.
    """
    for name in asked:
        _check_watchable(name)
    named = [name for name in FRAMEWORKS if asked.get(name) not in (None, False)]
    requests = [request_of(name, asked[name]) for name in named]
    allowed = [name for name in WATCHABLE if asked.get(name) is not False]
    found = Plan(requests, []) if requests else _default_plan(allowed)
    if not found.requests:
        raise LiveError(f"there is nothing to watch: remove `=False` from one of {', '.join(WATCHABLE)}")
    _check_sharing(found.requests)
    requests = _with_capture(_with_limit(found.requests, limit), capture)
    serving = [request for request in requests if request.way == "serve"]
    if len(serving) == 1:  # else the limit may be meant for the larger memory
        providers.check_limit(serving[0])
    return found._replace(requests=requests)


def title_of(request: WatchRequest) -> str:
    """The usual name of the framework."""
    return FRAMEWORKS[request.framework].title


def _check_watchable(name: str) -> None:
    if not find(name).is_watchable:
        raise LiveError(
            f"{FRAMEWORKS[name].title} cannot be watched from inside the program: record it with "
            f"bfcviz record --{name}; bfcviz.watch takes {', '.join(WATCHABLE)}"
        )


def request_of(name: str, wanted: Asked) -> WatchRequest:
    """The request for one framework.

    Raises:
        LiveError: the framework, way or option is unknown, or the framework cannot be watched from inside.
    """
    _check_watchable(name)
    options = dict(wanted) if isinstance(wanted, Mapping) else {}
    way = wanted if isinstance(wanted, str) else options.pop("way", None)
    return resolve(name, way, options)


def _check_sharing(requests: list[WatchRequest]) -> None:
    """Refuse to serve two frameworks of which one also serves the other."""
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
    """Add the limit to the requests that take one and set none."""
    if limit is None:
        return requests
    if all(way_of(request).option("limit") is None for request in requests):
        watched = " and ".join(title_of(request) for request in requests)
        raise LiveError(
            f"limit={format_bytes(limit)} was given, but {watched} would only be observed, and an observed framework "
            "allocates its own memory: remove the limit, or use way 'serve'"
        )
    return [_with_default(request, "limit", limit) for request in requests]


def _with_capture(requests: list[WatchRequest], capture: Capture | None) -> list[WatchRequest]:
    """Add the capture to the requests that take one; refuse stacks for a way that cannot record them."""
    if capture is None:
        return requests
    if capture not in ("nothing", "label"):
        for request in requests:
            if not way_of(request).takes_stacks:
                raise LiveError(
                    f"capture={capture!r} records stacks, but {title_of(request)}, way {request.way!r}, does not take "
                    "this choice: remove capture"
                )
    return [_with_default(request, "capture", capture) for request in requests]


def _with_default(request: WatchRequest, name: str, value: object) -> WatchRequest:
    if way_of(request).option(name) is None or name in request.options:
        return request
    return resolve(request.framework, request.way, {**request.options, name: value})


def _default_plan(names: list[str]) -> Plan:
    """CuPy where there is a GPU, else NumPy; also PyTorch, where it is imported and has a GPU."""
    requests, notes = [], []
    problem = _why_no_cupy() if "cupy" in names else "cupy=False"
    if problem is None:
        requests.append(resolve("cupy"))
    elif "numpy" in names:
        requests.append(resolve("numpy"))
        if "cupy" in names and find_spec("cupy") is not None:
            notes.append(f"CuPy is installed but not watched: {problem}")
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in names and torch.cuda.is_available():
        requests.append(resolve("torch"))
    return Plan(requests, notes)


def _why_no_cupy() -> str | None:
    """Why CuPy cannot be watched; None where it can."""
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


def make_source(
    request: WatchRequest, settings: WatchSettings, undo: ExitStack, discard: ExitStack
) -> HeapProvider:
    """Make the heap provider of a framework, not started, and the log that it writes to.

    Args:
        request: the framework and how to watch it.
        settings: of the watch.
        undo: closes the log.
        discard: removes the recording, for a watch that cannot start.
    """
    request = providers.complete(request)
    log: Recording | EventLog | None = EventLog(RING_EVENTS) if providers.is_on_host(request) else None
    if settings.path is not None:
        if "log" in request.options:
            raise LiveError(f"{title_of(request)} has its own log and path={settings.path}: give one of them")
        folder = settings.path if len(settings.plan.requests) == 1 else settings.path / request.framework
        details = {"framework": request.framework, **providers.details_of(request)}
        log = undo.enter_context(Recording(folder, [providers.pool_of(request)], details=details))
        discard.callback(log.discard)
    return open_source(request, log)


def open_source(request: WatchRequest, log: EventLog | Recording | None) -> HeapProvider:
    """The heap provider of a framework, not started.

    Args:
        request: the framework and how to watch it.
        log: where it writes events; None: to a ring that it makes.

    Raises:
        LiveError: the framework cannot be watched here; the message says why.
        BfcvizError: another error of its module.
    """
    try:
        source: HeapProvider = providers.source_of(request, log)
    except (BfcvizError, TypeError, ValueError):
        raise
    except Exception as error:  # frameworks raise many kinds without a GPU, driver or matching build
        raise unwatchable(title_of(request), error) from error
    return source


def start_order(
    sources: Sequence[HeapProvider], requests: Sequence[WatchRequest]
) -> list[tuple[HeapProvider, str]]:
    """The sources in the order to start them, each with the name of its framework.

    NumPy's is the last, so that threads which the others start are not served.
    """
    pairs = sorted(zip(sources, requests, strict=True), key=lambda pair: providers.is_on_host(pair[1]))
    return [(source, title_of(request)) for source, request in pairs]


def start_source(source: HeapProvider, name: str, undo: ExitStack) -> None:
    """Start to watch the framework called `name`, until `undo`; the program's marks go to its heaps too."""
    try:
        undo.enter_context(source)
    except BfcvizError:
        raise
    except Exception as error:
        raise unwatchable(name, error) from error
    marks.begin(source)
    undo.callback(marks.end, source)


def unwatchable(name: str, error: Exception) -> LiveError:
    """The error for a framework that failed to start with an error of its own."""
    text = str(error).partition("\n")[0]
    return LiveError(f"{name} cannot be watched here and stays unchanged: {type(error).__name__}: {text}")
