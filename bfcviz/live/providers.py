"""Make the provider of a wish: find and call `serve_<framework>` or `observe_<framework>`, by the table."""

from collections.abc import Callable
from importlib import import_module
from os import PathLike
from typing import Any

from bfcviz.errors import LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.frameworks.table import FRAMEWORKS, Way
from bfcviz.frameworks.wish import Wish, way_of
from bfcviz.live.common import system_memory
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.served_heap import OPTIONS
from bfcviz.units import format_bytes


def complete(wish: Wish) -> Wish:
    """The wish, with a limit if the heap is in host memory; default: what is available now."""
    if not is_on_host(wish) or wish.options.get("limit") is not None:
        return wish
    return wish._replace(options={**wish.options, "limit": system_memory.default_limit()})


def check_limit(wish: Wish) -> None:
    """Raise LiveError if the limit of a heap in host memory exceeds the machine's memory."""
    limit, total = wish.options.get("limit"), system_memory.total_memory()
    if limit is not None and is_on_host(wish) and limit > total:
        raise LiveError(
            f"a heap of at most {format_bytes(limit)} was requested for {FRAMEWORKS[wish.framework].title}, and this "
            f"machine has {format_bytes(total)} of memory: give a lower limit, or none"
        )


def is_on_host(wish: Wish) -> bool:
    """Whether the framework's memory is host memory, not a device's."""
    return FRAMEWORKS[wish.framework].memory == "host"


def pool_of(wish: Wish) -> Pool:
    """The pool that a recording names before the heap exists."""
    options = wish.options.get("options", OPTIONS) if is_on_host(wish) else None
    limit = wish.options.get("limit")
    return Pool(wish.framework, limit) if options is None else Pool(wish.framework, limit, vars(options))


def details_of(wish: Wish) -> dict[str, Any]:
    """The details of a recording: the way, and the mechanism if there is one."""
    mechanism = wish.options.get("mechanism")
    return {"way": wish.way} if mechanism is None else {"way": wish.way, "mechanism": mechanism}


def function_of(framework: str, way: Way) -> Callable[..., HeapProvider]:
    """The function that serves or observes a framework: `<way>_<framework>` in `bfcviz.live.<framework>.<way>`."""
    module = import_module(f"bfcviz.live.{framework}.{way.name}")
    function: Callable[..., HeapProvider] = getattr(module, f"{way.name}_{framework}")
    return function


def source_of(
    wish: Wish,
    log: EventLog | Recording | None = None,
    folder: str | PathLike[str] | None = None,
) -> HeapProvider:
    """The provider that watches the framework, not begun yet.

    Args:
        wish: the framework, the way and the options.
        log: receives the events, unless the wish has a log; None: a ring in memory.
        folder: receives the files of a way without heaps.

    Raises:
        Exception: any error of the framework, or of the function for it.
    """
    way = way_of(wish)
    make = function_of(wish.framework, way)
    if not way.has_heaps:
        return make(folder, **wish.options)
    return make(**{"log": log, **wish.options})
