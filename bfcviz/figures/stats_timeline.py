"""The stats timeline: what the pool holds, what is handed out, and the largest piece left, over the trace."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.figures import timelines
from bfcviz.figures.look import PLAIN, Axis, Look
from bfcviz.figures.panel import Panel, Picture, single
from bfcviz.figures.text import axis_unit, exact_bytes
from bfcviz.figures.theme import Theme, translucent
from bfcviz.model import timeline
from bfcviz.model.find import events_of
from bfcviz.units import format_bytes

_UNNAMED: Final[dict[str, Any]] = {"showlegend": False, "hoverinfo": "skip", "hovertemplate": None}


@dataclass(frozen=True)
class History:
    """One heap over the whole trace: all that the timelines draw, but for where the view stands.

    Attributes:
        trace: the trace.
        pool: which of its heaps.
        series: `timeline`'s intervals.
        failed: the OOM events of this heap.
        axis: `step` or `time`.
    """

    trace: Trace
    pool: int
    series: NDArray[np.void]
    failed: Events
    axis: Axis = "step"

    @property
    def bytes_limit(self) -> int | None:
        """The heap's memory limit, None where it is not known."""
        return self.trace.origin.pools[self.pool].bytes_limit


def history(trace: Trace, pool: int = 0, look: Look = PLAIN) -> History:
    """Reads the trace once, for both timelines."""
    series = timeline(trace, pool=pool, points=timelines.POINTS)
    return History(trace, pool, series, events_of(trace, [Kind.OOM], pool), look.axis)


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
        step: where to draw the upright line; None: nowhere.
        pool: which heap of the trace.
        look: colours, over step or time, and the steps to draw.

    Returns:
        The figure; its table has one row an interval, with the least and greatest value of each number in it.
    """
    seen = history(trace, pool, look)
    return single(stats_panel(seen, step, look), 360, look.paints).with_table(series_table(seen.series))


def stats_panel(seen: History, step: int | None, look: Look) -> Panel:
    """The timeline as a panel; only its last trace depends on `step`."""
    series, theme = seen.series, look.paints
    unit = timelines.unit_of(series, seen.axis)
    top = float(max(series["pool_bytes_max"].max(initial=0), series["bytes_in_use_max"].max(initial=0), 1))
    limit = seen.bytes_limit
    # A limit far above the pool would press everything else flat: then it is told, not drawn to scale.
    drawn_limit = limit if limit is not None and limit <= 1.6 * top else None
    divisor, name = axis_unit(top)
    reach = 1.08 * max(top, float(drawn_limit or 0)) / divisor
    traces = [
        _line(seen, divisor, "pool", "pool_bytes", theme.pool.line, fill=theme.free.fill),
        _line(seen, divisor, "in use", "bytes_in_use", theme.in_use.line, fill=theme.in_use.fill),
        _line(seen, divisor, "requested", "requested_bytes_in_use", theme.waste.line, dash="dot"),
        # A rim in the paper's colour, so that the line is seen where it crosses the blue area.
        _line(seen, divisor, "", "largest_free_chunk", theme.paper, width=4.5) | _UNNAMED,
        _line(seen, divisor, "largest free chunk", "largest_free_chunk", theme.free.line, width=2.0),
        _peak(seen, unit, divisor, theme),
        _limit(seen, unit, drawn_limit, divisor, theme),
        _ooms(seen, unit, divisor, theme),
        now(seen, step, unit, reach, theme) | {"legend": 1},
    ]
    return Panel(
        name="stats",
        title=f"Stats ({name})",
        caption="green: pool bytes that are free; blue: handed out",
        traces=traces,
        xaxis=timelines.xaxis(series, seen.axis, len(seen.trace)),
        yaxis={"title": {"text": name}, "range": [0, reach], "tickformat": ",~g"},
        x_unit=unit,
    )


def now(seen: History, step: int | None, unit: float, top: float, theme: Theme) -> dict[str, Any]:
    """The upright line at `step`."""
    position = np.nan if step is None else timelines.position_of(seen.trace, step, seen.axis, unit)
    return timelines.now(position, theme, top)


def series_table(series: NDArray[np.void]) -> pa.Table:
    """The intervals as a table, columns as `timeline` names them."""
    return pa.table({name: np.ascontiguousarray(series[name]) for name in series.dtype.names or ()})


def _line(  # noqa: PLR0913  what tells one line from the next
    seen: History,
    divisor: int,
    name: str,
    field: str,
    colour: str,
    *,
    fill: str | None = None,
    width: float = 1.2,
    dash: str = "solid",
) -> dict[str, Any]:
    across, up = timelines.both_ends(seen.series, field, seen.axis)
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": across,
        "y": up / divisor,
        "line": {"color": colour, "width": width, "dash": dash, "shape": "hv"},
        "hovertext": [f"{name} ({field}): {exact_bytes(int(value))}" for value in up],
        "hovertemplate": "%{hovertext}<br>step %{x:,.0f}<extra></extra>",
    }
    if fill is not None:
        trace |= {"fill": "tozeroy", "fillcolor": translucent(fill, 0.85)}
    return trace


def _peak(seen: History, unit: float, divisor: int, theme: Theme) -> dict[str, Any]:
    series = seen.series
    x = (
        series["bytes_in_use_max_step" if seen.axis == "step" else "bytes_in_use_max_time"].astype(np.float64)
        / unit
    )
    peak = np.maximum.accumulate(series["bytes_in_use_max"])
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "peak so far",
        "legend": 1,
        "x": x,
        "y": peak.astype(np.float64) / divisor,
        "line": {"color": theme.in_use.line, "width": 1.5, "dash": "dash", "shape": "hv"},
        "hovertext": [f"highest bytes_in_use so far: {exact_bytes(int(value))}" for value in peak],
        "hovertemplate": "%{hovertext}<br>step %{x:,.0f}<extra></extra>",
    }


def _limit(seen: History, unit: float, drawn: int | None, divisor: int, theme: Theme) -> dict[str, Any]:
    limit = seen.bytes_limit
    told = "not known" if limit is None else format_bytes(limit)
    last = float(seen.series[seen.axis][-1]) / unit if len(seen.series) else 1.0
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"limit {told}" + ("" if drawn is not None or limit is None else " (far above)"),
        "legend": 1,
        "x": np.array([0.0, last]),
        "y": np.full(2, np.nan if drawn is None else drawn / divisor),
        "line": {"color": theme.limit, "width": 1.5, "dash": "dashdot"},
        "hovertemplate": f"memory limit: {told}<extra></extra>",
    }


def _ooms(seen: History, unit: float, divisor: int, theme: Theme) -> dict[str, Any]:
    events = seen.failed
    at = (events["seq"] + 1 if seen.axis == "step" else events["time"]).astype(np.float64)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "OOM",
        "legend": 1,
        "x": at / unit,
        "y": events["address"].astype(np.float64) / divisor,
        "marker": {"symbol": "x", "size": 9, "color": theme.oom, "line": {"color": theme.paper, "width": 1}},
        "hovertext": [
            f"<b>OOM</b>: {exact_bytes(int(event['requested']))} requested"
            f"<br>free {exact_bytes(int(event['address']))}"
            f"<br>largest free chunk {exact_bytes(int(event['size']))}"
            for event in events
        ],
        "hoverinfo": "text",
    }
