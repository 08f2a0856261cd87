"""The stats timeline: bytes in use, requested, pool, peak and largest free chunk over the trace."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bfcviz.analysis.account import device_number
from bfcviz.events.memory_samples import MemorySamples, device_memory, process_memory
from bfcviz.events.origin import process_peak
from bfcviz.figures import timeline_parts
from bfcviz.figures.fragmentation_timeline import TAB
from bfcviz.figures.panel import Floats, Panel
from bfcviz.figures.text import axis_unit
from bfcviz.figures.theme import Paint, Theme, mixed, translucent
from bfcviz.figures.timeline_parts import History, failures, marks, phases, step_line, without_phases
from bfcviz.figures.view import DashboardPlace, HeapData, View
from bfcviz.figures.view_options import Look
from bfcviz.units import format_bytes

_UNNAMED: Final[dict[str, Any]] = {"showlegend": False, "hoverinfo": "skip", "hovertemplate": None}


@dataclass(frozen=True)
class _Scale:
    """The y axis of the stats timeline: bytes per unit, its name, the end in units, the limit to draw in bytes."""

    divisor: int
    unit: str
    reach: float
    limit: int | None


def stats_panel(history: History, step: int | None, look: Look) -> Panel:
    """The stats timeline as a panel; only its last trace depends on `step`."""
    theme, scale = look.paints, _stats_axis_scale(history)
    process, device = _stats_process_line(history, scale, theme), _stats_device_line(history, scale, theme)
    pale = mixed(theme.in_use.fill, theme.paper, 0.6)
    traces = [
        _stats_area(history, scale, "pool", ("pool_bytes", "max"), theme.pool.line, theme.free),
        _stats_area(history, scale, "", ("bytes_in_use", "min"), theme.in_use.line, theme.in_use) | _UNNAMED,
        _stats_band(history, scale, "in use", "bytes_in_use", theme.in_use.line),
        _stats_band(history, scale, "requested", "requested_bytes_in_use", pale),
        # A rim in the paper's colour keeps the band visible where it crosses the blue area.
        _stats_band(history, scale, "", "largest_free_chunk", theme.paper, width=4.0) | _UNNAMED,
        _stats_band(history, scale, "largest free chunk", "largest_free_chunk", theme.free.line, width=1.8),
        _stats_peak_line(history, scale, theme),
        _stats_limit_line(history, scale, theme),
        process,
        device,
        marks(history, without_phases(history), scale.reach, theme) | {"legend": 1},
        phases(history, scale.reach, theme) | {"legend": 1},
        failures(history, scale.divisor, theme) | {"legend": 1},
        step_line(history.step_axis, step, scale.reach, theme) | {"legend": 1},
    ]
    return Panel(
        name="stats_timeline",
        title_names_y=True,
        title=f"Stats ({scale.unit})",
        caption="pool above in use: free bytes; a band: least to greatest value",
        definition=_DEFINITION + _PROCESS * bool(process["name"]) + _DEVICE * bool(device["name"]),
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
_PROCESS: Final = "<br>process: the resident set of the whole recorded process, sampled five times a second"
_DEVICE: Final = (
    "<br>device used by all processes: its total less its free memory (cudaMemGetInfo), sampled five times "
    "a second"
)


def stats_table(history: History) -> pa.Table:
    """The intervals of the stats timeline as a table; the columns are those of `timeline`."""
    names = [
        name
        for name in history.series.dtype.names or ()
        if history.wanted is not None or not name.startswith("too_small")
    ]
    return pa.table({name: np.ascontiguousarray(history.series[name]) for name in names})


def _stats_axis_scale(history: History) -> _Scale:
    """The y axis fits the steps shown; its unit fits the whole trace and is the same for every window."""
    series, whole = history.series, history.running.series
    top = float(max(series["pool_bytes_max"].max(initial=0), series["bytes_in_use_max"].max(initial=0), 1))
    divisor, unit = axis_unit(max(float(whole["pool_bytes_max"].max(initial=0)), top))
    # A limit far above the pool would flatten everything else: then only the legend shows it.
    limit = history.bytes_limit
    drawn = limit if limit is not None and limit <= 1.6 * top else None
    beside = (process_memory(history.trace.origin.details), _samples_of_device(history))
    most = [float(each.num_bytes.max()) for each in beside if each is not None]
    top = max(top, *(each for each in most if each <= _MOST_ABOVE * top), 0.0)
    return _Scale(divisor, unit, 1.08 * max(top, float(drawn or 0)) / divisor, drawn)


def _samples_of_device(history: History) -> MemorySamples | None:
    """The samples of the heap's device, for the stats timeline."""
    return device_memory(history.trace.origin.details, device_number(history.trace, history.pool))


def _stats_area(  # noqa: PLR0913, PLR0917  the options of an area
    history: History, scale: _Scale, name: str, values: tuple[str, str], line: str, paint: Paint
) -> dict[str, Any]:
    """The area below the least (`min`) or the greatest (`max`) values of a field."""
    points = timeline_parts.upper_edge(history.series, values[0], history.step_axis, values[1])
    trace = _stats_step_line(history, scale, name, points, {"color": line, "width": 1.2 if name else 0})
    return trace | {"fill": "tozeroy", "fillcolor": translucent(paint.fill, 0.85)}


def _stats_band(  # noqa: PLR0913  the options of a band
    history: History, scale: _Scale, name: str, field: str, colour: str, *, width: float = 1.2
) -> dict[str, Any]:
    """The area between the least and the greatest values of a field; it is a line where they are equal."""
    points = timeline_parts.envelope(history.series, field, history.step_axis)
    trace = _stats_step_line(history, scale, name, points, {"color": colour, "width": width})
    fill = "none" if timeline_parts.is_exact(history.series) else "toself"
    return trace | {"fill": fill, "fillcolor": translucent(colour, 0.45), "hoveron": "points"}


def _stats_step_line(
    history: History, scale: _Scale, name: str, points: tuple[Floats, Floats], line: dict[str, Any]
) -> dict[str, Any]:
    """A step line through positions and bytes: it keeps each value until the next one."""
    x, num_bytes = points
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": num_bytes / scale.divisor,
        "line": {"shape": "hv", **line},
        "hovertemplate": f"{name}: %{{y:,.4~f}} {scale.unit}<br>{history.step_axis.hover}<extra></extra>",
    }


def _stats_peak_line(history: History, scale: _Scale, theme: Theme) -> dict[str, Any]:
    series = history.series
    x = history.step_axis.positions(series["bytes_in_use_max_step"], series["bytes_in_use_max_time"])
    peak = np.maximum(np.maximum.accumulate(series["bytes_in_use_max"]), np.uint64(history.peak_before))
    line = {"color": theme.in_use.line, "width": 1.5, "dash": "dash"}
    return _stats_step_line(history, scale, "peak so far", (x, peak.astype(np.float64)), line) | {"legend": 1}


def _stats_limit_line(history: History, scale: _Scale, theme: Theme) -> dict[str, Any]:
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


_MOST_ABOVE: Final = 8
"""Times the pool: what is larger would flatten the heap, so only the legend tells of it."""


def _stats_process_line(history: History, scale: _Scale, theme: Theme) -> dict[str, Any]:
    """The memory of the whole process."""
    details = history.trace.origin.details
    found, peak = process_memory(details), process_peak(details) or 0
    trace = _stats_sampled_line(history, scale, "process", found, peak)
    trace["line"] |= {"color": theme.text, "width": 1.2, "dash": "dot"}
    return trace


def _stats_device_line(history: History, scale: _Scale, theme: Theme) -> dict[str, Any]:
    """What all processes use of the heap's device."""
    found = _samples_of_device(history)
    trace = _stats_sampled_line(history, scale, "device used by all processes", found)
    trace["line"] |= {"color": theme.muted, "width": 1.5, "dash": "longdash"}
    return trace


def _stats_sampled_line(
    history: History, scale: _Scale, name: str, found: MemorySamples | None, peak: int = 0
) -> dict[str, Any]:
    """A line through samples of known times; where there are none, a trace without points and name."""
    series, x, y = history.series, np.zeros(0), np.zeros(0)
    if found is None or not len(series):
        return _stats_step_line(history, scale, "", (x, y), {}) | {"legend": 1} | _UNNAMED
    most = int(found.num_bytes.max())
    name = f"{name}, peak {format_bytes(max(peak, most))}"
    if most > scale.reach * scale.divisor:
        name += " (far above)"
    else:
        inside = (found.times >= series["time"][0]) & (found.times <= series["time"][-1])
        steps = np.interp(found.times[inside], series["time"], series["step"])
        x = history.step_axis.positions(steps, found.times[inside])
        y = found.num_bytes[inside].astype(np.float64)
    return _stats_step_line(history, scale, name, (x, y), {}) | {"legend": 1}


VIEW: Final = View(
    name="stats_timeline",
    title="stats timeline",
    data=HeapData.history,
    panels=lambda history, heap, look: [stats_panel(history, heap.step, look)],
    table=stats_table,
    height=360,
    windows=("steps",),
    dashboard=DashboardPlace(TAB),
)
