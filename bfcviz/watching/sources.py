"""Make and start the heap providers that a plan names, each with the log that it writes to."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.frameworks.wish import Wish
from bfcviz.live import providers
from bfcviz.live.capture import marks
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.watching.plan import WatchSettings, title_of

RING_EVENTS: Final = 1 << 18
"""Events in the ring that NumPy's heap writes to where nothing is recorded to disk: 16 MiB."""


def make_source(wish: Wish, settings: WatchSettings, undo: ExitStack, discard: ExitStack) -> HeapProvider:
    """Make the heap provider of a framework, not started, and the log that it writes to.

    Args:
        wish: the framework and how to watch it.
        settings: of the watch.
        undo: closes the log.
        discard: removes the recording, for a watch that cannot start.
    """
    wish = providers.complete(wish)
    log: Recording | EventLog | None = EventLog(RING_EVENTS) if providers.is_on_host(wish) else None
    if settings.path is not None:
        if "log" in wish.options:
            raise LiveError(f"{title_of(wish)} has its own log and path={settings.path}: give one of them")
        folder = settings.path if len(settings.plan.wishes) == 1 else settings.path / wish.framework
        details = {"framework": wish.framework, **providers.details_of(wish)}
        log = undo.enter_context(Recording(folder, [providers.pool_of(wish)], details=details))
        discard.callback(log.discard)
    return open_source(wish, log)


def open_source(wish: Wish, log: EventLog | Recording | None) -> HeapProvider:
    """The heap provider of a framework, not started.

    Args:
        wish: the framework and how to watch it.
        log: where it writes events; None: to a ring that it makes.

    Raises:
        LiveError: the framework cannot be watched here; the message says why.
        BfcvizError: another error of its module.
    """
    try:
        source: HeapProvider = providers.source_of(wish, log)
    except (BfcvizError, TypeError, ValueError):
        raise
    except Exception as error:  # frameworks raise many kinds without a GPU, driver or matching build
        raise unwatchable(title_of(wish), error) from error
    return source


def start_order(sources: Sequence[HeapProvider], wishes: Sequence[Wish]) -> list[tuple[HeapProvider, str]]:
    """The sources in the order to start them, each with the name of its framework.

    NumPy's is the last, so that threads which the others start are not served.
    """
    pairs = sorted(zip(sources, wishes, strict=True), key=lambda pair: providers.is_on_host(pair[1]))
    return [(source, title_of(wish)) for source, wish in pairs]


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
