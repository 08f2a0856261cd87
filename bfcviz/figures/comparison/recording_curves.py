"""Memory over time of two recordings, B laid over A: A, the recording before, is grey, and B has the colour of use."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.panel import Panel
from bfcviz.figures.style.colour_math import translucent
from bfcviz.figures.style.text import axis_unit, exact_bytes, harmless
from bfcviz.figures.style.theme import Paint, Theme
from bfcviz.model.comparison.alignment import AlignedBy, PairedStep
from bfcviz.model.comparison.recording_comparison import RecordingComparison
from bfcviz.model.comparison.text import peaks_text
from bfcviz.units import format_bytes

LONGEST_TITLE: Final = 200  # characters
_MOST_TICKS: Final = 12
_POOL_REACH: Final = 2.5
"""A pool above so many times the most bytes in use is not drawn: it would flatten all else."""

_CLOSE: Final = 0.1  # of the width: less than the text at a peak takes


def recording_curves_panel(found: RecordingComparison, theme: Theme) -> Panel:
    """Bytes in use and pool of both recordings, with the steps of B where those of A lie that belong to them."""
    highest = max(float(series["bytes_in_use_max"].max(initial=1)) for series in found.series)
    highest = max([highest, *(pool for pool in map(_pool, found.series) if pool <= _POOL_REACH * highest)])
    divisor, unit = axis_unit(highest)
    first, last = float(found.a.first), float(max(found.a.last, found.a.first + 1))
    return Panel(
        name="memory",
        title=harmless(peaks_text(found), LONGEST_TITLE),
        caption=f"most bytes in use ({unit}); dashed: pool; steps aligned by {found.alignment.by}",
        definition="The highest value of each interval of events is drawn.<br>B is laid over A: pairs of steps that "
        "belong together have one position,<br> and steps between two pairs lie in proportion.",
        traces=[
            _curve(found, "a", "bytes_in_use", divisor, theme),
            _curve(found, "b", "bytes_in_use", divisor, theme),
            _pool_line(found, "a", (highest, divisor), theme),
            _pool_line(found, "b", (highest, divisor), theme),
            _peak_marks(found, divisor, theme),
        ],
        xaxis={
            "title": {"text": f"step of A, with B laid over it by {found.alignment.by}"},
            "range": [first, last + 0.012 * (last - first)],
            **_ticks(found, first, last),
        },
        yaxis={
            "title": {"text": f"bytes ({unit})"},
            "range": [0, 1.12 * highest / divisor],
            "tickformat": ",~g",
        },
        y_unit=divisor,
    )


def _pool(series: NDArray[np.void]) -> float:
    return float(series["pool_bytes_max"].max(initial=0))


def _pool_line(
    found: RecordingComparison, letter: str, scale: tuple[float, int], theme: Theme
) -> dict[str, Any]:
    """The pool; only the legend names it where it is above the axis."""
    highest, divisor = scale
    line = _curve(found, letter, "pool_bytes", divisor, theme)
    pool = _pool(found.series["ab".index(letter)])
    if pool <= highest:
        return line
    return line | {"name": f"{line['name']} {format_bytes(pool)} (far above)", "y": line["y"] * np.nan}


def _curve(
    found: RecordingComparison, letter: str, series: str, divisor: int, theme: Theme
) -> dict[str, Any]:
    rows = found.series["ab".index(letter)]
    paint, in_use = recording_paint(letter, theme), series == "bytes_in_use"
    name = f"{letter.upper()}: {'in use' if in_use else 'pool'}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": _positions(found, letter, rows["step"]),
        "y": rows[f"{series}_max"].astype(np.float64) / divisor,
        "line": {
            "color": paint.line,
            "width": 1.6 if in_use else 1.2,
            "shape": "vh",  # a row is about the events before its step
            "dash": "solid" if in_use else "dash",
        },
        "fill": "tozeroy" if in_use else "none",
        "fillcolor": translucent(paint.fill, 0.35),
        "customdata": rows["step"].astype(np.float64),
        "hovertemplate": f"{name} %{{y:,.4~f}}<br>step %{{customdata:,.0f}} of {letter.upper()}<extra></extra>",
    }


def _positions(found: RecordingComparison, letter: str, steps: NDArray[np.integer]) -> NDArray[np.float64]:
    return steps.astype(np.float64) if letter == "a" else found.alignment.in_a(steps)


def _peak_marks(found: RecordingComparison, divisor: int, theme: Theme) -> dict[str, Any]:
    peak = found.moments.to_pylist()[0]
    across = np.concatenate(
        [_positions(found, letter, np.array([peak[f"{letter}_step"]])) for letter in "ab"]
    )
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "peaks",
        "x": across,
        "y": np.array([peak["a_bytes"], peak["b_bytes"]]) / divisor,
        "text": [f"{letter.upper()} {format_bytes(peak[f'{letter}_bytes'])}" for letter in "ab"],
        "textposition": _beside(across, found),
        "textfont": {"size": 11, "color": theme.text},
        "marker": {
            "symbol": "diamond",
            "size": 9,
            "color": [recording_paint(letter, theme).line for letter in "ab"],
            "line": {"width": 1, "color": theme.paper},
        },
        "hovertext": [
            f"<b>peak of {letter.upper()}</b>: {exact_bytes(peak[f'{letter}_bytes'])}"
            f"<br>step {peak[f'{letter}_step']:,}"
            for letter in "ab"
        ],
        "hoverinfo": "text",
    }


def _beside(across: NDArray[np.float64], found: RecordingComparison) -> list[str]:
    """Where the texts of two points stand: within the plot, and not over each other."""
    share = (across - found.a.first) / max(found.a.last - found.a.first, 1)
    if abs(share[1] - share[0]) < _CLOSE:
        side = "right" if share.max() < 0.5 else "left"
        return [f"bottom {side}", f"top {side}"]
    sides = ["right" if place < _CLOSE else "left" if place > 1 - _CLOSE else "center" for place in share]
    return [f"top {side}" for side in sides]


def _ticks(found: RecordingComparison, first: float, last: float) -> dict[str, Any]:
    """Ticks at paired marks and steps, by name; at round steps of A where pairs have no short names."""
    if found.alignment.by not in {AlignedBy.MARKS, AlignedBy.STEPS}:
        return {"tickformat": ",~f"}
    apart, chosen = (last - first) / _MOST_TICKS, list[PairedStep]()
    for moment in found.alignment.moments:
        if not chosen or moment.a - chosen[-1].a >= apart:
            chosen.append(moment)
    return {
        "tickvals": [float(moment.a) for moment in chosen],
        "ticktext": [harmless(moment.name, 14) for moment in chosen],
    }


def recording_paint(letter: str, theme: Theme) -> Paint:
    """The colours of recording `a` and of `b`."""
    return theme.other if letter == "a" else theme.in_use
