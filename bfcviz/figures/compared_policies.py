"""Several allocators that served the same job, in pictures: bytes over the job, peak pool, region maps at one moment.

The region maps are side by side: the same bytes a pixel, the same colours.

All regions of a heap follow each other without gaps, like text: the area of a map is the size of the pool. Frames show
where regions begin and end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan, nan
from textwrap import wrap
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures import region_map
from bfcviz.figures.colouring import Colouring, colouring
from bfcviz.figures.map_rows import Rows
from bfcviz.figures.panel import (
    BELOW,
    FLAT_BARS,
    LINES,
    TEXTS,
    Margins,
    Panel,
    Picture,
    Place,
    in_rows,
    panels_picture,
)
from bfcviz.figures.region_map import EXACT_CHUNKS, VisibleChunks, chunk_table, region_map_outline
from bfcviz.figures.text import axis_unit, harmless
from bfcviz.figures.theme import Paint, Theme, translucent
from bfcviz.figures.view_options import PLAIN, Look
from bfcviz.model import Model
from bfcviz.model.model import REGION
from bfcviz.units import exact_bytes, format_bytes, seconds_text

# ------------------------------------------------------------------------------
# DrawnPolicy: what one allocator did with the requests of a job, as plain data.

_LONGEST: Final = 36  # characters of a line of a name


@dataclass(frozen=True)
class DrawnPolicy:
    """One allocator of a comparison of policies, as its pictures show it."""

    name: str  # as it was asked for, such as `bfc:allow_growth=true`
    # bytes that the driver had granted, after each request, uint64[n]
    reserved: NDArray[np.uint64] = field(repr=False)
    in_use: NDArray[np.uint64] = field(repr=False)  # bytes of blocks in use, after each request, uint64[n]
    requested_at_peak: int = 0  # requested bytes where most is in use
    # 1 - largest free chunk / free bytes, where most is in use; None: not known
    scattered_share: float | None = None
    # index of the first request that failed, the last one of the arrays; None: none
    failed: int | None = None
    failed_size: int = 0  # bytes of that request
    message: str = ""  # why it cannot serve the requests; empty if it can
    is_allocator: bool = True  # rules that a heap can have; no plan, no lower bound
    driver_calls: int | None = None  # grants, refused grants and releases; None: not known
    stall_s: float = 0.0  # seconds that these calls may take
    role: str = ""  # what the row is, such as `as recorded` or `plan`; empty: a policy like others
    is_compared: bool = True  # a real allocator was compared with these rules, or there is none

    @property
    def has_failed(self) -> bool:
        """Whether its numbers end before the job does."""
        return self.failed is not None

    @property
    def peak_reserved(self) -> int:
        """The most bytes that the driver had granted."""
        return int(self.reserved.max(initial=0))

    @property
    def peak_in_use(self) -> int:
        """The most bytes of blocks in use."""
        return int(self.in_use.max(initial=0))

    @property
    def reserved_not_in_use(self) -> float:
        """1 - peak in use / peak reserved; 0 for an empty heap."""
        return 1 - self.peak_in_use / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def internal_fragmentation(self) -> float:
        """(in use - requested) / in use, where most is in use; 0 for an empty heap."""
        return 1 - self.requested_at_peak / self.peak_in_use if self.peak_in_use else 0.0

    @property
    def lines(self) -> list[str]:
        """The role and the name in short lines, escaped."""
        parts = self.name.replace(":", ":\n").replace(",", ",\n").split("\n")
        role = [f"<b>{harmless(self.role)}</b>"] if self.role else []
        return [*role, *(harmless(line, _LONGEST) for line in parts if line)]


@dataclass(frozen=True)
class DrawnJob:
    """The job of a comparison of policies, as its pictures show it."""

    source: str  # name of its trace
    requests: int  # number of requests
    live_bytes: int  # the most requested bytes in use: no allocator can need less
    limit: int | None = None  # memory limit in bytes; None: none
    verdict: str = ""  # what the comparison shows, in one sentence


def best_first(policies: Sequence[DrawnPolicy]) -> list[DrawnPolicy]:
    """The rows of the compared policies: those that serve the job by peak pool, those that fail, plans and bounds."""

    def rank(policy: DrawnPolicy) -> tuple[int, int]:
        if not policy.is_allocator:
            return 3, -policy.peak_reserved
        if policy.message:
            return 2, 0
        return (1, -(policy.failed or 0)) if policy.has_failed else (0, policy.peak_reserved)

    return sorted(policies, key=rank)


# ------------------------------------------------------------------------------
# ByteAxis: the axis of bytes of a comparison; and the two levels that are lines on it.

_FAR: Final = 1.6  # a limit so many times above all peaks would flatten them: it is not drawn


@dataclass(frozen=True)
class PolicyByteLevel:
    """A level of bytes as a line in the panels of a comparison: name in the legend, value (nan: none), colour, dash."""

    name: str
    value: float
    colour: str
    dash: str


@dataclass(frozen=True)
class ByteAxis:
    """An axis of bytes that fits all compared policies: unit, name, end, and the limit if it is drawn."""

    divisor: int
    unit: str
    end: float
    limit: int | None

    @classmethod
    def of(cls, job: DrawnJob, policies: Sequence[DrawnPolicy]) -> "ByteAxis":
        """The axis of bytes for these compared policies; a limit far above all of them is not drawn."""
        top = max(1, job.live_bytes, *(policy.peak_reserved for policy in policies))
        limit = job.limit if job.limit is not None and job.limit <= _FAR * top else None
        top = max(top, limit or 0)
        divisor, unit = axis_unit(top)
        return cls(divisor, unit, top / divisor, limit)

    def levels(self, job: DrawnJob, theme: Theme) -> list[PolicyByteLevel]:
        """The most requested bytes in use, which no allocator can do without; and the memory limit."""
        return [
            self._level("least possible", job.live_bytes, theme.text, "dot"),
            self._level("limit", self.limit, theme.limit, "dashdot"),
        ]

    def _level(self, name: str, num_bytes: int | None, colour: str, dash: str) -> PolicyByteLevel:
        if num_bytes is None:
            return PolicyByteLevel(name, nan, colour, dash)
        return PolicyByteLevel(f"{name} {format_bytes(num_bytes)}", num_bytes / self.divisor, colour, dash)


# ------------------------------------------------------------------------------
# Bytes over the job, a panel a policy: the pool, in use, the limit, the least possible, and where it fails.
#
# A panel has at most `COLUMNS` points a curve, each the least or greatest value of an interval of requests.

COLUMNS: Final = 400
"""Intervals of a curve, at most."""

UNCOMPARED: Final = "; not compared with a real one"

_LONGEST_TITLE: Final = 34  # characters of a name: a caption has room beside it
_HEAD: Final = 12  # of these, at the start of a name that is cut
_MESSAGE_LINE, _MOST_LINES = 46, 4  # characters of a line of a message, and its lines
_CURVE_PIXELS: Final = 360  # width of a panel in a narrow notebook
_TITLE_LETTER, _CAPTION_LETTER = 8.0, 6.0  # pixels of a letter


def policy_curve_envelope(values: NDArray[np.uint64], columns: int = COLUMNS) -> NDArray[np.float64]:
    """Start, least and greatest value of each of at most `columns` intervals, float64[3, intervals]."""
    starts = np.unique(np.linspace(0, len(values), min(columns, len(values)), endpoint=False).astype(np.intp))
    if not len(starts):
        return np.zeros((3, 0))
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    return np.array([starts, low, high], np.float64)


def curve_table(policies: Sequence[DrawnPolicy]) -> pa.Table:
    """The points of compared policies' curves: one row per policy and interval of requests; sizes in bytes."""
    tables = []
    for policy in policies:
        start, low, high = policy_curve_envelope(policy.in_use)
        _, _, pool = policy_curve_envelope(policy.reserved)
        columns = {"request": start, "least_in_use": low, "most_in_use": high, "pool_bytes": pool}
        numbers = {name: pa.array(column.astype(np.int64)) for name, column in columns.items()}
        tables.append(pa.table({"policy": pa.array([policy.name] * len(start), pa.string()), **numbers}))
    return pa.concat_tables(tables)


@dataclass(frozen=True)
class CurvePanels:
    """Panels on the same axes for the curves of compared policies, for one job."""

    job: DrawnJob
    axis: ByteAxis
    theme: Theme
    failures: bool = True  # some policy fails: the legend says what a cross is

    def panel(self, number: int, policy: DrawnPolicy, *, legend: bool | None) -> Panel:
        """The panel of one policy's curve; `number` makes its name unique, `legend` None: no room for it."""
        job, axis, theme = self.job, self.axis, self.theme
        traces = [
            _policy_reserved_area(policy, axis, theme),
            *_policy_in_use_band(policy, axis, theme),
            *(_byte_level_on_curves(level, job) | {"legend": 1} for level in axis.levels(job, theme)),
            _policy_failure_on_curve(policy, axis, theme) | {"showlegend": self.failures, "legend": 1},
            _policy_message_text(policy, job, axis, theme),
        ]
        across, up = [0, max(job.requests, 1)], [0, 1.08 * axis.end]
        title = _short_policy_name(policy.role or policy.name)
        return Panel(
            name=f"curve_{number}",
            title=harmless(title),
            caption=_policy_caption(policy, title),
            definition=harmless(policy.name) if policy.role or len(policy.name) > _LONGEST_TITLE else "",
            traces=[trace if legend else {**trace, "showlegend": False} for trace in traces],
            xaxis={"range": across, "title": {"text": "request (number)"}, "tickformat": ",~s"},
            yaxis={"range": up, "title": {"text": f"bytes ({axis.unit})"}, "tickformat": ",~g"},
            y_unit=axis.divisor,
            legend=legend is not None,
        )


def _short_policy_name(name: str) -> str:
    """A name that leaves room for the caption: its start says the rules, its end the value of an option."""
    if len(name) <= _LONGEST_TITLE:
        return name
    return f"{name[:_HEAD]}…{name[_HEAD + 1 - _LONGEST_TITLE :]}"


def _policy_caption(policy: DrawnPolicy, title: str) -> str:
    if policy.message:
        return _first_with_room(title, _CURVE_PIXELS, "cannot serve this job", "cannot serve")
    peak = f"peak {format_bytes(policy.peak_reserved)}"
    found = [peak] if policy.failed is None else [f"out of memory at {policy.failed:,}", "out of memory"]
    return _first_with_room(
        title, _CURVE_PIXELS, *([] if policy.is_compared else [found[0] + UNCOMPARED]), *found
    )


def _first_with_room(title: str, pixels: int, *captions: str) -> str:
    """The first caption of a policy's panel that has room beside a title; empty: none has."""
    room = pixels - _TITLE_LETTER * len(title)
    return next((caption for caption in captions if _CAPTION_LETTER * len(caption) < room), "")


def _left_titles_only(panels: Sequence[Panel], columns: int) -> list[Panel]:
    """Panels of policies in rows on the same vertical axis, whose title stands at the first of each row."""
    return [
        panel if number % columns == 0 else replace(panel, yaxis={**panel.yaxis, "title": {"text": ""}})
        for number, panel in enumerate(panels)
    ]


def _policy_reserved_area(policy: DrawnPolicy, axis: ByteAxis, theme: Theme) -> dict[str, Any]:
    """The area below the greatest reserved bytes of each interval."""
    start, _, high = policy_curve_envelope(policy.reserved)
    x, y = np.append(start, len(policy.reserved)), _up_to_the_end(high) / axis.divisor
    line = {"color": theme.pool.line, "width": 1.4}
    area = {"fill": "tozeroy", "fillcolor": translucent(theme.pool.fill, 0.85)}
    return _policy_step_curve("not in use", x, y, line) | area | _policy_curve_hover("pool", axis)


def _policy_in_use_band(policy: DrawnPolicy, axis: ByteAxis, theme: Theme) -> list[dict[str, Any]]:
    """The area below the least bytes in use of each interval; a lighter one from there to the greatest."""
    start, low, high = policy_curve_envelope(policy.in_use)
    ends, paint = np.append(start, len(policy.in_use)), theme.in_use
    least = _policy_step_curve(
        "", ends, _up_to_the_end(low) / axis.divisor, {"color": paint.line, "width": 0}
    )
    least |= {"showlegend": False, "fill": "tozeroy", "fillcolor": translucent(paint.fill, 0.85)}
    # Backwards, a line of shape `hv` keeps the value of the interval that it has just left.
    around = np.concatenate([_up_to_the_end(high), low[::-1], low[:1]]) / axis.divisor
    name = "in use (light: least to most within a pixel)"
    band = _policy_step_curve(name, np.append(ends, ends[::-1]), around, {"color": paint.line, "width": 0.8})
    band |= {"fill": "toself", "fillcolor": translucent(paint.fill, 0.55), "hoveron": "points"}
    return [least, band | _policy_curve_hover("in use", axis)]


def _up_to_the_end(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values of a policy's curve, and the last one once more: at the end of its interval."""
    return np.append(values, values[-1:])


def _policy_step_curve(name: str, x: Any, y: Any, line: dict[str, Any]) -> dict[str, Any]:
    return {**LINES, "name": name, "x": x, "y": y, "line": {"shape": "hv", **line}}


def _policy_curve_hover(name: str, axis: ByteAxis) -> dict[str, Any]:
    text = f"{name}: %{{y:,.4~f}} {axis.unit}<br>request %{{x:,.0f}}<extra></extra>"
    return {"hoverinfo": "all", "hovertemplate": text}


def _byte_level_on_curves(level: PolicyByteLevel, job: DrawnJob) -> dict[str, Any]:
    """A level of bytes as a horizontal line on the curves of policies."""
    line = {"color": level.colour, "width": 1.4, "dash": level.dash}
    found = _policy_step_curve(level.name, [0, job.requests], [level.value, level.value], line)
    return found | {"showlegend": not isnan(level.value)}


def _policy_failure_on_curve(policy: DrawnPolicy, axis: ByteAxis, theme: Theme) -> dict[str, Any]:
    """The first failed request: a cross at the bytes in use that it would have needed."""
    x = y = nan
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


def _policy_message_text(policy: DrawnPolicy, job: DrawnJob, axis: ByteAxis, theme: Theme) -> dict[str, Any]:
    """Why there is no curve."""
    lines = wrap(harmless(policy.message, _MOST_LINES * _MESSAGE_LINE), _MESSAGE_LINE)
    return {
        **TEXTS,
        "x": [job.requests / 2],
        "y": [axis.end / 2],
        "text": ["<br>".join(lines)],
        "textfont": {"size": 11, "color": theme.oom},
    }


# ------------------------------------------------------------------------------
# Two panels of bars, a row a policy: the peak of the pool and what it consists of; three measures of fragmentation.
#
# The bars of a policy that fails are hatched: its numbers end there.
#
# ::
#
#     torch   ======================%%...... |        126 MiB            not in use  =======  30 %
#                                                     9 driver calls     external    ==
#                                                                        internal    =
#     bfc     ///////////////////%//// x     |        out of memory
#             requested  rounding  not in use| limit

_ROW, _LINE = 46, 16  # pixels of a row at least, and of a line of a name in it
_BAR: Final = 0.62  # of a row
_THIN: Final = 0.27
_FAILS: Final = "/"  # pattern of the bars of a policy that fails
_LONGEST_MESSAGE: Final = 100  # characters of a message
_RIGHT: Final = 1.5  # of the highest number: the panel has room for texts

_PEAK_DEFINITION: Final = (
    "peak pool: the most bytes that the driver had granted (peak reserved).<br>"
    "requested: requested bytes where most is in use.<br>"
    "rounding: what the sizes of those blocks add.<br>"
    "not in use: peak reserved - peak in use.<br>"
    "least possible: the most requested bytes in use at a time; no allocator can need less.<br>"
    "hatched: the policy runs out of memory; its numbers end there.<br>"
    "driver calls: grants, refused grants and releases, with the time that they may take."
)
_SHARES: Final = (
    "not in use = 1 - peak in use / peak pool",
    "external = 1 - largest free chunk / free bytes",
    "internal = 1 - requested / in use",
)
"""Name and definition of each measure, as the legend shows them."""

_SHARE_DEFINITION: Final = (
    "not in use (F2): reserved-not-in-use, the measure of GMLake and STAlloc.<br>"
    "external (F1): external fragmentation, that of TensorFlow. internal (F3): internal fragmentation.<br>"
    "external and internal are those of the moment when most is in use.<br>"
    "hatched: the policy runs out of memory; its numbers end there."
)


def row_height(policies: Sequence[DrawnPolicy]) -> int:
    """Pixels of each row of compared policies: that of the name with the most lines."""
    return max([_ROW, *(_LINE * len(policy.lines) + 4 for policy in policies)])


def peaks_panel(job: DrawnJob, policies: Sequence[DrawnPolicy], theme: Theme) -> Panel:
    """The peak pool of each policy, made of requested bytes, rounding and unused memory."""
    axis = ByteAxis.of(job, policies)
    requested = [policy.requested_at_peak for policy in policies]
    in_use = [policy.peak_in_use for policy in policies]
    reserved = [policy.peak_reserved for policy in policies]
    nothing = [0] * len(policies)
    failed = [policy.has_failed for policy in policies]
    bars = [
        _policy_bar_part("in use: requested", nothing, requested, theme.in_use, axis),
        _policy_bar_part("in use: rounding", requested, in_use, theme.waste, axis),
        _policy_bar_part("not in use", in_use, reserved, theme.pool, axis),
    ]
    levels = axis.levels(job, theme)
    return Panel(
        name="peaks",
        title=f"Peak pool ({axis.unit})",
        caption="memory granted by the driver; hatched: out of memory",
        definition=_PEAK_DEFINITION,
        traces=[
            *(each | _hatched_policy_bars(each, failed) for each in bars),
            *(_policy_level_on_bars(level, len(policies), line) for line, level in enumerate(levels, 1)),
            _policy_failures_on_bars(policies, axis, theme),
            _policy_bar_end_column(policies, axis, theme),
        ],
        xaxis={
            "range": [0, _RIGHT * axis.end],
            "title": {"text": f"bytes ({axis.unit})"},
            "tickformat": ",~g",
        },
        yaxis=_policy_rows_axis(policies, names=True),
        x_unit=axis.divisor,
    )


def shares_panel(policies: Sequence[DrawnPolicy], theme: Theme) -> Panel:
    """Three measures of fragmentation of each policy, in percent."""
    served = [(row, policy) for row, policy in enumerate(policies) if not policy.message]
    shares: list[tuple[dict[int, float | None], Paint]] = [
        ({row: policy.reserved_not_in_use for row, policy in served}, theme.pool),
        ({row: policy.scattered_share for row, policy in served if policy.is_allocator}, theme.free),
        ({row: policy.internal_fragmentation for row, policy in served}, theme.waste),
    ]
    failed = [policy.has_failed for policy in policies]
    bars = [_policy_share_bars(line, *share, theme, failed) for line, share in enumerate(shares)]
    return Panel(
        name="shares",
        title="Fragmentation (%)",
        caption="when most is in use",
        definition=_SHARE_DEFINITION,
        traces=[*bars, _failed_policy_texts(failed, theme)],
        xaxis={"range": [0, 136], "title": {"text": "share (%)"}, "tickvals": [0, 25, 50, 75, 100]},
        yaxis=_policy_rows_axis(policies, names=False),
    )


def _policy_rows_axis(policies: Sequence[DrawnPolicy], *, names: bool) -> dict[str, Any]:
    return {
        "range": [len(policies), 0],
        "tickvals": [row + 0.5 for row in range(len(policies))],
        "ticktext": ["<br>".join(policy.lines) if names else "" for policy in policies],
        "ticks": "",
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }


def _policy_bar_part(
    name: str, start: Sequence[int], stop: Sequence[int], paint: Paint, axis: ByteAxis
) -> dict[str, Any]:
    """A part of each bar, between bytes `start` and `stop`."""
    sizes = [high - low for low, high in zip(start, stop, strict=True)]
    return {
        **FLAT_BARS,
        "name": name,
        "x": [size / axis.divisor for size in sizes],
        "base": [low / axis.divisor for low in start],
        "y": [row + 0.5 for row in range(len(sizes))],
        "width": _BAR,
        "offset": -_BAR / 2,
        "marker": {"color": paint.fill, "line": {"color": paint.line, "width": 0.8}},
        "hovertext": [f"{name}: {exact_bytes(size)}" for size in sizes],
    }


def _policy_level_on_bars(level: PolicyByteLevel, rows: int, line: int) -> dict[str, Any]:
    """A level of bytes as a vertical line through the bars of all policies, on this line of the legend."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": level.name,
        "showlegend": not isnan(level.value),
        "legend": line,
        "x": [level.value, level.value],
        "y": [0, rows],
        "line": {"color": level.colour, "width": 1.8, "dash": level.dash},
        "hovertemplate": f"{level.name}<extra></extra>",
    }


def _policy_failures_on_bars(policies: Sequence[DrawnPolicy], axis: ByteAxis, theme: Theme) -> dict[str, Any]:
    """A cross at the end of each bar whose policy failed."""
    failed = [(row, policy) for row, policy in enumerate(policies) if policy.failed is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "out of memory",
        "showlegend": bool(failed),
        "legend": 2,
        "x": [policy.peak_reserved / axis.divisor for _, policy in failed] or [None],
        "y": [row + 0.5 for row, _ in failed] or [None],
        "marker": {"symbol": "x", "size": 11, "color": theme.oom, "line": {"color": theme.paper, "width": 1}},
        "hoverinfo": "skip",
    }


def _policy_bar_end_column(policies: Sequence[DrawnPolicy], axis: ByteAxis, theme: Theme) -> dict[str, Any]:
    """The texts in a column beside the bars, where no line crosses them."""
    served = [not policy.message and not policy.has_failed for policy in policies]
    return {
        **TEXTS,
        "x": [1.03 * axis.end for _ in policies],
        "y": [row + 0.5 for row in range(len(policies))],
        "text": [_policy_bar_end_text(policy) for policy in policies],
        "textposition": "middle right",
        "textfont": {"size": 11, "color": [theme.text if each else theme.oom for each in served]},
        "cliponaxis": False,
    }


def _policy_bar_end_text(policy: DrawnPolicy) -> str:
    """The peak and the calls to the driver; or where it failed; or why there is no bar."""
    if policy.message:
        return f"cannot serve: {harmless(policy.message, _LONGEST_MESSAGE)}"
    if policy.failed is not None:
        asked = format_bytes(policy.failed_size)
        return f"<b>out of memory</b><br>{asked} at request {policy.failed:,}"
    peak = f"<b>{format_bytes(policy.peak_reserved)}</b>"
    if policy.driver_calls is None:
        return peak
    calls = "1 driver call" if policy.driver_calls == 1 else f"{policy.driver_calls:,} driver calls"
    return f"{peak}<br>{calls}: {seconds_text(policy.stall_s)}"


def _hatched_policy_bars(trace: dict[str, Any], failed: Sequence[bool]) -> dict[str, Any]:
    """The marker of bars, hatched in the rows whose policy failed."""
    pattern = {"shape": [_FAILS if each else "" for each in failed], "fillmode": "replace", "solidity": 0.3}
    return {"marker": {**trace["marker"], "pattern": {**pattern, "size": 5}}}


def _failed_policy_texts(failed: Sequence[bool], theme: Theme) -> dict[str, Any]:
    """Which rows end before the job does."""
    rows = [row for row, each in enumerate(failed) if each]
    return {
        **TEXTS,
        "name": "",
        "x": [134 for _ in rows] or [None],
        "y": [row + 0.5 for row in rows] or [None],
        "text": ["out of<br>memory" for _ in rows] or [""],
        "textposition": "middle left",
        "textfont": {"size": 11, "color": theme.oom},
    }


def _policy_share_bars(
    line: int, shares: Mapping[int, float | None], paint: Paint, theme: Theme, failed: Sequence[bool]
) -> dict[str, Any]:
    """The bars of a measure, on this line of the legend and at this place in each row; shares are by row."""
    name = _SHARES[line].partition(" = ")[0]
    known = [(row, value) for row, value in shares.items() if value is not None]
    found: dict[str, Any] = {
        **FLAT_BARS,
        "name": _SHARES[line],
        "legend": line,
        "x": [100 * value for _, value in known],
        "y": [row + 0.5 for row, _ in known],
        "width": _THIN,
        "offset": (line - 1.5) * _THIN,
        "marker": {"color": paint.fill, "line": {"color": paint.line, "width": 0.8}},
        "text": [f"{100 * value:.1f}" for _, value in known],
        "textposition": "outside",
        "textfont": {"size": 11, "color": theme.text},
        "cliponaxis": False,
        "hovertext": [f"{name}: {100 * value:.2f} %" for _, value in known],
    }
    return found | _hatched_policy_bars(found, [failed[row] for row, _ in known])


# ------------------------------------------------------------------------------
# The figure of a comparison: peak pool and fragmentation of each policy, and its bytes over the job.

COLUMNS_OF_CURVES: Final = 2  # panels beside each other

_CURVE: Final = 130  # pixels of the height of a curve's plot
_GAP: Final = 0.06  # of the width, between panels
_LETTER: Final = 6.6  # pixels of a letter of a name
_VERDICT: Final = 34  # pixels of the title
_PEAKS: Final = 0.62  # of the width


def comparison_figure(
    job: DrawnJob, policies: Sequence[DrawnPolicy], table: pa.Table | None = None, look: Look = PLAIN
) -> Picture:
    """Peak pool, fragmentation and bytes over the job under each policy, the best first; `table` is for export."""
    theme, policies = look.paints, best_first(policies)
    top = [peaks_panel(job, policies, theme), shares_panel(policies, theme)]
    height = row_height(policies) * max(len(policies), 1)
    first = max(panel.above for panel in top)
    places = [Place(0.0, _PEAKS, first, height), Place(_PEAKS + 0.03, 1.0, first, height)]
    curves, below = _policy_curve_panels(job, policies, look, first + height + BELOW)
    longest = max((len(line) for policy in policies for line in policy.lines), default=0)
    margins = Margins(left=max(90, int(_LETTER * longest) + 16), right=24)
    picture = panels_picture([*top, *curves], [*places, *below], theme, margins).with_facts(job_facts(job))
    _add_verdict(picture, job)
    return picture if table is None else picture.with_table(table)


def _add_verdict(picture: Picture, job: DrawnJob) -> None:
    """The verdict on compared policies in a strip of its own above all panels; no title of plotly's."""
    if job.verdict:
        top = picture.layout.margin.t + _VERDICT
        picture.update_layout(height=picture.layout.height + _VERDICT, margin={"t": top})
        picture.add_annotation(
            text=f"<b>{harmless(job.verdict)}</b>",
            font={"size": 16},
            showarrow=False,
            xref="paper",
            x=0,
            xanchor="left",
            xshift=12 - picture.layout.margin.l,
            yref="paper",
            y=1,
            yanchor="top",
            yshift=top - 8,
        )


def curves_figure(job: DrawnJob, policies: Sequence[DrawnPolicy], look: Look = PLAIN) -> Picture:
    """Bytes over the job under each policy, on the same axes; its table has the points."""
    panels, places = _policy_curve_panels(job, best_first(policies), look, 0)
    picture = panels_picture(panels, places, look.paints, Margins(right=24)).with_facts(job_facts(job))
    return picture.with_table(curve_table(policies))


def job_facts(job: DrawnJob) -> str:
    """The job of compared policies in one line, escaped."""
    limit = "no limit" if job.limit is None else f"limit {format_bytes(job.limit)}"
    return f"{harmless(job.source) or 'requests'} · {job.requests:,} requests · {limit}"


def _policy_curve_panels(
    job: DrawnJob, policies: Sequence[DrawnPolicy], look: Look, above: int
) -> tuple[list[Panel], list[Place]]:
    """The panels of the allocators, in rows; the first one has the legend."""
    shown = [policy for policy in policies if policy.is_allocator] or list(policies)
    fails = any(policy.failed is not None for policy in shown)
    curves = CurvePanels(job, ByteAxis.of(job, shown), look.paints, fails)
    columns = max(1, min(COLUMNS_OF_CURVES, len(shown)))
    panels = [
        curves.panel(number, policy, legend=number == 0 if number < columns else None)
        for number, policy in enumerate(shown)
    ]
    return _left_titles_only(panels, columns), in_rows(panels, columns, _CURVE, _GAP, above)


# ------------------------------------------------------------------------------
# Region maps of several heaps at the same moment, side by side: the same bytes a pixel, the same colours.

MOST_ROWS: Final = 20
"""Rows of the largest heap, at most."""

_COLUMNS: Final = 2  # maps beside each other
_MAP_ROW: Final = 12  # pixels
_MAP_GAP: Final = 0.05  # of the width, between maps
_PIXELS: Final = 460  # width of a map, about
_HOVERED: Final = 0.006  # of the width: a narrower chunk has no text
_LONGEST_NAME: Final = 46  # characters of a name
_FRAMED: Final = 0.02  # of the width: the frames of narrower regions would be a black area
_DEFINITION: Final = (
    "All maps show the heap after the same request, with the same bytes a pixel.<br>"
    "frame: a region; all regions follow each other, in the order of their addresses. Narrow ones have no frame.<br>"
    "colour: the same holder has the same colour in every map; its shades are further parts of that holder."
)


@dataclass(frozen=True)
class PolicyHeap:
    """The heap of one policy at the moment that the maps compare; all have the same labels, by number."""

    name: str  # of the policy
    trace: Trace  # its events; it has one heap
    step: int  # events applied
    failed: bool = False  # whether a request failed at this step
    role: str = ""  # such as `as recorded`, the title in place of the name; empty: none


def policy_maps_figure(heaps: Sequence[PolicyHeap], moment: str, look: Look | None = None) -> Picture:
    """The region maps of the heaps of several policies, side by side; its table has one row per chunk.

    Args:
        heaps: one or more.
        moment: what they have in common, such as `after request 12`.
        look: the theme and the colouring, which is that of the first heap; None: light, by holder.
    """
    look = look or PLAIN
    models = [_policy_heap_model(heap) for heap in heaps]
    colours = colouring(models[0].trace, 0, look.colour, look.paints, models[0].chunks())
    sizes = [_policy_map_pool_bytes(model) for model in models]
    width = _policy_map_row_width(max(sizes))
    rows = max(1, *(-(-size // width) for size in sizes))
    columns = min(_COLUMNS, len(heaps))
    height = _MAP_ROW * rows
    maps = _PolicyMaps(look, colours, width, rows, (_PIXELS, height))
    panels = [
        maps.panel(number, heap, model, legend=number == 0 if number < columns else None)
        for number, (heap, model) in enumerate(zip(heaps, models, strict=True))
    ]
    tables = [
        chunk_table(model).add_column(0, "policy", pa.array([heap.name] * len(model.chunks()), pa.string()))
        for heap, model in zip(heaps, models, strict=True)
    ]
    places = in_rows(panels, columns, height, _MAP_GAP)
    picture = panels_picture(
        _left_titles_only(panels, columns), places, look.paints, Margins(left=60, right=24)
    )
    return picture.with_table(pa.concat_tables(tables)).with_facts(
        f"{harmless(moment)} · shades of a colour: parts of that holder"
    )


def _policy_heap_model(heap: PolicyHeap) -> Model:
    model = Model(heap.trace)
    model.seek(heap.step)
    return model


def _policy_map_pool_bytes(model: Model) -> int:
    return int(model.regions()["size"].sum())


def _policy_map_row_width(most: int) -> int:
    """Bytes of a row in policies' maps: the least power of two by which the largest has `MOST_ROWS` at most."""
    width = 256
    while width * MOST_ROWS < most:
        width *= 2
    return width


@dataclass(frozen=True)
class _PolicyMaps:
    """What all maps of compared policies have in common: bytes of a row, rows, and pixels of a map."""

    look: Look
    colours: Colouring
    width: int
    rows: int
    pixels: tuple[int, int]

    def panel(self, number: int, heap: PolicyHeap, model: Model, *, legend: bool | None) -> Panel:
        """The map of one heap; `legend` None: without room for one."""
        divisor, unit = axis_unit(self.width)
        regions = model.regions()
        chunks, placed = model.chunks(), _policy_map_chunks_in_one_row(model.chunks(), regions)
        rows = _policy_map_rows(regions, self.width)
        visible = VisibleChunks(
            chunks=placed,
            rows=rows,
            part=rows.part(None),
            divisor=divisor,
            theme=self.look.paints,
            colours=self.colours,
            classes=self.colours.classes(placed, model.step),
            faded=np.zeros(len(placed), bool),
            found=np.zeros(len(placed), bool),
            shows_waste=self.colours.shows_waste,
            legend=self.look.legend,
            pixels=(self.pixels[0], self.pixels[1] * len(rows) // self.rows),
        )
        traces = self._traces(visible, chunks, regions, model)
        return Panel(
            name=f"map_{number}",
            title=harmless(heap.role or heap.name, _LONGEST_NAME),
            caption=_policy_map_caption(model, heap),
            definition=_DEFINITION,
            # An image has no entry in a legend.
            traces=[
                trace if legend or trace["type"] == "image" else {**trace, "showlegend": False}
                for trace in traces
            ],
            xaxis={
                "title": {"text": f"offset in the row ({unit})"},
                "range": [0, self.width / divisor],
                "showgrid": False,
                "zeroline": False,
            },
            yaxis={
                "range": [self.rows, -0.1],
                "tickvals": [row for row in range(self.rows) if not row % 4],
                "ticktext": [f"{row * self.width // divisor:,}" for row in range(self.rows) if not row % 4],
                "title": {"text": f"bytes before the row ({unit})", "font": {"size": 11}},
                "showgrid": False,
                "zeroline": False,
                "scaleanchor": False,  # an image must not keep its pixels square
            },
            x_unit=divisor,
            legend=legend is not None,
        )

    def _traces(
        self, visible: VisibleChunks, chunks: NDArray[np.void], regions: NDArray[np.void], model: Model
    ) -> list[dict[str, Any]]:
        labels = model.trace.labels
        exact = len(visible.chunks) + len(visible.rows) <= EXACT_CHUNKS
        shape = region_map.exact_traces if exact else region_map.image_traces
        found = [*shape(visible, labels), self._region_frames(regions, visible)]
        if exact:
            wide = visible.pieces.right - visible.pieces.left > _HOVERED * visible.screen
            pieces, known = visible.pieces.only(wide), region_map.HoverFacts.of(model)
            points = region_map.points_in_pieces(chunks, pieces, visible.part, labels, known)
            found.append(region_map.invisible_points(points, visible.divisor))
        return [*found, region_map.note_trace(visible)]

    def _region_frames(self, regions: NDArray[np.void], visible: VisibleChunks) -> dict[str, Any]:
        """The edges of the regions that are wider than their frame."""
        pieces = visible.rows.pieces(_policy_map_region_starts(regions), regions["size"])
        pieces = pieces.only(regions["size"][pieces.source] >= _FRAMED * self.width)
        frames = region_map_outline("region", pieces, visible.divisor, visible.theme.text, 1.1)
        return frames | {"showlegend": False}


def _policy_map_caption(model: Model, heap: PolicyHeap) -> str:
    """The totals, and whether a request failed; only what has room beside the name."""
    failed = "out of memory" if heap.failed else ""
    totals = f"{format_bytes(int(model.table.bytes_in_use))} of {format_bytes(_policy_map_pool_bytes(model))}"
    both = "; ".join(filter(None, [failed, totals]))
    return _first_with_room((heap.role or heap.name)[:_LONGEST_NAME], _PIXELS, both, failed)


def _policy_map_region_starts(regions: NDArray[np.void]) -> NDArray[np.uint64]:
    """Where each region begins, if they follow each other without gaps."""
    sizes: NDArray[np.uint64] = regions["size"]
    return np.cumsum(sizes, dtype=np.uint64) - sizes


def _policy_map_chunks_in_one_row(chunks: NDArray[np.void], regions: NDArray[np.void]) -> NDArray[np.void]:
    """The chunks, at their addresses if the regions follow each other without gaps."""
    placed = chunks.copy()
    if len(chunks):
        starts: NDArray[np.uint64] = regions["address"]
        region = np.searchsorted(starts, chunks["address"], side="right") - 1
        moved = _policy_map_region_starts(regions) - starts
        placed["address"] += moved[region]
    return placed


def _policy_map_rows(regions: NDArray[np.void], width: int) -> Rows:
    """The rows of all regions together, as of one."""
    whole = np.zeros(1 if len(regions) else 0, REGION)
    whole["size"] = regions["size"].sum()
    rows = -(-whole["size"].astype(np.int64) // width)
    first = np.concatenate([[0], np.cumsum(rows)]).astype(np.intp)
    return Rows(width, whole["address"], whole["size"], whole["slot"], first, np.arange(len(whole)))
