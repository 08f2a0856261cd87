"""Bytes over the job, a panel a policy: the pool, in use, the limit, the least possible, and where it fails.

A panel has at most `COLUMNS` points a curve, each the least or greatest value of an interval of requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.figures.comparison.policies.byte_axis import ByteAxis, ByteLevel
from bfcviz.figures.comparison.policies.compared_policy import ComparedJob, ComparedPolicy
from bfcviz.figures.panel import Panel
from bfcviz.figures.style.colour_math import translucent
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.theme import Theme
from bfcviz.units import format_bytes

COLUMNS: Final = 400
"""Intervals of a curve, at most."""

_LONGEST: Final = 46  # characters of a name: a caption has room beside it
_HEAD: Final = 15  # of these, at the start of a name that is cut
_MESSAGE_LINE, _MOST_LINES = 46, 4  # characters of a line of a message, and its lines


def envelope(values: NDArray[np.uint64], columns: int = COLUMNS) -> NDArray[np.float64]:
    """Start, least and greatest value of each of at most `columns` intervals, float64[3, intervals]."""
    starts = np.unique(np.linspace(0, len(values), min(columns, len(values)), endpoint=False).astype(np.intp))
    if not len(starts):
        return np.zeros((3, 0))
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    return np.array([starts, low, high], np.float64)


def curve_table(policies: Sequence[ComparedPolicy]) -> pa.Table:
    """The points of the curves: one row per policy and interval of requests; sizes in bytes."""
    tables = []
    for policy in policies:
        start, low, high = envelope(policy.in_use)
        _, _, pool = envelope(policy.reserved)
        columns = {"request": start, "least_in_use": low, "most_in_use": high, "pool_bytes": pool}
        numbers = {name: pa.array(column.astype(np.int64)) for name, column in columns.items()}
        tables.append(pa.table({"policy": pa.array([policy.name] * len(start), pa.string()), **numbers}))
    return pa.concat_tables(tables)


@dataclass(frozen=True)
class CurvePanels:
    """Panels on the same axes, for the policies of one job."""

    job: ComparedJob
    axis: ByteAxis
    theme: Theme
    failures: bool = True  # some policy fails: the legend says what a cross is

    def panel(self, number: int, policy: ComparedPolicy, *, legend: bool | None) -> Panel:
        """The panel of one policy.

        Args:
            number: makes its name unique.
            policy: the policy.
            legend: whether it shows the legend; None: it has no room for one.
        """
        job, axis, theme = self.job, self.axis, self.theme
        traces = [
            _reserved(policy, axis, theme),
            *_in_use(policy, axis, theme),
            _line(axis.least_possible(job, theme), job) | {"legend": 1},
            _line(axis.limit_line(theme), job) | {"legend": 1},
            _failure(policy, axis, theme) | {"showlegend": self.failures, "legend": 1},
            _message(policy, job, axis, theme),
        ]
        across = [0, max(job.requests, 1)]
        up = [0, 1.08 * axis.end]
        return Panel(
            name=f"curve_{number}",
            title=harmless(_short(policy.role or policy.name)),
            caption=_caption(policy),
            definition=harmless(policy.name) if policy.role or len(policy.name) > _LONGEST else "",
            traces=[trace if legend else {**trace, "showlegend": False} for trace in traces],
            xaxis={"range": across, "title": {"text": "request (number)"}, "tickformat": ",~s"},
            yaxis={"range": up, "title": {"text": f"bytes ({axis.unit})"}, "tickformat": ",~g"},
            y_unit=axis.divisor,
            legend=legend is not None,
        )


def _short(name: str) -> str:
    """A name that leaves room for the caption: its start says the rules, its end the value of an option."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_HEAD]}…{name[_HEAD + 1 - _LONGEST :]}"


def _caption(policy: ComparedPolicy) -> str:
    if policy.message:
        return "cannot serve this job"
    if policy.failed is not None:
        return f"out of memory at {policy.failed:,}"
    return f"peak {format_bytes(policy.peak_reserved)}"


def _reserved(policy: ComparedPolicy, axis: ByteAxis, theme: Theme) -> dict[str, Any]:
    """The area below the greatest reserved bytes of each interval."""
    start, _, high = envelope(policy.reserved)
    line = {"color": theme.pool.line, "width": 1.4}
    area = {"fill": "tozeroy", "fillcolor": translucent(theme.pool.fill, 0.85)}
    found = _stepped("not in use", _with_end(start, len(policy.reserved)), _closed(high) / axis.divisor, line)
    return found | area | _hover("pool", axis)


def _in_use(policy: ComparedPolicy, axis: ByteAxis, theme: Theme) -> list[dict[str, Any]]:
    """The area below the least bytes in use of each interval; a lighter one from there to the greatest."""
    start, low, high = envelope(policy.in_use)
    ends = _with_end(start, len(policy.in_use))
    paint = theme.in_use
    least = _stepped("", ends, _closed(low) / axis.divisor, {"color": paint.line, "width": 0})
    least |= {"showlegend": False, "fill": "tozeroy", "fillcolor": translucent(paint.fill, 0.85)}
    # Backwards, a line of shape `hv` keeps the value of the interval that it has just left.
    around = np.concatenate([_closed(high), low[::-1], low[:1]]) / axis.divisor
    name = "in use (light: least to most within a pixel)"
    band = _stepped(name, np.append(ends, ends[::-1]), around, {"color": paint.line, "width": 0.8})
    band |= {"fill": "toself", "fillcolor": translucent(paint.fill, 0.55), "hoveron": "points"}
    return [least, band | _hover("in use", axis)]


def _with_end(start: NDArray[np.float64], end: int) -> NDArray[np.float64]:
    return np.append(start, end)


def _closed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values, and the last one once more: at the end of its interval."""
    return np.append(values, values[-1:])


def _stepped(name: str, x: Any, y: Any, line: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"shape": "hv", **line},
        "hoverinfo": "skip",
    }


def _hover(name: str, axis: ByteAxis) -> dict[str, Any]:
    text = f"{name}: %{{y:,.4~f}} {axis.unit}<br>request %{{x:,.0f}}<extra></extra>"
    return {"hoverinfo": "all", "hovertemplate": text}


def _line(level: ByteLevel, job: ComparedJob) -> dict[str, Any]:
    """A horizontal line."""
    line = {"color": level.colour, "width": 1.4, "dash": level.dash}
    found = _stepped(level.name, [0, job.requests], [level.value, level.value], line)
    return found | {"showlegend": not np.isnan(level.value)}


def _failure(policy: ComparedPolicy, axis: ByteAxis, theme: Theme) -> dict[str, Any]:
    """The first failed request: a cross at the bytes in use that it would have needed."""
    x = y = float("nan")
    if policy.failed is not None:
        x = policy.failed
        y = min((int(policy.in_use[policy.failed]) + policy.failed_size) / axis.divisor, 1.02 * axis.end)
    asked = f"out of memory: {format_bytes(policy.failed_size)} asked"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "out of memory: in use + asked",
        "x": [x],
        "y": [y],
        "marker": {"symbol": "x", "size": 12, "color": theme.oom, "line": {"color": theme.paper, "width": 1}},
        "cliponaxis": False,
        "hovertemplate": f"{asked}<br>request %{{x:,.0f}}<extra></extra>",
    }


def _message(policy: ComparedPolicy, job: ComparedJob, axis: ByteAxis, theme: Theme) -> dict[str, Any]:
    """Why there is no curve."""
    lines = wrap(harmless(policy.message, _MOST_LINES * _MESSAGE_LINE), _MESSAGE_LINE)
    return {
        "type": "scatter",
        "mode": "text",
        "x": [job.requests / 2],
        "y": [axis.end / 2],
        "text": ["<br>".join(lines)],
        "textfont": {"size": 11, "color": theme.oom},
        "showlegend": False,
        "hoverinfo": "skip",
    }
