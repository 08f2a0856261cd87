"""Two recordings compared: memory over time, B laid over A; and the holders that make the difference of the peaks."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.recording_alignment import AlignedBy, PairedStep
from bfcviz.analysis.recording_comparison import (
    AT_PEAK,
    PeakPart,
    RecordingComparison,
    parts_text,
    peaks_text,
)
from bfcviz.figures.panel import BARE_ROWS, FLAT_BARS, Panel, Picture, below_each_other, panels_picture
from bfcviz.figures.text import axis_unit, harmless
from bfcviz.figures.theme import Paint, Theme, ThemeName, theme_of, translucent
from bfcviz.units import exact_bytes, format_bytes, signed_bytes

# ------------------------------------------------------------------------------
# Memory over time of two recordings, B laid over A: A, the recording before, is grey, and B has the colour of use.

LONGEST_TITLE: Final = 200  # characters
_MOST_TICKS: Final = 12
_POOL_REACH: Final = 2.5
"""A pool above so many times the most bytes in use is not drawn: it would flatten all else."""

_CLOSE: Final = 0.1  # of the width: less than the text at a peak takes


def recording_curves_panel(found: RecordingComparison, theme: Theme) -> Panel:
    """Bytes in use and pool of both recordings, with the steps of B where those of A lie that belong to them."""
    most = max(float(series["bytes_in_use_max"].max(initial=1)) for series in found.series)
    pools = map(_recording_pool_line_top, found.series)
    highest = max([most, *(pool for pool in pools if pool <= _POOL_REACH * most)])
    divisor, unit = axis_unit(highest)
    first, last = float(found.a.first), float(max(found.a.last, found.a.first + 1))
    return Panel(
        name="memory",
        title=harmless(peaks_text(found), LONGEST_TITLE),
        caption=f"most bytes in use ({unit}); dashed: pool; steps aligned by {found.alignment.by}",
        definition="The highest value of each interval of events is drawn.<br>B is laid over A: pairs of steps that "
        "belong together have one position,<br> and steps between two pairs lie in proportion.",
        traces=[
            _recording_curve(found, "a", "bytes_in_use", divisor, theme),
            _recording_curve(found, "b", "bytes_in_use", divisor, theme),
            _pool_line(found, "a", (highest, divisor), theme),
            _pool_line(found, "b", (highest, divisor), theme),
            _recording_peak_marks(found, divisor, theme),
        ],
        xaxis={
            "title": {"text": f"step of A, with B laid over it by {found.alignment.by}"},
            "range": [first, last + 0.012 * (last - first)],
            **_paired_step_ticks(found, first, last),
        },
        yaxis={
            "title": {"text": f"bytes ({unit})"},
            "range": [0, 1.12 * highest / divisor],
            "tickformat": ",~g",
        },
        y_unit=divisor,
    )


def _recording_pool_line_top(series: NDArray[np.void]) -> float:
    """The highest value of the pool's line of two compared recordings, in bytes."""
    return float(series["pool_bytes_max"].max(initial=0))


def _pool_line(
    found: RecordingComparison, letter: str, scale: tuple[float, int], theme: Theme
) -> dict[str, Any]:
    """The line of the pool of a compared recording; only the legend names it where it is above the axis."""
    highest, divisor = scale
    line = _recording_curve(found, letter, "pool_bytes", divisor, theme)
    pool = _recording_pool_line_top(found.series["ab".index(letter)])
    if pool <= highest:
        return line
    return line | {"name": f"{line['name']} {format_bytes(pool)} (far above)", "y": line["y"] * np.nan}


def _recording_curve(
    found: RecordingComparison, letter: str, series: str, divisor: int, theme: Theme
) -> dict[str, Any]:
    rows = found.series["ab".index(letter)]
    paint, in_use = recording_paint(letter, theme), series == "bytes_in_use"
    name = f"{letter.upper()}: {'in use' if in_use else 'pool'}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": _recording_positions(found, letter, rows["step"]),
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


def _recording_positions(
    found: RecordingComparison, letter: str, steps: NDArray[np.integer]
) -> NDArray[np.float64]:
    return steps.astype(np.float64) if letter == "a" else found.alignment.in_a(steps)


def _recording_peak_marks(found: RecordingComparison, divisor: int, theme: Theme) -> dict[str, Any]:
    peak = found.moments.to_pylist()[0]
    steps = {letter: np.array([peak[f"{letter}_step"]]) for letter in "ab"}
    across = np.concatenate([_recording_positions(found, *each) for each in steps.items()])
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "peaks",
        "x": across,
        "y": np.array([peak["a_bytes"], peak["b_bytes"]]) / divisor,
        "text": [f"{letter.upper()} {format_bytes(peak[f'{letter}_bytes'])}" for letter in "ab"],
        "textposition": _peak_text_positions(across, found),
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


def _peak_text_positions(across: NDArray[np.float64], found: RecordingComparison) -> list[str]:
    """Where the texts of two points stand: within the plot, and not over each other."""
    share = (across - found.a.first) / max(found.a.last - found.a.first, 1)
    if abs(share[1] - share[0]) < _CLOSE:
        side = "right" if share.max() < 0.5 else "left"
        return [f"bottom {side}", f"top {side}"]
    sides = ["right" if place < _CLOSE else "left" if place > 1 - _CLOSE else "center" for place in share]
    return [f"top {side}" for side in sides]


def _paired_step_ticks(found: RecordingComparison, first: float, last: float) -> dict[str, Any]:
    """Ticks at paired marks and steps of two recordings, by name; else at round steps of A."""
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
    """The colours of compared recordings `a` and `b`."""
    return theme.other if letter == "a" else theme.in_use


# ------------------------------------------------------------------------------
# The holders that make the difference of two recordings: a bar each, to the right where B has more.

_OTHERS: Final = "all others"
_NAME: Final = 46  # characters of a holder's name
_GAP: Final = 0.005  # of the width, between a bar and its texts
_ROOM: Final = 0.32  # of the width: room for names on the other side of the bars
_BEYOND: Final = 1.3  # the length of the axis on one side, in lengths of its longest bar: room for the amount

_Bar = tuple[str, int, str]  # name of the holder, bytes in B less bytes in A, text on hover


def changed_holders_panel(found: RecordingComparison, theme: Theme) -> Panel:
    """The holders that make the difference of two recordings' peaks; the first trace has the bars."""
    bars = [(part.holder, part.bytes, _holder_change_hover(part)) for part in found.spread.named]
    if rest := found.spread.left:
        bars.append((_OTHERS, rest, f"<b>{_OTHERS}</b><br>{signed_bytes(rest)} together"))
    divisor, unit = axis_unit(max((abs(change) for _, change, _ in bars), default=1))
    left, right = _change_axis_range([change / divisor for _, change, _ in bars])
    gap = _GAP * (right - left)
    return Panel(
        name="changes",
        title="Who makes the difference",
        caption=harmless(parts_text(found), 160) or "every holder has as many bytes at both peaks",
        definition="Bytes in use at the peak of B less bytes in use at the peak of A, of each holder.",
        traces=[
            _holder_change_bars(bars, divisor, theme),
            _holder_change_names(bars, theme, gap),
            _holder_change_amounts(bars, divisor, theme, gap),
        ],
        xaxis={
            "title": {"text": f"B less A, at the peaks ({unit})"},
            "range": [left, right],
            "zeroline": True,
            "zerolinecolor": theme.muted,
            "tickformat": "+,~g",
        },
        yaxis={**BARE_ROWS, "range": [max(len(bars), 1) - 0.5, -0.5]},
        x_unit=float(divisor),
        legend=False,
    )


def _change_axis_range(changes: list[float]) -> tuple[float, float]:
    """The ends of the axis of changed holders: room for bars on one side and names on the other."""
    more, less = max(0.0, *changes, 0.0) * _BEYOND, -min(0.0, *changes, 0.0) * _BEYOND
    if not more and not less:
        return -1.0, 1.0
    if more:
        less = max(less, more * _ROOM / (1 - _ROOM))
    if less and min(changes) < 0:
        more = max(more, less * _ROOM / (1 - _ROOM))
    return -less, more


def _holder_change_bars(bars: list[_Bar], divisor: int, theme: Theme) -> dict[str, Any]:
    paints = [recording_paint("b" if change > 0 else "a", theme) for _, change, _ in bars]
    return {
        **FLAT_BARS,
        "name": "change",
        "x": np.array([change / divisor for _, change, _ in bars]),
        "y": np.arange(len(bars), dtype=np.float64),
        "marker": {
            "color": [paint.fill for paint in paints],
            "line": {"color": [paint.line for paint in paints], "width": 1},
        },
        "hovertext": [text for *_, text in bars],
    }


def _holder_change_names(bars: list[_Bar], theme: Theme, gap: float) -> dict[str, Any]:
    """The names of the bars of changed holders, on the other side of the zero line."""
    return _holder_change_texts("holders", bars, theme) | {
        "x": np.array([-gap if change > 0 else gap for _, change, _ in bars]),
        "text": [harmless(name, _NAME) for name, *_ in bars],
        "textposition": ["middle left" if change > 0 else "middle right" for _, change, _ in bars],
    }


def _holder_change_amounts(bars: list[_Bar], divisor: int, theme: Theme, gap: float) -> dict[str, Any]:
    """The amounts, at the ends of the bars; plotly would write that of a very short bar over its name."""
    return _holder_change_texts("amounts", bars, theme) | {
        "x": np.array([change / divisor + (gap if change > 0 else -gap) for _, change, _ in bars]),
        "text": [signed_bytes(change) for _, change, _ in bars],
        "textposition": ["middle right" if change > 0 else "middle left" for _, change, _ in bars],
    }


def _holder_change_texts(name: str, bars: list[_Bar], theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "name": name,
        "y": np.arange(len(bars), dtype=np.float64),
        "textfont": {"size": 11, "color": theme.text},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _holder_change_hover(part: PeakPart) -> str:
    of = "" if part.holders == 1 else f"<br>{part.holders:,} holders with this name around them"
    return f"<b>{harmless(part.holder)}</b><br>{'+' if part.bytes > 0 else '-'}{exact_bytes(abs(part.bytes))}{of}"


# ------------------------------------------------------------------------------
# The figure of both panels.

_OVER_TIME: Final = 300  # pixels of height
_ROW: Final = 26
_NAMES: Final = 30  # characters of a recording's name


def recordings_compared(found: RecordingComparison, theme: ThemeName = "light") -> Picture:
    """The comparison of two recordings as a figure; its table has every holder at the peaks."""
    colours = theme_of(theme)
    panels = [changed_holders_panel(found, colours)]
    if found.alignment.by is AlignedBy.STATE:
        panels = [replace(panels[0], title=harmless(peaks_text(found), LONGEST_TITLE))]
    else:
        panels.insert(0, recording_curves_panel(found, colours))
    heights = [_OVER_TIME] * (len(panels) - 1) + [_ROW * max(len(panels[-1].traces[0]["y"]), 3)]
    facts = " · ".join(
        f"{side.letter}: {harmless(side.name, _NAMES)}, {harmless(side.heap, _NAMES)}, {side.status}"
        for side in (found.a, found.b)
    )
    picture = panels_picture(panels, below_each_other(panels, heights), colours)
    return picture.with_table(found.holders_at(AT_PEAK)).with_facts(facts)
