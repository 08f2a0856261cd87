"""Phases on a timeline: bars along its top, inner phases below outer ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from bfcviz.figures.style.colour_math import translucent
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.theme import Theme
from bfcviz.figures.timelines.event_markers import positions_of
from bfcviz.figures.timelines.history import History
from bfcviz.figures.timelines.thinned_events import ThinnedEvents
from bfcviz.model.browse.phases import Phase, PhaseEnd, phase_ends, phases_among


@dataclass(frozen=True)
class Lanes:
    """The lanes of bars, from the top of the plot; phases that find no free lane are counted, not drawn.

    Attributes:
        count: number of lanes.
        share: of the plot's height, of one lane.
        width: of a bar, in pixels.
    """

    count: int = 4
    share: float = 0.055
    width: int = 11


_ROOM: Final = 0.012  # of the plot's width: about one letter of a name


class PhaseBar(NamedTuple):
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


_DEFAULT: Final = Lanes()


def phases(history: History, top: float, theme: Theme, lanes: Lanes = _DEFAULT) -> dict[str, Any]:
    """Bars below the upper edge of the plot, at `top`; none if marks were thinned, because ends may be missing."""
    found, missed = _in_lanes(_found(history), lanes.count) if history.marks.every == 1 else ([], 0)
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
        "y": _spread([(1 - lanes.share * (lane + 0.55)) * top] * 3 for _, lane in found),
        "line": {"color": translucent(theme.muted, 0.35), "width": lanes.width},
        "text": [text for name in shown for text in ("", name, "", "")],
        "textfont": {"size": 10, "color": theme.text},
        "hovertext": [phase.text for phase, _ in found for _ in range(4)],
        "hoverinfo": "text",
    }


def _spread(points: Iterable[Iterable[float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Three points per phase, then a gap."""
    return np.array([value for three in points for value in (*three, np.nan)], np.float64)


def _ends(history: History) -> list[PhaseEnd | None]:
    return phase_ends(history.marks.events, history.trace.labels)


def _found(history: History) -> list[PhaseBar]:
    """All phases in the window, by their beginning, clipped to the window."""
    left, right = history.step_axis.range(history.steps)
    events = history.marks.events
    x = dict(zip(events["seq"].tolist(), positions_of(history, events).tolist(), strict=True))
    found = []
    for phase in phases_among(events, history.trace.labels):
        begins = left if phase.begins is None else max(x[phase.begins], left)
        ends = right if phase.ends is None else min(x[phase.ends], right)
        if begins <= ends:
            found.append(PhaseBar(phase.name, begins, ends, _text(phase)))
    return sorted(found, key=lambda bar: (bar.left, -bar.right))


def _text(phase: Phase) -> str:
    first, last = ("…" if seq is None else f"{seq + 1:,}" for seq in (phase.begins, phase.ends))
    return f"<b>{harmless(phase.name)}</b><br>phase from step {first} to step {last}"


def _in_lanes(found: list[PhaseBar], lanes: int) -> tuple[list[tuple[PhaseBar, int]], int]:
    """Each phase in the highest lane that is free where it begins; and the number of phases without a lane."""
    free = [-np.inf] * lanes
    placed, missed = [], 0
    for phase in found:
        lane = next((number for number, until in enumerate(free) if until <= phase.left), None)
        if lane is None:
            missed += 1
            continue
        free[lane] = phase.right
        placed.append((phase, lane))
    return placed, missed
