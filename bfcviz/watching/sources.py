"""How to watch, and the sources that follow from it: each with where it writes to, begun one after the other."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.frameworks.wish import Wish
from bfcviz.live import adapters
from bfcviz.live.capture import marks
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.watching.alerts import Alert
from bfcviz.watching.plan import Plan, source_of, title_of, unwatchable

RING: Final = 1 << 18
"""Events in the ring that NumPy's heap writes to where nothing is recorded to disk: 16 MiB."""


@dataclass(frozen=True)
class Settings:
    """How to watch; the arguments of `bfcviz.watch`, checked."""

    plan: Plan
    path: Path | None
    dashboard: bool
    alerts: tuple[Alert, ...]
    keep: int


def recorded(wish: Wish, settings: Settings, undo: ExitStack, spoilt: ExitStack) -> HeapProvider:
    """What watches a framework, not begun yet, with where it writes to, which `undo` closes and `spoilt` takes away."""
    wish = adapters.complete(wish)
    log: Recording | EventLog | None = EventLog(RING) if adapters.is_on_host(wish) else None
    if settings.path is not None:
        if "log" in wish.options:
            raise LiveError(f"{title_of(wish)} was given a log, and path={settings.path}: give one of them")
        folder = settings.path if len(settings.plan.wishes) == 1 else settings.path / wish.framework
        details = {"framework": wish.framework, **adapters.details_of(wish)}
        log = undo.enter_context(Recording(folder, [adapters.pool_of(wish)], details=details))
        spoilt.callback(log.discard)
    return source_of(wish, log)


def in_order(sources: Sequence[HeapProvider], wishes: Sequence[Wish]) -> list[tuple[HeapProvider, str]]:
    """Sources as they are to begin, and what their frameworks are called.

    NumPy's is the last: the threads of the others are not the workload's.
    """
    pairs = sorted(zip(sources, wishes, strict=True), key=lambda pair: adapters.is_on_host(pair[1]))
    return [(source, title_of(wish)) for source, wish in pairs]


def begin(source: HeapProvider, name: str, undo: ExitStack) -> None:
    """Begin to watch the framework called `name`, until `undo`; marks of the program go there as well."""
    try:
        undo.enter_context(source)
    except BfcvizError:
        raise
    except Exception as error:
        raise unwatchable(name, error) from error
    marks.begin(source)
    undo.callback(marks.end, source)
