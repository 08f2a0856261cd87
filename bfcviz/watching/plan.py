"""Which frameworks are watched, and which way: from what was asked for to a source for each."""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.frameworks.table import FRAMEWORKS, WATCHABLE
from bfcviz.frameworks.wish import Wish, find, resolve, way_of
from bfcviz.live import adapters
from bfcviz.live.capture.stacks import Chosen, Stacks
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.units import format_bytes

Asked = bool | str | Mapping[str, Any] | None
"""None: if nothing else is asked for, whatever is there. True: the usual way. `serve` or `observe`: that way. A
mapping: the arguments of the constructor in `bfcviz.live`, and maybe `way`."""

Capture = Chosen | Stacks
"""What is recorded with each allocation: `nothing`, `label`, `stack`, or which frames of it."""


class Plan(NamedTuple):
    """What will be watched, and what is to be said about what will not."""

    wishes: list[Wish]
    notes: list[str]


def plan(asked: Mapping[str, Asked], limit: int | None = None, capture: Capture | None = None) -> Plan:
    """What to watch.

    Args:
        asked: for each framework; one that is not named counts as None.
        limit: of the heaps that serve, in bytes, where their own options name none.
        capture: what is recorded with each allocation, where their own options do not say.

    Raises:
        LiveError: a framework, way or option that there is not, wishes that exclude each other, or nothing to watch.
    """
    for name in asked:
        _check_watchable(name)
    named = [name for name in FRAMEWORKS if asked.get(name) not in (None, False)]
    wishes = [_wish(name, asked[name]) for name in named]
    found = (
        Plan(wishes, [])
        if wishes
        else _what_is_there([name for name in WATCHABLE if asked.get(name) is not False])
    )
    if not found.wishes:
        raise LiveError(f"there is nothing to watch: leave out the False of one of {', '.join(WATCHABLE)}")
    _check_sharing(found.wishes)
    wishes = _with_capture(_with_limit(found.wishes, limit), capture)
    serving = [wish for wish in wishes if wish.way == "serve"]
    if len(serving) == 1:  # else the limit may be meant for the larger memory
        adapters.check_limit(serving[0])
    return found._replace(wishes=wishes)


def source_of(wish: Wish, log: EventLog | Recording | None) -> HeapProvider:
    """What watches a framework, not begun yet.

    Args:
        wish: which one, and how.
        log: where events go; None: to a ring that it makes.

    Raises:
        LiveError: it cannot be watched here; says why.
        BfcvizError: whatever else its module says.
    """
    try:
        source: HeapProvider = adapters.source_of(wish, log)
    except (BfcvizError, TypeError, ValueError):
        raise
    except Exception as error:  # whatever a framework raises where there is no GPU, driver, or fitting build
        raise unwatchable(title_of(wish), error) from error
    return source


def title_of(wish: Wish) -> str:
    """What people call the framework."""
    return FRAMEWORKS[wish.framework].title


def unwatchable(name: str, error: Exception) -> LiveError:
    """What a framework's own error means."""
    text = str(error).partition("\n")[0]
    return LiveError(f"{name} cannot be watched here, and works on as it did: {type(error).__name__}: {text}")


def _check_watchable(name: str) -> None:
    if not find(name).is_watchable:
        raise LiveError(
            f"{FRAMEWORKS[name].title} has no heap that can be watched from inside: record the program, "
            f"bfcviz record --{name}; bfcviz.watch takes {', '.join(WATCHABLE)}"
        )


def _wish(name: str, wanted: Asked) -> Wish:
    options = dict(wanted) if isinstance(wanted, Mapping) else {}
    way = wanted if isinstance(wanted, str) else options.pop("way", None)
    return resolve(name, way, options)


def _check_sharing(wishes: list[Wish]) -> None:
    """Refuse to serve a framework beside one whose heaps it would allocate from."""
    serving = {wish.framework for wish in wishes if wish.way == "serve"}
    for wish in wishes:
        if others := serving.intersection(way_of(wish).serves_also):
            both = " and ".join(FRAMEWORKS[name].title for name in sorted(others))
            title = title_of(wish)
            raise LiveError(
                f"{title} and {both} were to be served, each from a heap of its own; {title}'s heap takes {both} "
                f"along: ask for {wish.framework}='serve' alone, and let them use {wish.framework}.allocators"
            )


def _with_limit(wishes: list[Wish], limit: int | None) -> list[Wish]:
    """The wishes with this limit, where they can have one and have none of their own."""
    if limit is None:
        return wishes
    if all(way_of(wish).option("limit") is None for wish in wishes):
        watched = " and ".join(title_of(wish) for wish in wishes)
        raise LiveError(
            f"a limit of {format_bytes(limit)} was asked for, but {watched} would only be observed and keeps its own "
            "memory: leave the limit out, or ask for way 'serve'"
        )
    return [_with_default(wish, "limit", limit) for wish in wishes]


def _with_capture(wishes: list[Wish], capture: Capture | None) -> list[Wish]:
    """The wishes with this capture, where they can have one; refuses stacks of what tells of none."""
    if capture is None:
        return wishes
    if capture not in ("nothing", "label"):
        for wish in wishes:
            if not way_of(wish).takes_stacks:
                raise LiveError(
                    f"stacks were asked for, but {title_of(wish)}, way {wish.way!r}, does not tell who allocates: "
                    "leave capture out"
                )
    return [_with_default(wish, "capture", capture) for wish in wishes]


def _with_default(wish: Wish, name: str, value: object) -> Wish:
    if way_of(wish).option(name) is None or name in wish.options:
        return wish
    return resolve(wish.framework, wish.way, {**wish.options, name: value})


def _what_is_there(names: list[str]) -> Plan:
    """CuPy where there is a GPU, else NumPy; PyTorch beside it where it is at work on a GPU already."""
    wishes, notes = [], []
    problem = _no_cupy() if "cupy" in names else "it was not wanted"
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


def _no_cupy() -> str | None:
    """Why CuPy cannot be watched; None where it can."""
    if find_spec("cupy") is None:
        return "it is not installed"
    try:
        there = import_module("cupy").cuda.is_available()
    except Exception as error:  # noqa: BLE001  a build that does not fit the machine raises many things
        return f"it cannot be imported ({type(error).__name__})"
    return None if there else "there is no GPU, or no driver"
