"""The timelines of the page: bytes over the steps, and external fragmentation over the steps."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin_details import regions_known
from bfcviz.report.content import HeapReport
from bfcviz.units import format_bytes

_WIDTH: Final = 1000
_HEIGHT: Final = 180
_TICKS: Final = 4


def charts(report: HeapReport) -> str:
    """Both charts, each with its key; empty where there is no history, without free memory where it is not known."""
    if not len(report.series):
        return ""
    if not regions_known(report.origin.details, report.pool):
        return _bytes_in_use(report)
    return f"{_bytes(report)}{_fragmentation(report)}"


def _bytes_in_use(report: HeapReport) -> str:
    used = report.series["bytes_in_use_max"]
    top = float(max(int(used.max()), 1)) * 1.08
    parts = [f'<path class="in-use" d="{_area(_across(report), used / top)}"/>']
    return _chart(report, "Memory", '<span class="key"></span>in use', parts, _sizes(top))


def _bytes(report: HeapReport) -> str:
    series = report.series
    top = float(max(int(series["pool_bytes_max"].max()), 1)) * 1.08
    limit = report.origin.pools[report.pool].limit
    shows_limit = limit is not None and limit <= 1.5 * top
    if shows_limit and limit is not None:
        top = max(top, 1.04 * limit)
    x = _across(report)
    parts = [
        f'<path class="pool-area" d="{_area(x, series["pool_bytes_max"] / top)}"/>',
        f'<path class="in-use" d="{_area(x, series["bytes_in_use_max"] / top)}"/>',
        f'<path class="line free" d="{_line(x, series["largest_free_chunk_min"] / top)}" {_THIN}/>',
    ]
    if shows_limit and limit is not None:
        parts.append(_level(limit / top))
    key = (
        '<span class="key"></span>in use<span class="key pool"></span>pool'
        '<span class="key free"></span>largest free chunk'
    )
    key += '<span class="key line"></span>limit' if shows_limit else ""
    return _chart(report, "Memory", key, parts, _sizes(top))


def _sizes(top: float) -> list[str]:
    return [format_bytes(top * part / _TICKS) for part in range(_TICKS, -1, -1)]


def _fragmentation(report: HeapReport) -> str:
    x = _across(report)
    share = report.series["external_fragmentation_max"].astype(np.float64)
    parts = [f'<path class="line free" d="{_line(x, share)}" {_THIN}/>']
    key = '<span class="key free"></span>external fragmentation: 1 - largest free chunk / free'
    return _chart(report, "Fragmentation", key, parts, [f"{25 * part} %" for part in range(_TICKS, -1, -1)])


_THIN: Final = 'vector-effect="non-scaling-stroke"'


def _chart(report: HeapReport, title: str, key: str, parts: Sequence[str], ticks: Sequence[str]) -> str:
    first, last = report.steps
    rules = "".join(
        f'<path class="rule" d="M0 {_HEIGHT * n / _TICKS:.1f}H{_WIDTH}" {_THIN}/>' for n in range(_TICKS + 1)
    )
    at = _WIDTH * (report.shown.step - first) / max(last - first, 1)
    here = f'<path class="line step" d="M{at:.1f} 0V{_HEIGHT}" {_THIN}/>'
    word = "the failure" if report.has_failure else "the step shown"
    return (
        f'<figure><h3>{title}</h3><figcaption>{key}<span class="key dash"></span>{word}</figcaption>'
        f'<div class="chart"><div class="y">{"".join(f"<span>{tick}</span>" for tick in ticks)}</div>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" height="{_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{title} over steps">{rules}{"".join(parts)}{here}</svg>'
        f'<div class="x"><span>step {first:,}</span>{_middle(report)}<span>{last:,}</span></div></div></figure>'
    )


def _middle(report: HeapReport) -> str:
    begin, end = report.times
    return f"<span>{end - begin:.3g} s</span>" if end > begin else ""


def _across(report: HeapReport) -> NDArray[np.float64]:
    first, last = report.steps
    found: NDArray[np.float64] = (
        _WIDTH * (report.series["step"].astype(np.float64) - first) / max(last - first, 1)
    )
    return found


def _line(x: NDArray[np.float64], shares: NDArray[np.float64]) -> str:
    """A path through the shares (0..1) of the height."""
    y = _HEIGHT * (1 - np.clip(shares.astype(np.float64), 0, 1))
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _area(x: NDArray[np.float64], shares: NDArray[np.float64]) -> str:
    return f"{_line(x, shares)}V{_HEIGHT}H{x[0]:.1f}z"


def _level(share: float) -> str:
    y = _HEIGHT * (1 - share)
    return f'<path class="line limit" d="M0 {y:.1f}H{_WIDTH}" {_THIN}/>'
