"""What is drawn over a timeline event by event: the user's own marks, and requests that failed."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events
from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.figures.style.theme import Theme, translucent
from bfcviz.figures.timelines.history import History, ThinnedEvents

MOST_MARKS: Final = 60
"""Equal parts of the axis of which each shows at most one mark: lines closer together would be a wall."""

MOST_FAILURES: Final = 100
"""Likewise for OOMs."""


def marks(history: History, thinned: ThinnedEvents, top: float, theme: Theme) -> dict[str, Any]:
    """A hairline at each of these marks, up to `top`; its label on hover, at the sign on its upper end."""
    events, name = _drawn(history, thinned, "mark", MOST_MARKS)
    across = places(history, events)
    count = len(across)
    told = [_mark_words(history, event) for event in events]
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
        "hovertext": [words for words in told for _ in range(3)],
        "hoverinfo": "text",
    }


def failures(history: History, divisor: int, theme: Theme) -> dict[str, Any]:
    """A cross at each OOM, as high as the bytes that were free; `divisor` of them are 1 on the axis."""
    events, name = _drawn(history, history.failed, "OOM", MOST_FAILURES)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": bool(len(events)),
        "x": places(history, events),
        "y": events["address"].astype(np.float64) / divisor,
        "marker": {"symbol": "x", "size": 9, "color": theme.oom, "line": {"color": theme.paper, "width": 1}},
        "hovertext": [
            f"<b>OOM</b>: {exact_bytes(int(event['requested']))} requested"
            f"<br>free {exact_bytes(int(event['address']))}"
            f"<br>largest free chunk {exact_bytes(int(event['size']))}"
            f"<br>step {int(event['seq']) + 1:,}"
            for event in events
        ],
        "hoverinfo": "text",
    }


def _drawn(history: History, thinned: ThinnedEvents, name: str, parts: int) -> tuple[Events, str]:
    """Of the thinned in the window the first in each of so many parts; and `name`, saying what is left out."""
    left, right = history.step_axis.range(history.steps)
    across = places(history, thinned.events)
    inside = np.flatnonzero((across >= left) & (across <= right))
    part = ((across[inside] - left) * (parts / (right - left))).astype(np.int64)
    first = inside[np.unique(part, return_index=True)[1]]
    total = len(inside) * thinned.every
    if len(first) == total:
        return thinned.events, name
    about = "" if thinned.every == 1 else "about "
    return thinned.events[first], f"{name} ({len(first):,} of {about}{total:,} shown)"


def places(history: History, events: NDArray[np.void]) -> NDArray[np.float64]:
    """Where events stand on the axis."""
    return history.step_axis.positions(events["seq"] + np.uint64(1), events["time"])


def _mark_words(history: History, event: np.void) -> str:
    label = harmless(history.trace.labels.name(int(event["label"]))) or "mark"
    return f"<b>{label}</b><br>value {int(event['size']):,}<br>step {int(event['seq']) + 1:,}"
