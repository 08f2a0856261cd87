"""Make the provider of a request: find and call `serve_<framework>` or `observe_<framework>`, by the table."""

from collections.abc import Callable
from importlib import import_module
from os import PathLike
from typing import Any

from bfcviz.errors import LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.frameworks.supported_frameworks import FRAMEWORKS, Way
from bfcviz.frameworks.watch_request import WatchRequest, way_of
from bfcviz.live.common import system_memory
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.served_heap import OPTIONS
from bfcviz.units import format_bytes


def complete(request: WatchRequest) -> WatchRequest:
    """The request, with a limit if the heap is in host memory; default: what is available now."""
    if not is_on_host(request) or request.options.get("limit") is not None:
        return request
    return request._replace(options={**request.options, "limit": system_memory.default_limit()})


def check_limit(request: WatchRequest) -> None:
    """Raise LiveError if the limit of a heap in host memory exceeds the machine's memory."""
    limit, total = request.options.get("limit"), system_memory.total_memory()
    if limit is not None and is_on_host(request) and limit > total:
        raise LiveError(
            f"a heap of at most {format_bytes(limit)} was requested for {FRAMEWORKS[request.framework].title}, and "
            f"this machine has {format_bytes(total)} of memory: give a lower limit, or none"
        )


def is_on_host(request: WatchRequest) -> bool:
    """Whether the framework's memory is host memory, not a device's."""
    return FRAMEWORKS[request.framework].memory == "host"


def pool_of(request: WatchRequest) -> Pool:
    """The pool that a recording names before the heap exists."""
    options = request.options.get("options", OPTIONS) if is_on_host(request) else None
    limit = request.options.get("limit")
    return (
        Pool(request.framework, limit) if options is None else Pool(request.framework, limit, vars(options))
    )


def details_of(request: WatchRequest) -> dict[str, Any]:
    """The details of a recording: the way, and the mechanism if there is one."""
    mechanism = request.options.get("mechanism")
    return {"way": request.way} if mechanism is None else {"way": request.way, "mechanism": mechanism}


def function_of(framework: str, way: Way) -> Callable[..., HeapProvider]:
    """The function that serves or observes a framework: `<way>_<framework>` in `bfcviz.live.<framework>.<way>`."""
    module = import_module(f"bfcviz.live.{framework}.{way.name}")
    function: Callable[..., HeapProvider] = getattr(module, f"{way.name}_{framework}")
    return function


def source_of(
    request: WatchRequest,
    log: EventLog | Recording | None = None,
    folder: str | PathLike[str] | None = None,
) -> HeapProvider:
    """The provider that watches the framework, not begun yet.

    Args:
        request: the framework, the way and the options.
        log: receives the events, unless the request has a log; None: a ring in memory.
        folder: receives the files of a way without heaps.

    Raises:
        Exception: any error of the framework, or of the function for it.
    """
    way = way_of(request)
    make = function_of(request.framework, way)
    if not way.has_heaps:
        return make(folder, **request.options)
    return make(**{"log": log, **request.options})
