"""The fragmentation timeline: three measures, each named and defined, from 0 to 100 %."""

import textwrap
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures import timelines
from bfcviz.figures.look import PLAIN, Look
from bfcviz.figures.panel import Panel, Picture, single
from bfcviz.figures.stats_timeline import History, history, now
from bfcviz.model.fragmentation import DEFINITIONS

MEASURES = {
    "external": "external: 1 - largest free chunk / free",
    "internal": "internal: 1 - requested / in use",
    "reserved_not_in_use": "reserved-not-in-use: 1 - in use / pool",
}
"""Measure -> its name with its definition, as the legend shows it."""

_DASHES = {"external": "solid", "internal": "dot", "reserved_not_in_use": "dash"}


def fragmentation_timeline(
    trace: Trace,
    step: int | None = None,
    *,
    pool: int = 0,
    look: Look = PLAIN,
) -> Picture:
    """The three measures over the trace.

    Args:
        trace: the events.
        step: where to draw the upright line; None: nowhere.
        pool: which heap of the trace.
        look: colours, over step or time, and the steps to draw.

    Returns:
        The figure; its table has one row an interval.
    """
    seen = history(trace, pool, look)
    return single(fragmentation_panel(seen, step, look), 320, look.paints).with_table(
        measures_table(seen.series)
    )


def fragmentation_panel(seen: History, step: int | None, look: Look, *, brief: bool = False) -> Panel:
    """The timeline as a panel; only its last trace depends on `step`. `brief`: definitions only on hover."""
    series, theme = seen.series, look.paints
    unit = timelines.unit_of(series, seen.axis)
    x = series[seen.axis].astype(np.float64) / unit
    colours = {
        "external": theme.free.line,
        "internal": theme.waste.line,
        "reserved_not_in_use": theme.pool.line,
    }
    found = measures(series)
    shown = {name: text.split(":")[0] if brief else text for name, text in MEASURES.items()}
    lines = [_line(x, found[name], name, shown[name], colours[name]) for name in MEASURES]
    # Of this one the least and greatest value inside each interval is known, so that no peak is lost.
    lines[0]["x"], up = timelines.both_ends(series, "external_fragmentation", seen.axis)
    lines[0]["y"] = up * 100.0
    return Panel(
        name="fragmentation",
        title="Fragmentation (%)",
        caption="0 where nothing is free, or nothing in use",
        traces=[*lines, now(seen, step, unit, 100.0, theme)],
        xaxis=timelines.xaxis(series, seen.axis, len(seen.trace)),
        yaxis={"title": {"text": "%"}, "range": [0, 102], "dtick": 25},
        x_unit=unit,
    )


def _line(
    x: NDArray[np.float64], share: NDArray[np.float64], name: str, shown: str, colour: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": shown,
        "x": x,
        "y": share * 100.0,
        "line": {"color": colour, "width": 1.6, "shape": "hv", "dash": _DASHES[name]},
        "hovertemplate": f"<b>%{{y:.1f}} %</b><br>{_wrapped(DEFINITIONS[name])}<extra></extra>",
    }


def _wrapped(text: str) -> str:
    return "<br>".join(textwrap.wrap(text, 70))


def measures_table(series: NDArray[np.void]) -> pa.Table:
    """The measures at the end of each interval; of the external one also the least and greatest inside it."""
    found = measures(series)
    columns = {"step": series["step"], "time": series["time"]} | found
    columns["external_min"] = series["external_fragmentation_min"]
    columns["external_max"] = series["external_fragmentation_max"]
    return pa.table({name: np.ascontiguousarray(values) for name, values in columns.items()})


def measures(series: NDArray[np.void]) -> dict[str, NDArray[np.float64]]:
    """Each measure at the end of each interval, 0..1."""
    in_use = series["bytes_in_use_last"].astype(np.float64)
    pool = series["pool_bytes_last"].astype(np.float64)
    waste = in_use - series["requested_bytes_in_use_last"].astype(np.float64)
    return {
        "external": series["external_fragmentation_last"].astype(np.float64),
        "internal": _share(waste, in_use),
        "reserved_not_in_use": np.where(in_use > 0, _share(pool - in_use, pool), 0.0),
    }


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
