"""What is drawn over a timeline event by event: the user's own marks, and requests that failed."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.history import History
from bfcviz.figures.text import exact_bytes, harmless
from bfcviz.figures.theme import Theme

MOST_MARKS: Final = 60
"""Upright lines that are still told apart."""

MOST_FAILURES: Final = 100


def marks(seen: History, top: float, theme: Theme) -> dict[str, Any]:
    """A hairline at each mark, up to `top`; its label on hover, at the sign on its upper end."""
    drawn = seen.marks.thinned(MOST_MARKS)
    across = _places(seen, drawn.events)
    count = len(across)
    told = [_mark_words(seen, event) for event in drawn.events]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": drawn.called("mark"),
        "showlegend": bool(count),
        "x": np.repeat(across, 3),
        "y": np.tile([0.0, 0.985 * top, np.nan], count),
        "line": {"color": theme.muted, "width": 1},
        "marker": {
            "symbol": "triangle-down",
            "size": np.tile([0.0, 9.0, 0.0], count),
            "color": theme.text,
            "line": {"width": 0},
        },
        "hovertext": [words for words in told for _ in range(3)],
        "hoverinfo": "text",
    }


def failures(seen: History, divisor: int, theme: Theme) -> dict[str, Any]:
    """A cross at each OOM, as high as the bytes that were free; `divisor` of them are 1 on the axis."""
    drawn = seen.failed.thinned(MOST_FAILURES)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": drawn.called("OOM"),
        "showlegend": bool(len(drawn.events)),
        "x": _places(seen, drawn.events),
        "y": drawn.events["address"].astype(np.float64) / divisor,
        "marker": {"symbol": "x", "size": 9, "color": theme.oom, "line": {"color": theme.paper, "width": 1}},
        "hovertext": [
            f"<b>OOM</b>: {exact_bytes(int(event['requested']))} requested"
            f"<br>free {exact_bytes(int(event['address']))}"
            f"<br>largest free chunk {exact_bytes(int(event['size']))}"
            f"<br>step {int(event['seq']) + 1:,}"
            for event in drawn.events
        ],
        "hoverinfo": "text",
    }


def _places(seen: History, events: NDArray[np.void]) -> NDArray[np.float64]:
    return seen.clock.positions(events["seq"] + np.uint64(1), events["time"])


def _mark_words(seen: History, event: np.void) -> str:
    label = harmless(seen.trace.labels.name(int(event["label"]))) or "mark"
    return f"<b>{label}</b><br>value {int(event['size']):,}<br>step {int(event['seq']) + 1:,}"
