"""Phases on a timeline: bars along its top, inner phases below outer ones.

A phase is a pair of marks with the same value; the details of their labels name the phase that begins or ends.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.theme import Theme, translucent
from bfcviz.figures.timelines.event_markers import positions_of
from bfcviz.figures.timelines.history import History, ThinnedEvents

BEGINS: Final = "begins"
ENDS: Final = "ends"

_LANES: Final = 4
"""Lanes of bars; phases that find no free lane are counted, not drawn."""

_LANE: Final = 0.055  # of the plot's height
_ROOM: Final = 0.012  # of the plot's width: about one letter of a name


class Phase(NamedTuple):
    """A phase, clipped to the window.

    Attributes:
        name: the name of the phase.
        left, right: its ends in axis units, clipped to the window.
        text: its hover text.
    """

    name: str
    left: float
    right: float
    text: str


def without_phases(history: History) -> ThinnedEvents:
    """The marks that neither begin nor end a phase."""
    plain = [number for number, name in enumerate(_ends(history)) if name is None]
    return ThinnedEvents(history.marks.events[plain], history.marks.every)


def phases(history: History, top: float, theme: Theme) -> dict[str, Any]:
    """Bars below the upper edge of the plot, at `top`; none if marks were thinned, because ends may be missing."""
    found, missed = _in_lanes(_found(history)) if history.marks.every == 1 else ([], 0)
    any_phase = any(name is not None for name in _ends(history))
    name = "phase" if not missed else f"phase ({missed:,} more)"
    if any_phase and history.marks.every > 1:
        name = "phase (too many: zoom in)"
    wide = history.step_axis.range(history.steps)[1] - history.step_axis.range(history.steps)[0]
    shown = [
        harmless(phase.name) if phase.right - phase.left > _ROOM * wide * (len(phase.name) + 1) else ""
        for phase, _ in found
    ]
    return {
        "type": "scatter",
        "mode": "lines+text",
        "name": name,
        "showlegend": any_phase,
        "x": _spread((phase.left, (phase.left + phase.right) / 2, phase.right) for phase, _ in found),
        "y": _spread([(0.97 - _LANE * lane) * top] * 3 for _, lane in found),
        "line": {"color": translucent(theme.muted, 0.35), "width": 11},
        "text": [text for name in shown for text in ("", name, "", "")],
        "textfont": {"size": 10, "color": theme.text},
        "hovertext": [phase.text for phase, _ in found for _ in range(4)],
        "hoverinfo": "text",
    }


def _spread(points: Iterable[Iterable[float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Three points per phase, then a gap."""
    return np.array([value for three in points for value in (*three, np.nan)], np.float64)


def _ends(history: History) -> list[tuple[str, str] | None]:
    """For each mark: begins or ends, and the phase; None if it is a plain mark."""
    known: dict[int, tuple[str, str] | None] = {0: None}
    found = []
    for label in history.marks.events["label"].tolist():
        if label not in known:
            details = history.trace.labels[label].details
            known[label] = next(((side, details[side]) for side in (BEGINS, ENDS) if side in details), None)
        found.append(known[label])
    return found


def _found(history: History) -> list[Phase]:
    """All phases in the window, by their beginning, clipped to the window."""
    left, right = history.step_axis.range(history.steps)
    events, across = history.marks.events, positions_of(history, history.marks.events)
    begun: dict[tuple[str, int], tuple[float, int]] = {}
    found = []
    for event, x, end in zip(events, across.tolist(), _ends(history), strict=True):
        if end is None:
            continue
        side, name = end
        key = name, int(event["size"])
        if side == BEGINS:
            begun[key] = x, int(event["seq"]) + 1
            continue
        x_begun, step = begun.pop(key, (left, None))
        found.append(_phase(name, x_begun, x, (step, int(event["seq"]) + 1)))
    found += [_phase(name, x, right, (step, None)) for (name, _), (x, step) in begun.items()]
    cut = (phase._replace(left=max(phase.left, left), right=min(phase.right, right)) for phase in found)
    return sorted((phase for phase in cut if phase.left <= phase.right), key=lambda p: (p.left, -p.right))


def _phase(name: str, left: float, right: float, steps: tuple[int | None, int | None]) -> Phase:
    first, last = ("…" if step is None else f"{step:,}" for step in steps)
    return Phase(name, left, right, f"<b>{harmless(name)}</b><br>phase from step {first} to step {last}")


def _in_lanes(found: list[Phase]) -> tuple[list[tuple[Phase, int]], int]:
    """Each phase in the highest lane that is free where it begins; and the number of phases without a lane."""
    free = [-np.inf] * _LANES
    placed, missed = [], 0
    for phase in found:
        lane = next((number for number, until in enumerate(free) if until <= phase.left), None)
        if lane is None:
            missed += 1
            continue
        free[lane] = phase.right
        placed.append((phase, lane))
    return placed, missed
