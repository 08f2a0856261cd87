"""The stats timeline: bytes in use, requested, pool, peak and largest free chunk over the trace."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.panel import Panel, Picture, single
from bfcviz.figures.text import axis_unit, harmless
from bfcviz.figures.theme import Paint, Theme, mixed, translucent
from bfcviz.figures.timelines import axis as timelines
from bfcviz.figures.timelines.axis import (
    History,
    ThinnedEvents,
    failures,
    marks,
    measure_history,
    positions_of,
)
from bfcviz.figures.view_options import PLAIN, Look
from bfcviz.model.navigation import Phase, PhaseEnd, phase_ends, phases_among
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# Phases on a timeline: bars along its top, inner phases below outer ones.


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


# ------------------------------------------------------------------------------
# The stats timeline: bytes in use, requested, pool, peak and largest free chunk over the trace.

_UNNAMED: Final[dict[str, Any]] = {"showlegend": False, "hoverinfo": "skip", "hovertemplate": None}


@dataclass(frozen=True)
class _Scale:
    """The y axis: bytes per unit, the unit's name, the end of the axis in units, the limit to draw in bytes."""

    divisor: int
    unit: str
    reach: float
    limit: int | None


def stats_timeline(
    trace: Trace,
    step: int | None = None,
    *,
    pool: int = 0,
    look: Look = PLAIN,
) -> Picture:
    """Bytes in use, requested, pool, limit, peak and largest free chunk over the trace.

    Args:
        trace: the events.
        step: the step that a vertical line marks; None: no line.
        pool: the heap of the trace, by number.
        look: the theme, the x axis (step or time), and the steps to draw.

    Returns:
        The figure; its table has one row per interval, with the least and greatest value of each total in it.
    """
    history = measure_history(trace, pool, look)
    return single(stats_panel(history, step, look), 360, look.paints).with_table(series_table(history))


def stats_panel(history: History, step: int | None, look: Look) -> Panel:
    """The timeline as a panel; only its last trace depends on `step`."""
    theme, scale = look.paints, _scale(history)
    traces = [
        _area(history, scale, "pool", ("pool_bytes", "max"), theme.pool.line, theme.free),
        _area(history, scale, "", ("bytes_in_use", "min"), theme.in_use.line, theme.in_use) | _UNNAMED,
        _band(history, scale, "in use", "bytes_in_use", theme.in_use.line),
        _band(
            history,
            scale,
            "requested",
            "requested_bytes_in_use",
            mixed(theme.in_use.fill, theme.paper, 0.6),
        ),
        # A rim in the paper's colour keeps the band visible where it crosses the blue area.
        _band(history, scale, "", "largest_free_chunk", theme.paper, width=4.0) | _UNNAMED,
        _band(history, scale, "largest free chunk", "largest_free_chunk", theme.free.line, width=1.8),
        _peak(history, scale, theme),
        _limit(history, scale, theme),
        marks(history, without_phases(history), scale.reach, theme) | {"legend": 1},
        phases(history, scale.reach, theme) | {"legend": 1},
        failures(history, scale.divisor, theme) | {"legend": 1},
        step_line(history, step, scale.reach, theme) | {"legend": 1},
    ]
    return Panel(
        name="stats",
        title=f"Stats ({scale.unit})",
        caption="pool above in use: free bytes; a band: least to greatest value",
        definition=_DEFINITION,
        traces=traces,
        xaxis=history.xaxis,
        yaxis={"title": {"text": f"bytes ({scale.unit})"}, "range": [0, scale.reach], "tickformat": ",~g"},
        x_unit=history.step_axis.unit,
        y_unit=scale.divisor,
    )


_DEFINITION: Final = (
    "pool: pool_bytes, the sizes of all regions<br>in use: bytes_in_use, the sizes of all chunks in use"
    "<br>requested: requested_bytes_in_use, the requested bytes of these chunks"
    "<br>largest free chunk: a larger request fails or extends the pool"
    "<br>peak so far: the highest bytes_in_use since the first event<br>limit: the memory limit of the heap"
)


def step_line(history: History, step: int | None, top: float, theme: Theme) -> dict[str, Any]:
    """The vertical line at `step`."""
    return timelines.step_line(np.nan if step is None else history.step_axis.position(step), theme, top)


def series_table(history: History) -> pa.Table:
    """The intervals as a table; the columns are those of `timeline`."""
    names = [
        name
        for name in history.series.dtype.names or ()
        if history.wanted is not None or not name.startswith("too_small")
    ]
    return pa.table({name: np.ascontiguousarray(history.series[name]) for name in names})


def _scale(history: History) -> _Scale:
    """The y axis fits the steps shown; its unit fits the whole trace and is the same for every window."""
    series, whole = history.series, history.running.series
    top = float(max(series["pool_bytes_max"].max(initial=0), series["bytes_in_use_max"].max(initial=0), 1))
    divisor, unit = axis_unit(max(float(whole["pool_bytes_max"].max(initial=0)), top))
    # A limit far above the pool would flatten everything else: then only the legend shows it.
    limit = history.bytes_limit
    drawn = limit if limit is not None and limit <= 1.6 * top else None
    return _Scale(divisor, unit, 1.08 * max(top, float(drawn or 0)) / divisor, drawn)


def _area(  # noqa: PLR0913, PLR0917  the options of an area
    history: History, scale: _Scale, name: str, values: tuple[str, str], line: str, paint: Paint
) -> dict[str, Any]:
    """The area below the least (`min`) or the greatest (`max`) values of a field."""
    across, up = timelines.upper_edge(history.series, values[0], history.step_axis, values[1])
    trace = _stepped(history, scale, name, across, up)
    trace["line"] |= {"color": line, "width": 1.2 if name else 0}
    return trace | {"fill": "tozeroy", "fillcolor": translucent(paint.fill, 0.85)}


def _band(  # noqa: PLR0913  the options of a band
    history: History, scale: _Scale, name: str, field: str, colour: str, *, width: float = 1.2
) -> dict[str, Any]:
    """The area between the least and the greatest values of a field; it is a line where they are equal."""
    across, up = timelines.envelope(history.series, field, history.step_axis)
    trace = _stepped(history, scale, name, across, up)
    trace["line"] |= {"color": colour, "width": width}
    fill = "none" if timelines.is_exact(history.series) else "toself"
    return trace | {"fill": fill, "fillcolor": translucent(colour, 0.45), "hoveron": "points"}


def _stepped(
    history: History, scale: _Scale, name: str, x: NDArray[np.float64], num_bytes: NDArray[np.float64]
) -> dict[str, Any]:
    """A step line: it keeps each value until the next one."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": num_bytes / scale.divisor,
        "line": {"shape": "hv"},
        "hovertemplate": f"{name}: %{{y:,.4~f}} {scale.unit}<br>{history.step_axis.hover}<extra></extra>",
    }


def _peak(history: History, scale: _Scale, theme: Theme) -> dict[str, Any]:
    series = history.series
    x = history.step_axis.positions(series["bytes_in_use_max_step"], series["bytes_in_use_max_time"])
    peak = np.maximum(np.maximum.accumulate(series["bytes_in_use_max"]), np.uint64(history.peak_before))
    trace = _stepped(history, scale, "peak so far", x, peak.astype(np.float64)) | {"legend": 1}
    trace["line"] |= {"color": theme.in_use.line, "width": 1.5, "dash": "dash"}
    return trace


def _limit(history: History, scale: _Scale, theme: Theme) -> dict[str, Any]:
    limit = history.bytes_limit
    text = "unknown" if limit is None else format_bytes(limit)
    level = np.nan if scale.limit is None else scale.limit / scale.divisor
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"limit {text}" + ("" if scale.limit is not None or limit is None else " (far above)"),
        "legend": 1,
        "x": np.array(history.step_axis.range(history.steps)),
        "y": np.full(2, level),
        "line": {"color": theme.limit, "width": 1.5, "dash": "dashdot"},
        "hovertemplate": f"memory limit: {text}<extra></extra>",
    }
