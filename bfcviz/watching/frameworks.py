"""Which frameworks are watched, and which way: from what was asked for to a source for each."""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from bfcviz.errors import BfcvizError, LiveError, OutOfMemory
from bfcviz.live import system_memory
from bfcviz.live.stacks import Chosen, Stacks
from bfcviz.units import format_bytes

NAMES: Final = {"numpy": "NumPy", "cupy": "CuPy", "torch": "PyTorch", "rmm": "RMM", "jax": "JAX"}
"""Every framework there is, as it is called in code and by people."""

_WAYS: Final = {
    "numpy": ("serve",),
    "cupy": ("serve", "observe"),
    "torch": ("observe", "serve"),
    "rmm": ("observe", "serve"),
    "jax": ("observe",),
}
"""The ways in, the usual one first."""

_NAMELESS: Final = (("rmm", "observe"), ("jax", "observe"))
"""What tells of no allocation who made it."""

Asked = bool | str | Mapping[str, Any] | None
"""None: if nothing else is asked for, whatever is there. True: the usual way. `serve` or `observe`: that way. A
mapping: the arguments of the constructor in `bfcviz.live`, and maybe `way`."""

Capture = Chosen | Stacks
"""What is recorded with each allocation: `nothing`, `label`, `stack`, or which frames of it."""


class Source(Protocol):
    """A framework that is watched for the length of a `with`; each module of `bfcviz.live` makes one."""

    @property
    def way(self) -> str:
        """`serve` or `observe`."""

    @property
    def says(self) -> str:
        """Which way, and what that means, in a sentence."""

    @property
    def trace_sources(self) -> list[Any]:
        """The heaps there are now, each something that `LiveDashboard` can watch; more may come."""

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last request that failed; None: none has."""

    def settle(self) -> None:
        """Record what was put off."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Wish(NamedTuple):
    """One framework to be watched."""

    framework: str
    way: str
    options: Mapping[str, Any]


class Plan(NamedTuple):
    """What will be watched, and what is to be said about what will not."""

    wishes: list[Wish]
    notes: list[str]


def plan(asked: Mapping[str, Asked]) -> Plan:
    """What to watch.

    Args:
        asked: for each of `NAMES`.

    Raises:
        LiveError: a way that there is not, wishes that exclude each other, or nothing to watch.
    """
    wishes = [
        _wish(name, wanted) for name, wanted in asked.items() if wanted is not None and wanted is not False
    ]
    found = (
        Plan(wishes, []) if wishes else _what_is_there([name for name in NAMES if asked[name] is not False])
    )
    if not found.wishes:
        raise LiveError(f"there is nothing to watch: leave out the False of one of {', '.join(NAMES)}")
    serving = {wish.framework for wish in found.wishes if wish.way == "serve"}
    if "rmm" in serving and (others := serving & {"cupy", "torch"}):
        both = " and ".join(NAMES[name] for name in sorted(others))
        raise LiveError(
            f"RMM and {both} were to be served, each from a heap of its own; RMM's heap takes {both} along: ask for "
            "rmm='serve' alone, and let them use rmm.allocators"
        )
    return found


def check_limit(wishes: list[Wish], limit: int | None) -> None:
    """Refuse a limit that no heap of these can have; raises LiveError."""
    if limit is None:
        return
    serving = [wish.framework for wish in wishes if wish.way == "serve"]
    if not serving:
        watched = " and ".join(NAMES[wish.framework] for wish in wishes)
        raise LiveError(
            f"a limit of {format_bytes(limit)} was asked for, but {watched} would only be observed and keeps its own "
            "memory: leave the limit out, or ask for way 'serve'"
        )
    if serving == ["numpy"] and limit > (there := system_memory.total_memory()):
        raise LiveError(
            f"a heap of at most {format_bytes(limit)} was asked for NumPy, and this machine has {format_bytes(there)} "
            "of memory: give a lower limit, or none"
        )


def check_capture(wishes: list[Wish], capture: Capture | None) -> None:
    """Refuse to capture stacks of what tells of none; raises LiveError."""
    if capture is None or capture in ("nothing", "label"):
        return
    for wish in wishes:
        if (wish.framework, wish.way) in _NAMELESS:
            raise LiveError(
                f"stacks were asked for, but {NAMES[wish.framework]}, observed, does not tell who allocates: leave "
                "capture out"
            )


def source_of(wish: Wish, limit: int | None, capture: Capture | None, log: Any) -> Source:
    """What watches a framework, not begun yet.

    Args:
        wish: which one, and how.
        limit: of the heap, in bytes, where it is served.
        capture: what is recorded with each allocation; None: what is usual for it.
        log: where events go; None: to a ring that it makes.

    Raises:
        LiveError: it cannot be watched here; says why.
        BfcvizError: whatever else its module says.
    """
    name, module = NAMES[wish.framework], f"bfcviz.live.{wish.framework}"
    options: dict[str, Any] = {"log": log, **wish.options}
    if wish.way == "serve":
        options["limit"] = limit
    if capture is not None and (wish.framework, wish.way) not in _NAMELESS:
        options["capture"] = capture
    try:
        make = getattr(import_module(module), f"{wish.way}_{wish.framework}")
        source: Source = make(**options)
    except (BfcvizError, TypeError, ValueError):
        raise
    except Exception as error:  # whatever a framework raises where there is no GPU, driver, or fitting build
        raise unwatchable(name, error) from error
    return source


def unwatchable(name: str, error: Exception) -> LiveError:
    """What a framework's own error means."""
    text = str(error).partition("\n")[0]
    return LiveError(f"{name} cannot be watched here, and works on as it did: {type(error).__name__}: {text}")


def _wish(name: str, wanted: bool | str | Mapping[str, Any]) -> Wish:  # noqa: FBT001  as it was asked for
    options = dict(wanted) if isinstance(wanted, Mapping) else {}
    way = options.pop("way", wanted if isinstance(wanted, str) else _WAYS[name][0])
    if way not in _WAYS[name]:
        known = " or ".join(repr(each) for each in _WAYS[name])
        raise LiveError(f"{name}={way!r} was asked for; {NAMES[name]} can be watched by {known}")
    return Wish(name, way, options)


def _what_is_there(names: list[str]) -> Plan:
    """CuPy where there is a GPU, else NumPy; PyTorch beside it where it is at work on a GPU already."""
    wishes, notes = [], []
    problem = _no_cupy() if "cupy" in names else "it was not wanted"
    if problem is None:
        wishes.append(_wish("cupy", wanted=True))
    elif "numpy" in names:
        wishes.append(_wish("numpy", wanted=True))
        if "cupy" in names and find_spec("cupy") is not None:
            notes.append(f"CuPy is installed but not watched: {problem}")
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in names and torch.cuda.is_available():
        wishes.append(_wish("torch", wanted=True))
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
