"""Two panels of bars, a row a policy: the peak of the pool and what it consists of; three measures of fragmentation.

The bars of a policy that fails are hatched: its numbers end there.

::

    torch   ======================%%...... |        126 MiB            not in use  =======  30 %
                                                    9 driver calls     external    ==
                                                                       internal    =
    bfc     ///////////////////%//// x     |        out of memory
            requested  rounding  not in use| limit
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

_ROW, _LINE = 46, 16  # pixels of a row at least, and of a line of a name in it
_BAR: Final = 0.62  # of a row
_THIN: Final = 0.27
_FAILS: Final = "/"  # pattern of the bars of a policy that fails
_LONGEST: Final = 100  # characters of a message
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
SHARES: Final = {
    "unused": "not in use = 1 - peak in use / peak pool",
    "scattered": "external = 1 - largest free chunk / free bytes",
    "rounding": "internal = 1 - requested / in use",
}
"""Key -> name and definition of a measure, as the legend shows them."""

_SHARE_DEFINITION: Final = (
    "not in use (F2): reserved-not-in-use, the measure of GMLake and STAlloc.<br>"
    "external (F1): external fragmentation, that of TensorFlow. internal (F3): internal fragmentation.<br>"
    "external and internal are those of the moment when most is in use.<br>"
    "hatched: the policy runs out of memory; its numbers end there."
)


@dataclass(frozen=True)
class _Share:
    """One measure: its key in `SHARES`, the value of each policy, its paint."""

    key: str
    values: Sequence[float | None]
    paint: Paint


def row_height(policies: Sequence[ComparedPolicy]) -> int:
    """Pixels of each row: that of the name with the most lines."""
    return max([_ROW, *(_LINE * len(policy.lines) + 4 for policy in policies)])


def peaks_panel(job: ComparedJob, policies: Sequence[ComparedPolicy], theme: Theme) -> Panel:
    """The peak pool of each policy, made of requested bytes, rounding and unused memory."""
    axis = ByteAxis.of(job, policies)
    requested = [policy.requested_at_peak for policy in policies]
    in_use = [policy.peak_in_use for policy in policies]
    reserved = [policy.peak_reserved for policy in policies]
    nothing = [0] * len(policies)
    failed = [policy.has_failed for policy in policies]
    traces = [
        _part("in use: requested", nothing, requested, theme.in_use, axis),
        _part("in use: rounding", requested, in_use, theme.waste, axis),
        _part("not in use", in_use, reserved, theme.pool, axis),
        _line(axis.least_possible(job, theme), len(policies)),
        _line(axis.limit_line(theme), len(policies)) | {"legend": 2},
        _failed(policies, axis, theme),
        _ends(policies, axis, theme),
    ]
    return Panel(
        name="peaks",
        title=f"Peak pool ({axis.unit})",
        caption="memory granted by the driver; hatched: out of memory",
        definition=_PEAK_DEFINITION,
        traces=[*(trace | _hatched(trace, failed) for trace in traces[:3]), *traces[3:]],
        xaxis={
            "range": [0, _RIGHT * axis.end],
            "title": {"text": f"bytes ({axis.unit})"},
            "tickformat": ",~g",
        },
        yaxis=_rows(policies, names=True),
        x_unit=axis.divisor,
    )


def shares_panel(policies: Sequence[ComparedPolicy], theme: Theme) -> Panel:
    """Three measures of fragmentation of each policy, in percent."""
    served = [not policy.message for policy in policies]
    allocators = [each and policy.is_allocator for each, policy in zip(served, policies, strict=True)]
    shares = [
        _Share("unused", _where(served, [p.reserved_not_in_use for p in policies]), theme.pool),
        _Share("scattered", _where(allocators, [p.scattered_share for p in policies]), theme.free),
        _Share("rounding", _where(served, [p.internal_fragmentation for p in policies]), theme.waste),
    ]
    failed = [policy.has_failed for policy in policies]
    bars = [_share(each, line, theme, failed) for line, each in enumerate(shares)]
    return Panel(
        name="shares",
        title="Fragmentation (%)",
        caption="when most is in use",
        definition=_SHARE_DEFINITION,
        traces=[*bars, _out_of_memory(failed, theme)],
        xaxis={"range": [0, 136], "title": {"text": "share (%)"}, "tickvals": [0, 25, 50, 75, 100]},
        yaxis=_rows(policies, names=False),
    )


def _where(known: Sequence[bool], values: Sequence[float | None]) -> list[float | None]:
    return [value if each else None for each, value in zip(known, values, strict=True)]


def _rows(policies: Sequence[ComparedPolicy], *, names: bool) -> dict[str, Any]:
    return {
        "range": [len(policies), 0],
        "tickvals": [row + 0.5 for row in range(len(policies))],
        "ticktext": ["<br>".join(policy.lines) if names else "" for policy in policies],
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
    """The texts in a column beside the bars, where no line crosses them."""
    served = [not policy.message and not policy.has_failed for policy in policies]
    return {
        "type": "scatter",
        "mode": "text",
        "x": [1.03 * axis.end for _ in policies],
        "y": [row + 0.5 for row in range(len(policies))],
        "text": [_end(policy) for policy in policies],
        "textposition": "middle right",
        "textfont": {"size": 11, "color": [theme.text if each else theme.oom for each in served]},
        "cliponaxis": False,
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _end(policy: ComparedPolicy) -> str:
    """The peak and the calls to the driver; or where it failed; or why there is no bar."""
    if policy.message:
        return f"cannot serve: {harmless(policy.message, _LONGEST)}"
    if policy.failed is not None:
        asked = format_bytes(policy.failed_size)
        return f"<b>out of memory</b><br>{asked} at request {policy.failed:,}"
    peak = f"<b>{format_bytes(policy.peak_reserved)}</b>"
    if policy.driver_calls is None:
        return peak
    stall = f"{1000 * policy.stall_s:,.0f} ms" if policy.stall_s < 1 else f"{policy.stall_s:,.1f} s"
    return f"{peak}<br>{policy.driver_calls:,} driver calls: {stall}"


def _hatched(trace: dict[str, Any], failed: Sequence[bool]) -> dict[str, Any]:
    """The marker of bars, hatched in the rows whose policy failed."""
    pattern = {"shape": [_FAILS if each else "" for each in failed], "fillmode": "replace", "solidity": 0.3}
    return {"marker": {**trace["marker"], "pattern": {**pattern, "size": 5}}}


def _out_of_memory(failed: Sequence[bool], theme: Theme) -> dict[str, Any]:
    """Which rows end before the job does."""
    rows = [row for row, each in enumerate(failed) if each]
    return {
        "type": "scatter",
        "mode": "text",
        "name": "",
        "x": [134 for _ in rows] or [None],
        "y": [row + 0.5 for row in rows] or [None],
        "text": ["out of<br>memory" for _ in rows] or [""],
        "textposition": "middle left",
        "textfont": {"size": 11, "color": theme.oom},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _share(share: _Share, line: int, theme: Theme, failed: Sequence[bool]) -> dict[str, Any]:
    """The bars of one measure, on this line of the legend and at this place in each row."""
    name = SHARES[share.key].partition(" = ")[0]
    known = [(row, value) for row, value in enumerate(share.values) if value is not None]
    found: dict[str, Any] = {
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
        "textfont": {"size": 11, "color": theme.text},
        "cliponaxis": False,
        "hovertext": [f"{name}: {100 * value:.2f} %" for _, value in known],
        "hoverinfo": "text",
    }
    return found | _hatched(found, [failed[row] for row, _ in known])
