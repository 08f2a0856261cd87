"""Open any source as a Trace: a heap, its log, a recording, a trace, or a path."""

import os
import weakref
from collections.abc import Callable
from typing import Any, Final

from bfcviz.errors import BfcvizError
from bfcviz.events.labels import Labels
from bfcviz.events.live_window import KEEP, Beginning, follow
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.events.storage.recording_files import ORIGIN_FILE
from bfcviz.events.trace import Trace
from bfcviz.model.seeking.keyframes import keyframes
from bfcviz.model.seeking.window_start import beginning

# A heap is recognised by its attributes: model must not import the allocator.
_HEAP: Final = ("log", "labels", "name", "limit", "options", "moment")


def trace_of(source: Any, keep: int = KEEP) -> Trace:
    """The trace of a source; it grows with a source that still grows.

    Args:
        source: a BFCAllocator, EventLog, Recording, Trace, or the path of a recording or trace.
        keep: the most events to keep of a heap whose log is a ring in memory.

    Raises:
        BfcvizError: `source` is none of these, or cannot be read.
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
    """The name of a source, for a menu."""
    if isinstance(name := getattr(source, "name", None), str) and not isinstance(source, os.PathLike):
        return name
    return trace.origin.source or trace.origin.pools[0].name


def _recorded(log: EventLog) -> Trace | None:
    """The trace of the recording that the log belongs to, which has every event; None where there is none."""
    if log.path is None or not (log.path.parent / ORIGIN_FILE).exists():
        return None
    return Trace.open(log.path.parent)


def _heap(heap: Any, keep: int) -> Trace:
    pool = Pool(heap.name, heap.limit, vars(heap.options))
    return follow(heap.log, heap.labels, Origin(pools=(pool,)), keyframes, begin=_state_of(heap), keep=keep)


def _state_of(heap: Any) -> Callable[[], Beginning | None]:
    """A function that returns the state of the heap at some event, without keeping the heap alive."""
    reference, log = weakref.ref(heap), heap.log

    def state() -> Beginning | None:
        alive = reference()
        return None if alive is None else beginning(alive.moment(), log)

    return state
