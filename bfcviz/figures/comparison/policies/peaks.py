"""Two panels of bars, a row a policy: the peak of the pool and what it consists of; three measures of fragmentation.

::

    bfc     ======================%%......          unused  =======        30 %
                                                    holes   ==
                                                    waste   =
    torch   ===================%......... x fails
            requested  rounding  unused   | limit
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

from bfcviz.figures.comparison.policies.byte_axis import ByteAxis, ByteLevel
from bfcviz.figures.comparison.policies.compared_policy import ComparedJob, ComparedPolicy
from bfcviz.figures.panel import Panel
from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.figures.style.theme import Paint, Theme
from bfcviz.units import format_bytes

ROW: Final = 46
"""Pixels of a row."""

_BAR: Final = 0.62  # of a row
_THIN: Final = 0.2
_LONGEST: Final = 100  # characters of a message

_PEAK_DEFINITION: Final = (
    "peak pool: the most bytes that the driver had granted (peak reserved).<br>"
    "requested: requested bytes where most is in use.<br>"
    "rounding: what the sizes of those blocks add.<br>"
    "unused: peak reserved - peak in use.<br>"
    "least possible: the most requested bytes in use at a time; no allocator can need less."
)
SHARES: Final = {
    "unused": "F2 unused = 1 - peak in use / peak reserved",
    "scattered": "F1 scattered = 1 - largest free chunk / free bytes",
    "rounding": "F3 rounding = (in use - requested) / in use",
}
"""Key -> name and definition of a measure, as the legend shows them."""

_SHARE_DEFINITION: Final = (
    "F2 is the measure of GMLake and STAlloc, F1 that of TensorFlow.<br>"
    "F1 and F3 are those of the moment when most is in use.<br>"
    "A policy that fails ends there: its numbers are those until then."
)


@dataclass(frozen=True)
class _Share:
    """One measure: its key in `SHARES`, the value of each policy, its paint."""

    key: str
    values: Sequence[float | None]
    paint: Paint


def peaks_panel(job: ComparedJob, policies: Sequence[ComparedPolicy], theme: Theme) -> Panel:
    """The peak pool of each policy, made of requested bytes, rounding and unused memory."""
    axis = ByteAxis.of(job, policies)
    requested = [policy.requested_at_peak for policy in policies]
    in_use = [policy.peak_in_use for policy in policies]
    reserved = [policy.peak_reserved for policy in policies]
    nothing = [0] * len(policies)
    traces = [
        _part("requested", nothing, requested, theme.in_use, axis),
        _part("rounding", requested, in_use, theme.waste, axis),
        _part("unused", in_use, reserved, theme.pool, axis),
        _line(axis.least_possible(job, theme), len(policies)),
        _line(axis.limit_line(theme), len(policies)) | {"legend": 2},
        _failed(policies, axis, theme),
        _ends(policies, axis, theme),
    ]
    return Panel(
        name="peaks",
        title=f"Peak pool ({axis.unit})",
        caption="all memory granted by the driver, at its peak",
        definition=_PEAK_DEFINITION,
        traces=traces,
        xaxis={"range": [0, 1.38 * axis.end], "title": {"text": f"bytes ({axis.unit})"}, "tickformat": ",~g"},
        yaxis=_rows(policies, names=True),
        x_unit=axis.divisor,
    )


def shares_panel(policies: Sequence[ComparedPolicy], theme: Theme) -> Panel:
    """Three measures of fragmentation of each policy, in percent."""
    served = [not policy.message for policy in policies]
    allocators = [each and policy.is_allocator for each, policy in zip(served, policies, strict=True)]
    shares = [
        _Share("unused", _where(served, [p.unused_share for p in policies]), theme.pool),
        _Share("scattered", _where(allocators, [p.scattered_share for p in policies]), theme.free),
        _Share("rounding", _where(served, [p.rounding_share for p in policies]), theme.waste),
    ]
    return Panel(
        name="shares",
        title="Fragmentation (%)",
        caption="F1 and F3: when most is in use",
        definition=_SHARE_DEFINITION,
        traces=[_share(each, line, theme) for line, each in enumerate(shares)],
        xaxis={"range": [0, 118], "title": {"text": "share (%)"}, "tickvals": [0, 25, 50, 75, 100]},
        yaxis=_rows(policies, names=False),
    )


def _where(known: Sequence[bool], values: Sequence[float | None]) -> list[float | None]:
    return [value if each else None for each, value in zip(known, values, strict=True)]


def _rows(policies: Sequence[ComparedPolicy], *, names: bool) -> dict[str, Any]:
    return {
        "range": [len(policies), 0],
        "tickvals": [row + 0.5 for row in range(len(policies))],
        "ticktext": [policy.lines() if names else "" for policy in policies],
        "ticks": "",
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }


def _part(
    name: str, start: Sequence[int], stop: Sequence[int], paint: Paint, axis: ByteAxis
) -> dict[str, Any]:
    """A part of each bar, between bytes `start` and `stop`."""
    sizes = [high - low for low, high in zip(start, stop, strict=True)]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [size / axis.divisor for size in sizes],
        "base": [low / axis.divisor for low in start],
        "y": [row + 0.5 for row in range(len(sizes))],
        "width": _BAR,
        "offset": -_BAR / 2,
        "marker": {"color": paint.fill, "line": {"color": paint.line, "width": 0.8}},
        "hovertext": [f"{name}: {exact_bytes(size)}" for size in sizes],
        "hoverinfo": "text",
    }


def _line(level: ByteLevel, rows: int) -> dict[str, Any]:
    """A vertical line through all rows."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": level.name,
        "showlegend": not isnan(level.value),
        "legend": 1,
        "x": [level.value, level.value],
        "y": [0, rows],
        "line": {"color": level.colour, "width": 1.8, "dash": level.dash},
        "hovertemplate": f"{level.name}<extra></extra>",
    }


def _failed(policies: Sequence[ComparedPolicy], axis: ByteAxis, theme: Theme) -> dict[str, Any]:
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


def _ends(policies: Sequence[ComparedPolicy], axis: ByteAxis, theme: Theme) -> dict[str, Any]:
    """The text beside each bar: the peak, and where it failed; or why there is no bar."""
    texts, colours, places = [], [], []
    for policy in policies:
        right_of_limit = policy.failed is not None and policy.peak_reserved < (axis.limit or 0)
        places.append((axis.limit or 0 if right_of_limit else policy.peak_reserved) / axis.divisor)
        if policy.message:
            texts.append(f"  cannot serve: {harmless(policy.message, _LONGEST)}")
        elif policy.failed is not None:
            what = format_bytes(policy.failed_size)
            texts.append(f"   fails at request {policy.failed:,}<br>   ({what} asked)")
        else:
            texts.append(f"  {format_bytes(policy.peak_reserved)}")
        colours.append(theme.text if not policy.message and policy.failed is None else theme.oom)
    return {
        "type": "scatter",
        "mode": "text",
        "x": places,
        "y": [row + 0.5 for row in range(len(policies))],
        "text": texts,
        "textposition": "middle right",
        "textfont": {"size": 11, "color": colours},
        "cliponaxis": False,
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _share(share: _Share, line: int, theme: Theme) -> dict[str, Any]:
    """The bars of one measure, on this line of the legend and at this place in each row."""
    name = SHARES[share.key].partition(" = ")[0]
    known = [(row, value) for row, value in enumerate(share.values) if value is not None]
    return {
        "type": "bar",
        "orientation": "h",
        "name": SHARES[share.key],
        "legend": line,
        "x": [100 * value for _, value in known],
        "y": [row + 0.5 for row, _ in known],
        "width": _THIN,
        "offset": (line - 1.5) * _THIN,
        "marker": {"color": share.paint.fill, "line": {"color": share.paint.line, "width": 0.8}},
        "text": [f"{100 * value:.1f}" for _, value in known],
        "textposition": "outside",
        "textfont": {"size": 9, "color": theme.text},
        "cliponaxis": False,
        "hovertext": [f"{name}: {100 * value:.2f} %" for _, value in known],
        "hoverinfo": "text",
    }
