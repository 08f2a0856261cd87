"""How to watch, and the sources that follow from it: each with where it writes to, begun one after the other."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bfcviz.errors import BfcvizError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Pool
from bfcviz.events.recording import Recording
from bfcviz.live import marks, system_memory
from bfcviz.live.lent import OPTIONS
from bfcviz.watching.alerts import Alert
from bfcviz.watching.frameworks import NAMES, Capture, Plan, Source, Wish, source_of, unwatchable

RING: Final = 1 << 18
"""Events in the ring that NumPy's heap writes to where nothing is recorded to disk: 16 MiB."""


@dataclass(frozen=True)
class Settings:
    """How to watch; the arguments of `bfcviz.watch`, checked."""

    plan: Plan
    limit: int | None
    capture: Capture | None
    path: Path | None
    dashboard: bool
    alerts: tuple[Alert, ...]
    keep: int


def recorded(wish: Wish, settings: Settings, undo: ExitStack, spoilt: ExitStack) -> Source:
    """What watches a framework, not begun yet, with where it writes to, which `undo` closes and `spoilt` takes away."""
    name = wish.framework
    limit = system_memory.default_limit() if settings.limit is None and name == "numpy" else settings.limit
    log: Recording | EventLog | None = EventLog(RING) if name == "numpy" else None
    if settings.path is not None:
        folder = settings.path if len(settings.plan.wishes) == 1 else settings.path / name
        details = {"framework": name, "way": wish.way}
        log = undo.enter_context(Recording(folder, [_pool(wish, limit)], details=details))
        spoilt.callback(log.discard)
    return source_of(wish, limit, settings.capture, log)


def in_order(sources: Sequence[Source], wishes: Sequence[Wish]) -> list[tuple[Source, str]]:
    """Sources as they are to begin, and what their frameworks are called.

    NumPy's is the last: the threads of the others are not the workload's.
    """
    pairs = sorted(zip(sources, wishes, strict=True), key=lambda pair: pair[1].framework == "numpy")
    return [(source, NAMES[wish.framework]) for source, wish in pairs]


def begin(source: Source, name: str, undo: ExitStack) -> None:
    """Begin to watch the framework called `name`, until `undo`; marks of the program go there as well."""
    try:
        undo.enter_context(source)
    except BfcvizError:
        raise
    except Exception as error:
        raise unwatchable(name, error) from error
    marks.begin(source)
    undo.callback(marks.end, source)


def _pool(wish: Wish, limit: int | None) -> Pool:
    """What is known of the heap before there is one."""
    if wish.framework != "numpy":
        return Pool(wish.framework, limit if wish.way == "serve" else None)
    options = wish.options.get("options", OPTIONS)
    return Pool("numpy", limit, vars(options))
