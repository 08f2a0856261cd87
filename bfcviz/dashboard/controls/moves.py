"""Where each button and key of a dashboard leads: from a step to a step, and no widget."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from bfcviz.errors import BfcvizError
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.browse.navigation import next_step, peak, previous_step, worst_fragmentation

ANY: Final = "any event"
OF_CHUNK: Final = "event of this chunk"
OF_LABEL: Final = "event of this label"
TARGETS: Final = (ANY, *(kind.name for kind in Kind), OF_CHUNK, OF_LABEL)
"""What next and previous can look for."""

MOVES: Final = {
    "first": "first: before the first event that is known (Home)",
    "back": "back: undo one event (left arrow)",
    "forward": "forward: apply one event (right arrow)",
    "last": "last: after the last event (End)",
    "previous": "go to the previous one (Shift N)",
    "next": "go to the next one (N)",
    "oom": "go to the next request that failed (O)",
    "worst": "go to the highest external fragmentation (W)",
    "peak": "go to the most bytes in use (K)",
}
"""Every move by its name, and what it does."""


@dataclass(frozen=True)
class Place:
    """Where a person is.

    Attributes:
        trace: the trace looked at.
        pool: the heap of it.
        step: the step shown.
        target: one of `TARGETS`.
        handle: of the selected chunk; None where none is.
        label: of the selected chunk; None where none is, or it has none.
    """

    trace: Trace
    pool: int
    step: int
    target: str = ANY
    handle: int | None = None
    label: int | None = None


def destination(move: str, place: Place) -> int:
    """The step that the move leads to.

    Raises:
        BfcvizError: it leads nowhere; says why.
    """
    return _MOVES[move](place)


def _step(place: Place, kinds: Collection[Kind], *, forward: bool) -> int:
    """The next or previous step of an event of `kinds`, and of the place's chunk or label if it is after those."""
    chunk = _needed(place.handle, "chunk") if place.target == OF_CHUNK else None
    label = _needed(place.label, "label") if place.target == OF_LABEL else None
    look = next_step if forward else previous_step
    found = look(place.trace, place.step, kinds, place.pool, chunk=chunk, label=label)
    if found is None:
        which = (
            f"{place.target} event" if place.target in Kind.__members__ else place.target.removeprefix("any ")
        )
        where = "further {} after" if forward else "earlier {} before"
        raise BfcvizError(f"there is no {where.format(which)} this step")
    return found


def _needed(value: int | None, what: str) -> int:
    if value is None:
        raise BfcvizError(f"no {what} is selected: click a chunk in the region map first")
    return value


def _kinds(place: Place) -> Collection[Kind]:
    return [Kind[place.target]] if place.target in Kind.__members__ else list(Kind)


def _one(place: Place, *, forward: bool) -> int:
    """The very next or previous event of this pool; at an end, the end."""
    look = next_step if forward else previous_step
    found = look(place.trace, place.step, list(Kind), place.pool)
    if found is None:
        return len(place.trace) if forward else place.trace.first
    return found


def _oom(place: Place) -> int:
    found = next_step(place.trace, place.step, [Kind.OOM], place.pool)
    if found is None:
        raise BfcvizError("there is no further OOM event after this step")
    return found


_MOVES: Final[dict[str, Callable[[Place], int]]] = {
    "first": lambda place: place.trace.first,
    "back": lambda place: _one(place, forward=False),
    "forward": lambda place: _one(place, forward=True),
    "last": lambda place: len(place.trace),
    "previous": lambda place: _step(place, _kinds(place), forward=False),
    "next": lambda place: _step(place, _kinds(place), forward=True),
    "oom": _oom,
    "worst": lambda place: worst_fragmentation(place.trace, place.pool),
    "peak": lambda place: peak(place.trace, place.pool),
}
