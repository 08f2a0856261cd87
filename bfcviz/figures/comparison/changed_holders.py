"""The holders that make the difference of two recordings: a bar each, to the right where B has more."""

from typing import Any, Final

import numpy as np

from bfcviz.figures.comparison.recording_curves import recording_paint
from bfcviz.figures.panel import Panel
from bfcviz.figures.style.text import axis_unit, exact_bytes, harmless
from bfcviz.figures.style.theme import Theme
from bfcviz.model.comparison.recording_comparison import PeakPart, RecordingComparison
from bfcviz.model.comparison.text import parts_text, signed

_OTHERS: Final = "all others"
_NAME: Final = 46  # characters of a holder's name
_GAP: Final = 0.005  # of the width, between a bar and its texts
_ROOM: Final = 0.32  # of the width: room for names on the other side of the bars
_BEYOND: Final = 1.3  # the length of the axis on one side, in lengths of its longest bar: room for the amount

_Bar = tuple[str, int, str]
"""Name of the holder, bytes in B less bytes in A, text on hover."""


def changed_holders_panel(found: RecordingComparison, theme: Theme) -> Panel:
    """The holders that make the difference of the peaks, as detailed as there is room; the first trace has the bars."""
    bars = [(part.holder, part.bytes, _hover(part)) for part in found.spread.named]
    if found.spread.left:
        bars.append((_OTHERS, found.spread.left, f"<b>{_OTHERS}</b><br>{signed(found.spread.left)} together"))
    divisor, unit = axis_unit(max((abs(change) for _, change, _ in bars), default=1))
    left, right = _range([change / divisor for _, change, _ in bars])
    gap = _GAP * (right - left)
    return Panel(
        name="changes",
        title="Who makes the difference",
        caption=harmless(parts_text(found), 160) or "every holder has as many bytes at both peaks",
        definition="Bytes in use at the peak of B less bytes in use at the peak of A, of each holder.",
        traces=[
            _bars(bars, divisor, theme),
            _names(bars, theme, gap),
            _amounts(bars, divisor, theme, gap),
        ],
        xaxis={
            "title": {"text": f"B less A, at the peaks ({unit})"},
            "range": [left, right],
            "zeroline": True,
            "zerolinecolor": theme.muted,
            "tickformat": "+,~g",
        },
        yaxis={
            "range": [max(len(bars), 1) - 0.5, -0.5],
            "showticklabels": False,
            "ticks": "",
            "showgrid": False,
            "showline": False,
            "fixedrange": True,
        },
        x_unit=float(divisor),
        legend=False,
    )


def _range(changes: list[float]) -> tuple[float, float]:
    """The ends of the axis: each side is long enough for its bars and for the names of the bars on the other side."""
    more, less = max(0.0, *changes, 0.0) * _BEYOND, -min(0.0, *changes, 0.0) * _BEYOND
    if not more and not less:
        return -1.0, 1.0
    if more:
        less = max(less, more * _ROOM / (1 - _ROOM))
    if less and min(changes) < 0:
        more = max(more, less * _ROOM / (1 - _ROOM))
    return -less, more


def _bars(bars: list[_Bar], divisor: int, theme: Theme) -> dict[str, Any]:
    paints = [recording_paint("b" if change > 0 else "a", theme) for _, change, _ in bars]
    return {
        "type": "bar",
        "orientation": "h",
        "name": "change",
        "x": np.array([change / divisor for _, change, _ in bars]),
        "y": np.arange(len(bars), dtype=np.float64),
        "marker": {
            "color": [paint.fill for paint in paints],
            "line": {"color": [paint.line for paint in paints], "width": 1},
        },
        "hovertext": [text for *_, text in bars],
        "hoverinfo": "text",
    }


def _names(bars: list[_Bar], theme: Theme, gap: float) -> dict[str, Any]:
    """The names of the bars, on the other side of the zero line."""
    return _texts("holders", bars, theme) | {
        "x": np.array([-gap if change > 0 else gap for _, change, _ in bars]),
        "text": [harmless(name, _NAME) for name, *_ in bars],
        "textposition": ["middle left" if change > 0 else "middle right" for _, change, _ in bars],
    }


def _amounts(bars: list[_Bar], divisor: int, theme: Theme, gap: float) -> dict[str, Any]:
    """The amounts, at the ends of the bars; plotly would write that of a very short bar over its name."""
    return _texts("amounts", bars, theme) | {
        "x": np.array([change / divisor + (gap if change > 0 else -gap) for _, change, _ in bars]),
        "text": [signed(change) for _, change, _ in bars],
        "textposition": ["middle right" if change > 0 else "middle left" for _, change, _ in bars],
    }


def _texts(name: str, bars: list[_Bar], theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "name": name,
        "y": np.arange(len(bars), dtype=np.float64),
        "textfont": {"size": 11, "color": theme.text},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _hover(part: PeakPart) -> str:
    of = "" if part.holders == 1 else f"<br>{part.holders:,} holders with this name around them"
    return f"<b>{harmless(part.holder)}</b><br>{'+' if part.bytes > 0 else '-'}{exact_bytes(abs(part.bytes))}{of}"
