"""Make a Trace of a heap, its log, a recording, a trace, or a path."""

import os
import weakref
from collections.abc import Callable
from typing import Any, Final

from bfcviz.errors import BfcvizError
from bfcviz.events.labels import Labels
from bfcviz.events.live_window import KEEP, Beginning, follow
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.storage.folder_reader import ORIGIN_FILE
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.model import keyframes
from bfcviz.model.seeking.window_start import beginning

# An allocator is recognised by its attributes: the dashboard must not import it.
_HEAP: Final = ("log", "labels", "name", "limit", "options", "moment")


def trace_of(source: Any, keep: int = KEEP) -> Trace:
    """A trace of the source; it grows while the source does.

    Args:
        source: a BFCAllocator, EventLog, Recording, Trace, or the path of a recording or trace.
        keep: most events to keep of a heap that has only a ring in memory.

    Raises:
        BfcvizError: the source is none of these, or cannot be read.
    """
    if isinstance(source, Trace):
        return source
    if isinstance(source, Recording):
        return source.trace()
    if isinstance(source, EventLog):
        recorded = _recorded(source)
        return follow(source, Labels(), Origin(), keyframes, keep=keep) if recorded is None else recorded
    if isinstance(source, str | os.PathLike):
        return Trace.open(source)
    if all(hasattr(source, name) for name in _HEAP):
        recorded = _recorded(source.log)
        return _heap(source, keep) if recorded is None else recorded
    raise BfcvizError(
        f"cannot watch a {type(source).__name__}; give a BFCAllocator, an EventLog, a Recording, a Trace, or the path "
        "of one"
    )


def name_of(source: Any, trace: Trace) -> str:
    """The name of the source in a menu."""
    if isinstance(name := getattr(source, "name", None), str) and not isinstance(source, os.PathLike):
        return name
    return trace.origin.source or trace.origin.pools[0].name


def _recorded(log: EventLog) -> Trace | None:
    """The recording that the log belongs to, which has all events and labels; None for a log in memory."""
    if log.path is None or not (log.path.parent / ORIGIN_FILE).exists():
        return None
    return Trace.open(log.path.parent)


def _heap(heap: Any, keep: int) -> Trace:
    pool = Pool(heap.name, heap.limit, vars(heap.options))
    return follow(
        heap.log, heap.labels, Origin(pools=(pool,)), keyframes, begin=_state_reader(heap), keep=keep
    )


def _state_reader(heap: Any) -> Callable[[], Beginning | None]:
    """Returns a function that reads the heap's state; it holds only a weak reference, so the heap can be freed."""
    reference, log = weakref.ref(heap), heap.log

    def read() -> Beginning | None:
        alive = reference()
        return None if alive is None else beginning(alive.moment(), log)

    return read
