"""Single events on a timeline: the user's marks, and failed requests (OOM)."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events
from bfcviz.figures.style.colour_math import translucent
from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.figures.style.theme import Theme
from bfcviz.figures.timelines.history import History
from bfcviz.figures.timelines.thinned_events import ThinnedEvents

MOST_MARKS: Final = 60
"""Equal parts of the axis, each with at most one mark: closer lines cannot be told apart."""

MOST_FAILURES: Final = 100
"""The same for OOMs."""


def marks(history: History, thinned: ThinnedEvents, top: float, theme: Theme) -> dict[str, Any]:
    """A vertical line at each of these marks, up to `top`; a triangle at its upper end shows its label on hover."""
    events, name = _drawn(history, thinned, "mark", MOST_MARKS)
    across = positions_of(history, events)
    count = len(across)
    texts = [_mark_text(history, event) for event in events]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "showlegend": bool(count),
        "x": np.repeat(across, 3),
        "y": np.tile([0.0, 0.985 * top, np.nan], count),
        "line": {"color": translucent(theme.muted, 0.7), "width": 1},
        "marker": {
            "symbol": "triangle-down",
            "size": np.tile([0.0, 9.0, 0.0], count),
            "color": theme.text,
            "line": {"width": 0},
        },
        "hovertext": [text for text in texts for _ in range(3)],
        "hoverinfo": "text",
    }


def failures(history: History, divisor: int, theme: Theme) -> dict[str, Any]:
    """A cross at each OOM, at the height of the free bytes; `divisor` bytes are one unit of the axis."""
    events, name = _drawn(history, history.failed, "OOM", MOST_FAILURES)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": bool(len(events)),
        "x": positions_of(history, events),
        "y": events["address"].astype(np.float64) / divisor,
        "marker": {"symbol": "x", "size": 9, "color": theme.oom, "line": {"color": theme.paper, "width": 1}},
        "hovertext": [
            f"<b>OOM</b>: {exact_bytes(int(event['requested']))} requested"
            f"<br>free bytes {exact_bytes(int(event['address']))}"
            f"<br>largest free chunk {exact_bytes(int(event['size']))}"
            f"<br>step {int(event['seq']) + 1:,}"
            for event in events
        ],
        "hoverinfo": "text",
    }


def _drawn(history: History, thinned: ThinnedEvents, name: str, parts: int) -> tuple[Events, str]:
    """The first event in each of so many parts of the window; and `name`, with the number left out, if any."""
    left, right = history.step_axis.range(history.steps)
    across = positions_of(history, thinned.events)
    inside = np.flatnonzero((across >= left) & (across <= right))
    part = ((across[inside] - left) * (parts / (right - left))).astype(np.int64)
    first = inside[np.unique(part, return_index=True)[1]]
    total = len(inside) * thinned.every
    if len(first) == total:
        return thinned.events, name
    about = "" if thinned.every == 1 else "about "
    return thinned.events[first], f"{name} ({len(first):,} of {about}{total:,} shown)"


def positions_of(history: History, events: NDArray[np.void]) -> NDArray[np.float64]:
    """The positions of the states after these events, on the x axis."""
    return history.step_axis.positions(events["seq"] + np.uint64(1), events["time"])


def _mark_text(history: History, event: np.void) -> str:
    label = harmless(history.trace.labels.name(int(event["label"]))) or "mark"
    return f"<b>{label}</b><br>value {int(event['size']):,}<br>step {int(event['seq']) + 1:,}"
