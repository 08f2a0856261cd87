"""The step that each button and key of a dashboard goes to; uses no widgets."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from bfcviz.errors import BfcvizError
from bfcviz.events.origin_details import holds_only_states
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.browse.navigation import (
    end_of_state,
    next_step,
    peak,
    previous_step,
    worst_fragmentation,
)

ANY: Final = "any event"
OF_CHUNK: Final = "event of this chunk"
OF_LABEL: Final = "event of this label"
TARGETS: Final = (ANY, *(kind.name for kind in Kind), OF_CHUNK, OF_LABEL)
"""The events that next and previous can go to."""

MOVES: Final = {
    "first": "first: before the first event that is kept (Home)",
    "back": "back: undo one event (left arrow)",
    "forward": "forward: apply one event (right arrow)",
    "last": "last: after the last event (End)",
    "previous": 'previous event of the kind chosen in "go to" (Shift N)',
    "next": 'next event of the kind chosen in "go to" (N)',
    "oom": "go to the next failed request (O)",
    "worst": "go to the highest external fragmentation (W)",
    "peak": "go to the most bytes in use (K)",
}
"""Name of a move -> its tooltip."""


@dataclass(frozen=True)
class Position:
    """The step shown, and what is selected.

    Attributes:
        trace: the trace shown.
        pool: number of its heap.
        step: the step shown.
        target: one of `TARGETS`.
        handle: of the selected chunk; None if no chunk is selected.
        label: of the selected chunk; None if no chunk is selected, or it has no label.
    """

    trace: Trace
    pool: int
    step: int
    target: str = ANY
    handle: int | None = None
    label: int | None = None


def destination(move: str, position: Position) -> int:
    """The step that the move goes to.

    Raises:
        BfcvizError: there is no such step; says why.
    """
    return _MOVES[move](position)


def step_of_pool(trace: Trace, pool: int, step: int) -> int:
    """The step at which a heap is shown first: its state where the trace has no history, else `step`."""
    return end_of_state(trace, pool) if holds_only_states(trace.origin.details) else step


def _step(position: Position, kinds: Collection[Kind], *, forward: bool) -> int:
    """The next or previous step of an event of `kinds`, and of the chunk or label if the target is one of these."""
    chunk = _required(position.handle, "chunk") if position.target == OF_CHUNK else None
    label = _required(position.label, "label") if position.target == OF_LABEL else None
    find = next_step if forward else previous_step
    found = find(position.trace, position.step, kinds, position.pool, chunk=chunk, label=label)
    if found is None:
        target = position.target
        which = f"{target} event" if target in Kind.__members__ else target.removeprefix("any ")
        raise BfcvizError(f"there is no {which} {'after' if forward else 'before'} this step")
    return found


def _required(value: int | None, what: str) -> int:
    if value is None:
        raise BfcvizError(f"no {what} is selected: click a chunk in the region map first")
    return value


def _kinds(position: Position) -> Collection[Kind]:
    return [Kind[position.target]] if position.target in Kind.__members__ else list(Kind)


def _one(position: Position, *, forward: bool) -> int:
    """The step of the next or previous event of this pool; past the last one, the end of the trace."""
    find = next_step if forward else previous_step
    found = find(position.trace, position.step, list(Kind), position.pool)
    if found is None:
        return len(position.trace) if forward else position.trace.first
    return found


def _oom(position: Position) -> int:
    found = next_step(position.trace, position.step, [Kind.OOM], position.pool)
    if found is None:
        raise BfcvizError("there is no OOM event after this step")
    return found


_MOVES: Final[dict[str, Callable[[Position], int]]] = {
    "first": lambda position: position.trace.first,
    "back": lambda position: _one(position, forward=False),
    "forward": lambda position: _one(position, forward=True),
    "last": lambda position: len(position.trace),
    "previous": lambda position: _step(position, _kinds(position), forward=False),
    "next": lambda position: _step(position, _kinds(position), forward=True),
    "oom": _oom,
    "worst": lambda position: worst_fragmentation(position.trace, position.pool),
    "peak": lambda position: peak(position.trace, position.pool),
}
