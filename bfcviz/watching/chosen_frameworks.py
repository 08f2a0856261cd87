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
from bfcviz.frameworks.table import FRAMEWORKS, WATCHABLE
from bfcviz.frameworks.wish import Wish, find, resolve, way_of
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

    wishes: list[Wish]
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
    wishes = [_wish(name, asked[name]) for name in named]
    allowed = [name for name in WATCHABLE if asked.get(name) is not False]
    found = Plan(wishes, []) if wishes else _default_plan(allowed)
    if not found.wishes:
        raise LiveError(f"there is nothing to watch: remove `=False` from one of {', '.join(WATCHABLE)}")
    _check_sharing(found.wishes)
    wishes = _with_capture(_with_limit(found.wishes, limit), capture)
    serving = [wish for wish in wishes if wish.way == "serve"]
    if len(serving) == 1:  # else the limit may be meant for the larger memory
        providers.check_limit(serving[0])
    return found._replace(wishes=wishes)


def title_of(wish: Wish) -> str:
    """The usual name of the framework."""
    return FRAMEWORKS[wish.framework].title


def _check_watchable(name: str) -> None:
    if not find(name).is_watchable:
        raise LiveError(
            f"{FRAMEWORKS[name].title} cannot be watched from inside the program: record it with "
            f"bfcviz record --{name}; bfcviz.watch takes {', '.join(WATCHABLE)}"
        )


def _wish(name: str, wanted: Asked) -> Wish:
    options = dict(wanted) if isinstance(wanted, Mapping) else {}
    way = wanted if isinstance(wanted, str) else options.pop("way", None)
    return resolve(name, way, options)


def _check_sharing(wishes: list[Wish]) -> None:
    """Refuse to serve two frameworks of which one also serves the other."""
    serving = {wish.framework for wish in wishes if wish.way == "serve"}
    for wish in wishes:
        if others := serving.intersection(way_of(wish).serves_also):
            both = " and ".join(FRAMEWORKS[name].title for name in sorted(others))
            title = title_of(wish)
            raise LiveError(
                f"{title} and {both} cannot be served from separate heaps: {title}'s heap can serve {both} too; "
                f"use {wish.framework}='serve' alone, with {wish.framework}.allocators"
            )


def _with_limit(wishes: list[Wish], limit: int | None) -> list[Wish]:
    """Add the limit to the wishes that take one and set none."""
    if limit is None:
        return wishes
    if all(way_of(wish).option("limit") is None for wish in wishes):
        watched = " and ".join(title_of(wish) for wish in wishes)
        raise LiveError(
            f"limit={format_bytes(limit)} was given, but {watched} would only be observed, and an observed framework "
            "allocates its own memory: remove the limit, or use way 'serve'"
        )
    return [_with_default(wish, "limit", limit) for wish in wishes]


def _with_capture(wishes: list[Wish], capture: Capture | None) -> list[Wish]:
    """Add the capture to the wishes that take one; refuse stacks for a way that cannot record them."""
    if capture is None:
        return wishes
    if capture not in ("nothing", "label"):
        for wish in wishes:
            if not way_of(wish).takes_stacks:
                raise LiveError(
                    f"capture={capture!r} records stacks, but {title_of(wish)}, way {wish.way!r}, cannot record them: "
                    "remove capture"
                )
    return [_with_default(wish, "capture", capture) for wish in wishes]


def _with_default(wish: Wish, name: str, value: object) -> Wish:
    if way_of(wish).option(name) is None or name in wish.options:
        return wish
    return resolve(wish.framework, wish.way, {**wish.options, name: value})


def _default_plan(names: list[str]) -> Plan:
    """CuPy where there is a GPU, else NumPy; also PyTorch, where it is imported and has a GPU."""
    wishes, notes = [], []
    problem = _why_no_cupy() if "cupy" in names else "cupy=False"
    if problem is None:
        wishes.append(resolve("cupy"))
    elif "numpy" in names:
        wishes.append(resolve("numpy"))
        if "cupy" in names and find_spec("cupy") is not None:
            notes.append(f"CuPy is installed but not watched: {problem}")
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in names and torch.cuda.is_available():
        wishes.append(resolve("torch"))
    return Plan(wishes, notes)


def _why_no_cupy() -> str | None:
    """Why CuPy cannot be watched; None where it can."""
    if find_spec("cupy") is None:
        return "it is not installed"
    try:
        is_available = import_module("cupy").cuda.is_available()
    except Exception as error:  # noqa: BLE001  a build for another machine raises many kinds of errors
        return f"it cannot be imported ({type(error).__name__})"
    return None if is_available else "there is no GPU, or no driver"


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
