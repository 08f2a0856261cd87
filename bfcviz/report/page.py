"""The page: verdict and advice first, then the pictures, the holders, the settings, and what is known of the file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.account import ACCOUNT_STYLE, account_bar, account_table
from bfcviz.analysis.ranks import RankSet
from bfcviz.events.origin import regions_known, requested_bytes_known
from bfcviz.events.row_copy import taken
from bfcviz.figures.region_map.rows import Rows, lay_out
from bfcviz.figures.text import harmless
from bfcviz.figures.theme import DARK, FONT, LIGHT, Theme, holder_rules, holder_variables, variables
from bfcviz.model.holders import Holders
from bfcviz.report import words
from bfcviz.report.content import ColouredHolders, HeapReport, coloured_holders, largest
from bfcviz.report.words import ReportRow
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# Sizes as bars below each other on one scale: what was asked for, what is free, what is wasted.

_UNKNOWN: Final = "unknown"


class SizeBar(NamedTuple):
    """One bar.

    Attributes:
        name: what the size is of.
        size: bytes; None: unknown.
        kind: its colour: `asked`, `free`, `waste`.
        parts: bytes of the pieces to draw it in, side by side; empty: one piece.
    """

    name: str
    size: int | None
    kind: str
    parts: Sequence[int] = ()


SIZE_BAR_STYLE: Final = """
.bfcviz-bars{display:grid;grid-template-columns:max-content minmax(60px,1fr) max-content;gap:2px 8px;
  align-items:center;font-size:11px;line-height:12px;font-variant-numeric:tabular-nums}
.bfcviz-bars .track{display:flex;height:9px}
.bfcviz-bars .track span{box-sizing:border-box;height:100%;min-width:0;flex:1 1 0}
.bfcviz-bars .free{background:var(--free);border:1px solid var(--free-line)}
.bfcviz-bars .free+.free{border-left-width:0}
.bfcviz-bars .waste{background:var(--waste)}
.bfcviz-bars .asked{border:2px solid var(--text)}
.bfcviz-bars .asked.failed{border-color:var(--oom)}
.bfcviz-bars .value{text-align:right}
"""


def size_bars(bars: Sequence[SizeBar]) -> str:
    """The bars as HTML; `SIZE_BAR_STYLE` and the variables of `css.following` must be in the page."""
    most = max([bar.size or 0 for bar in bars] + [1])
    return f'<div class="bfcviz-bars">{"".join(_row(bar, most) for bar in bars)}</div>'


def _row(bar: SizeBar, most: int) -> str:
    sizes = bar.parts or ([bar.size] if bar.size else [])
    parts = "".join(f'<span class="{bar.kind}" style="flex-grow:{size}"></span>' for size in sizes)
    track = f'<span class="track" style="width:{100 * (bar.size or 0) / most:.2f}%">{parts}</span>'
    value = _UNKNOWN if bar.size is None else format_bytes(bar.size)
    return f'<span>{bar.name}</span><span>{track}</span><span class="value">{value}</span>'


# ------------------------------------------------------------------------------
# Chunks of one row of a map as SVG paths: exactly, or of many chunks the share of each column that they cover.

HEIGHT: Final = 20
"""Pixels of a row."""

_SHADES: Final = 6  # of the share in use of a column


@dataclass(frozen=True)
class RowChunks:
    """The chunks in use of one row; they do not overlap.

    Attributes:
        left, right: their ends, in units of the drawing.
        kind: of each an index into the names of `kinds`.
        kinds: CSS classes.
    """

    left: NDArray[np.float64]
    right: NDArray[np.float64]
    kind: NDArray[np.integer]
    kinds: Sequence[str]

    def exact(self) -> list[str]:
        """One path of each kind; a hair of free colour stays between two chunks where there is room."""
        wide = self.right - self.left
        wide = np.maximum(wide - np.where(wide > 3, 0.5, 0), 0.2)
        found = []
        for kind in np.flatnonzero(np.bincount(self.kind)).tolist():
            at = self.kind == kind
            found.append(f'<path class="{self.kinds[kind]}" d="{_rectangles(self.left[at], wide[at])}"/>')
        return found

    def shaded(self, width: float, most: int) -> list[str]:
        """Paths of columns, at most `most`: the kind with most of a column, in a shade that is the share in use.

        A column is never empty where something is in use, nor full where something is free.
        """
        columns = min(max(int(np.ceil(width)), 1), most)
        unit = width / columns
        present = np.flatnonzero(np.bincount(self.kind)) if len(self.kind) else np.zeros(1, np.intp)
        shares = np.array([self._covered(self.kind == kind, unit, columns) for kind in present])
        share, kind = np.clip(shares.sum(axis=0), 0, 1), present[shares.argmax(axis=0)]
        shade = np.ceil(share * _SHADES - 1e-6).astype(np.int64)
        shade[(share > 0) & (shade == 0)] = 1
        shade[(share < 1 - 1e-6) & (shade == _SHADES)] = _SHADES - 1  # a little is free
        look = kind * (_SHADES + 1) + shade
        edges = np.flatnonzero(np.concatenate(([True], look[1:] != look[:-1])))
        ends = np.append(edges[1:], columns)
        found = []
        for each in np.unique(look[edges]).tolist():
            number, level = divmod(each, _SHADES + 1)
            at = look[edges] == each
            if level:
                path = _rectangles(edges[at] * unit, (ends - edges)[at] * unit)
                opacity = f'fill-opacity="{level / _SHADES:.2f}"'
                found.append(f'<path class="{self.kinds[number]}" {opacity} d="{path}"/>')
        return found

    def _covered(self, which: NDArray[np.bool_], unit: float, columns: int) -> NDArray[np.float64]:
        return covered(self.left[which] / unit, self.right[which] / unit, columns)


def covered(left: NDArray[np.float64], right: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """The share of each column that ranges cover; they do not overlap."""
    edges = np.arange(columns + 1, dtype=np.float64)
    order = np.argsort(left)
    left, right = left[order], right[order]
    before = np.concatenate(([0.0], np.cumsum(right - left)))
    at = np.searchsorted(left, edges, "right")
    last = np.maximum(at - 1, 0)
    over = np.where(at > 0, np.maximum(right[last] - edges, 0), 0) if len(left) else np.zeros(columns + 1)
    return np.clip(np.diff(before[at] - over), 0, 1)


def _rectangles(left: NDArray[np.float64], wide: NDArray[np.float64]) -> str:
    return "".join(
        f"M{x:.2f} 0h{w:.2f}v{HEIGHT}h-{w:.2f}z" for x, w in zip(left.tolist(), wide.tolist(), strict=True)
    )


# ------------------------------------------------------------------------------
# The region map of the page: a bar a row, from left to right by address; colours show who holds what is in use.
#
# Of a heap with many chunks, a column of a bar shows the share of it that is in use, so that the page stays small
# whatever the heap holds. Many regions stand beside each other.

WIDTH: Final = 1000
"""Units of a bar."""

MOST_REGIONS: Final = 120
"""Regions that are drawn: those with the place for the request and the largest free chunk, then the largest."""

_EXACT: Final = 6000  # chunks that are drawn with their exact ends
_COLUMNS: Final = 40_000  # of all bars together, where there are more chunks
_FEW: Final = 12  # regions that stand below each other


@dataclass(frozen=True)
class _Areas:
    """Parts of the pool, each with its region, its first byte, its bytes and its colour, an index into `kinds`."""

    region: NDArray[np.integer]
    start: NDArray[np.uint64]
    size: NDArray[np.uint64]
    kind: NDArray[np.intp]
    kinds: Sequence[str]

    def only(self, mask: NDArray[np.bool_]) -> "_Areas":
        return _Areas(self.region[mask], self.start[mask], self.size[mask], self.kind[mask], self.kinds)


def region_bars(report: HeapReport, holders: ColouredHolders) -> str:
    """The bars with a line of text for each region; the chunks in use in the colours of their holders."""
    chunks, regions = holders.chunks, report.model.regions()
    if not len(regions):
        return "<p>The pool has no region.</p>"
    shown = _shown(report, chunks, regions)
    areas = _areas(report, holders)
    chunks = taken(chunks, np.flatnonzero(np.isin(chunks["region"], shown["slot"])))
    rows = lay_out(shown, wrapped_rows=max(16, len(shown)))
    parts = [_region(report, rows, number, chunks, areas) for number in range(len(shown))]
    parts = [f'<div class="{"many" if len(shown) > _FEW else "few"}">{"".join(parts)}</div>']
    left = len(regions) - len(shown)
    if left:
        rest = int(regions["size"].sum()) - int(shown["size"].sum())
        parts.append(
            f'<p class="note">{left:,} smaller regions, {format_bytes(rest)} in all, are not drawn.</p>'
        )
    return "".join(parts)


def _shown(report: HeapReport, chunks: NDArray[np.void], regions: NDArray[np.void]) -> NDArray[np.void]:
    if len(regions) <= MOST_REGIONS:
        return regions
    first = {run.region for run in report.shown.runs[:1]}
    free = taken(chunks, np.flatnonzero(~chunks["in_use"]))
    if len(free):
        first.add(int(free["region"][int(np.argmax(free["size"]))]))
    size = regions["size"].astype(np.float64) + np.where(np.isin(regions["slot"], list(first)), 2.0**64, 0.0)
    return taken(regions, np.sort(np.argsort(-size, kind="stable")[:MOST_REGIONS]))


def _areas(report: HeapReport, holders: ColouredHolders) -> _Areas:
    """The requested part of each chunk in use, and its waste."""
    at = np.flatnonzero(holders.chunks["in_use"])
    used, kind = taken(holders.chunks, at), holders.numbers[at]
    waste = used["size"] - used["requested"]
    if not requested_bytes_known(report.origin.details, report.pool):
        waste = np.zeros_like(waste)
    wasted = np.flatnonzero(waste)
    ends = used["address"] + used["size"]
    return _Areas(
        region=np.append(used["region"], used["region"][wasted]),
        start=np.append(used["address"], (ends - waste)[wasted]),
        size=np.append(used["size"] - waste, waste[wasted]),
        kind=np.append(kind, np.full(len(wasted), len(holders.kinds))),
        kinds=[*holders.kinds, "waste-area"],
    )


def _region(report: HeapReport, rows: Rows, number: int, chunks: NDArray[np.void], areas: _Areas) -> str:
    mine = taken(chunks, np.flatnonzero(chunks["region"] == rows.slot[number]))
    size, used = int(rows.size[number]), mine["in_use"]
    share = int(mine["size"][used].sum()) / size
    largest = int(mine["size"][~used].max(initial=0))
    text = f"{format_bytes(size)}, {100 * share:.0f} % in use"
    if len(rows.slot) <= _FEW:
        text = (
            f"region {int(rows.slot[number])} at {int(rows.address[number]):#x}: {text}, {len(mine):,} "
            f"chunk{'s' * (len(mine) != 1)}, largest free {format_bytes(largest)}"
        )
    first, stop = int(rows.first[number]), int(rows.first[number + 1])
    areas = areas.only(areas.region == rows.slot[number])
    bars = "".join(_bar(report, rows, number, row, areas) for row in range(first, stop))
    return f'<div class="region"><div class="muted">{text}</div>{bars}</div>'


def _bar(report: HeapReport, rows: Rows, number: int, row: int, areas: _Areas) -> str:
    """One row of a region as an SVG that is as wide as the page."""
    begin = int(rows.address[number]) + (row - int(rows.first[number])) * rows.width
    stop = min(begin + rows.width, int(rows.address[number]) + int(rows.size[number]))
    scale = WIDTH / rows.width
    width = (stop - begin) * scale
    found = [f'<rect class="free-area" width="{width:.2f}" height="{HEIGHT}"/>']
    starts = areas.start.astype(np.float64) - begin
    stops = starts + areas.size.astype(np.float64)
    inside = (stops > 0) & (starts < stop - begin)
    left = np.maximum(starts[inside], 0) * scale
    right = np.minimum(stops[inside], stop - begin) * scale
    exact = len(report.model.chunks()) <= _EXACT
    drawn = RowChunks(left, right, areas.kind[inside], areas.kinds)
    found += drawn.exact() if exact else drawn.shaded(width, max(_COLUMNS // len(rows), 50))
    found += _place(report, begin, stop, scale)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 2}" height="{HEIGHT + 2}" preserveAspectRatio="none" '
        f'role="img" aria-label="memory from {begin:#x} to {stop:#x}">{"".join(found)}</svg>'
    )


def _place(report: HeapReport, begin: int, stop: int, scale: float) -> list[str]:
    """The best place for the request, and the chunks in use in it."""
    found: list[str] = []
    if not report.shown.pinned_by:
        return found
    run = report.shown.runs[0]
    pins = [(pin.address, pin.address + pin.size) for pin in run.pins]
    boxes = [(max(start, begin) - begin, min(end, stop) - begin) for start, end in pins]
    found += [
        f'<rect class="pin" x="{low * scale:.2f}" width="{max((high - low) * scale, 1.5):.2f}" height="{HEIGHT}"/>'
        for low, high in boxes
        if low < high
    ]
    low, high = max(run.address, begin) - begin, min(run.address + run.size, stop) - begin
    if low < high:
        found.append(
            f'<rect class="place" x="{low * scale:.2f}" y="1" width="{(high - low) * scale:.2f}" '
            f'height="{HEIGHT}" vector-effect="non-scaling-stroke"/>'
        )
    return found


# ------------------------------------------------------------------------------
# The timelines of the page: bytes over the steps, and external fragmentation over the steps.

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


# ------------------------------------------------------------------------------
# The style of the page: the colours of the figures' themes as variables, for light, dark and paper.


def style() -> str:
    """The text of the page's style element."""
    return (
        f":root{{{_colours(LIGHT)}}}"
        f"@media (prefers-color-scheme: dark){{:root{{{_colours(DARK)}}}}}"
        f"@media print{{:root{{{_colours(LIGHT)}}}}}"
        f"body{{font:16px/1.5 {FONT}}}{_RULES}{ACCOUNT_STYLE}{holder_rules()}"
    )


def _colours(theme: Theme) -> str:
    return variables(theme) + holder_variables(theme)


_RULES: Final = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1080px;padding:24px 20px 60px;background:var(--paper);color:var(--text);
  print-color-adjust:exact;-webkit-print-color-adjust:exact}
h1{font-size:26px;line-height:1.25;margin:6px 0 8px}
h2{font-size:18px;margin:34px 0 8px}
h3{font-size:15px;margin:20px 0 4px}
p{margin:6px 0;max-width:76ch}
header .file{font-weight:600;overflow-wrap:anywhere}
.muted,header,.note,figcaption{color:var(--muted);font-size:14px}
.verdict{border-left:6px solid var(--mark);padding:2px 0 2px 16px;margin:14px 0 20px}
.numbers{font-size:18px;font-weight:600}
.verdict.calm{border-color:var(--free-line)}
.two{display:grid;grid-template-columns:1fr 1fr;gap:8px 36px}
.two h2{margin-top:14px}
ol{padding-left:22px;margin:6px 0}
li{margin:0 0 8px;max-width:76ch;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
td{border-top:1px solid var(--grid);padding:5px 10px 5px 0;vertical-align:top;overflow-wrap:anywhere}
tr:first-child td{border-top:0}
td.value{text-align:right;white-space:nowrap}
td.share{width:26%;min-width:70px}
td.note{width:30%}
.two td.note{width:24%}
.plain td.value{text-align:left;white-space:normal;width:45%}
.plain td.name{width:25%}
.bar{display:block;height:12px;margin-top:5px;min-width:1px;background:var(--in-use)}
.bar.asked,.key.asked{background:var(--mark)}
.bar.free,.key.free{background:var(--free);outline:1px solid var(--free-line);outline-offset:-1px}
.bar.pool,.key.pool{background:var(--pool);outline:1px solid var(--pool-line);outline-offset:-1px}
.bar[class*=holder-],.key[class*=holder-]{outline:1px solid var(--pool-line);outline-offset:-1px}
.bar.several{background:var(--muted)}
.bar.waste,.key.waste{background:var(--waste)}
.key{display:inline-block;width:14px;height:10px;margin:0 5px 0 14px;background:var(--in-use)}
.key:first-child{margin-left:0}
.map-key span{white-space:nowrap;display:inline-block;margin-right:14px}
.map-key .key{margin:0 5px 0 0}
.key.line{height:0;border-top:2px solid var(--text);margin-bottom:4px}
.key.dash{height:0;border-top:2px dashed var(--mark);background:none;margin-bottom:4px}
svg{display:block;width:100%}
figure{margin:6px 0 18px;break-inside:avoid}
.region{margin:8px 0 0}
.many{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:2px 14px}
.region .muted{font-size:12px}
.in-use{fill:var(--in-use)}
.free-area{fill:var(--free)}
.waste-area{fill:var(--waste)}
.pin{fill:var(--mark)}
.place{fill:none;stroke:var(--mark);stroke-width:2}
.pool-area{fill:var(--pool)}
.line{fill:none;stroke:var(--in-use-line);stroke-width:1.6}
.line.free{stroke:var(--free-line);stroke-width:1.8}
.line.limit{stroke:var(--text);stroke-dasharray:2 3}
.line.step{stroke:var(--mark);stroke-width:2;stroke-dasharray:5 3}
.rule{stroke:var(--grid);stroke-width:1}
.chart{display:grid;grid-template-columns:74px 1fr;font-size:12px;color:var(--muted)}
.chart{margin-top:12px}
.chart .y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;padding-right:8px;
  margin:-8px 0}
.chart .x{grid-column:2;display:flex;justify-content:space-between;padding-top:3px}
@media (max-width:700px){
  body{padding:14px 14px 40px;font-size:15px}
  h1{font-size:21px}
  .two{grid-template-columns:1fr}
  .chart{grid-template-columns:58px 1fr}
  td.note{width:auto}
  table,tbody,tr{display:block}
  tr{border-top:1px solid var(--grid);padding:5px 0;display:flex;flex-wrap:wrap;gap:0 10px;align-items:baseline}
  td{border:0;padding:0}
  td.name{flex:1 1 60%}
  td.share{flex:1 1 100%;order:4}
  td.share:empty,td.note:empty{display:none}
  td.note{flex:1 1 100%;order:3;font-size:13px}
}
@media print{
  body{max-width:none;padding:0;font-size:11pt}
  h2{break-after:avoid}
  tr,li{break-inside:avoid}
}
"""


# ------------------------------------------------------------------------------
# The page: verdict and advice first, then the pictures, the holders, the settings, and what is known of the file.

_LONGEST: Final = 2000  # characters of a text
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_BARS: Final = {
    "asked for": "asked",
    "pool": "pool",
    "limit": "pool",
    "wasted of that": "waste",
    "free in the pool": "free",
    "largest free chunk": "free",
}


def as_html(report: HeapReport, ranks: RankSet | None = None) -> str:
    """The report as one page; of several ranks a table of them first."""
    name = _safe(report.origin.source or "a trace")
    holders = coloured_holders(report.model)
    sizes = words.sizes(report)
    body = [
        "" if ranks is None else f"<h2>Ranks</h2>{ranks.html}<h2>{_safe(ranks.worst_heap.name)}</h2>",
        f'<header><span class="file">{name}</span> · {" · ".join(map(_safe, words.facts(report)))}</header>',
        _verdict(report),
        '<div class="two"><section>',
        "<h2>The sizes</h2>",
        _table(sizes, [_BARS.get(row.name, "") for row in sizes]),
        "</section><section>",
        _advice(report, holders),
        "</section></div>",
        _device(report),
        _way(report),
        f"<h2>Memory map {_moment(report)}</h2>",
        _map_key(report, holders),
        f"<figure>{region_bars(report, holders)}</figure>",
        _over_time(report),
        _holders(report, holders),
        "<h2>Settings</h2>",
        f'<div class="plain">{_table(words.settings(report))}</div>',
        _section("All failed requests", words.other_failures(report)),
        _section("All heaps of the file, at the last step", words.other_heaps(report)),
        "<h2>How complete the file is</h2>",
        *(f"<p>{_safe(text)}</p>" for text in words.completeness(report)),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}: {_safe(words.title(report))}</title><style>{style()}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _safe(text: str) -> str:
    """A text from a file: no markup, no control characters, and it cannot change the text around it."""
    return harmless(text, _LONGEST)


def _moment(report: HeapReport) -> str:
    return "at the failure" if report.has_failure else "at the peak" if report.has_history else ""


def _verdict(report: HeapReport) -> str:
    calm = "" if report.has_failure else " calm"
    parts = [f"<h1>{_safe(words.title(report))}</h1>"]
    if text := words.numbers(report):
        parts.append(f'<p class="numbers">{_safe(text)}</p>')
    texts = (words.summary(report), words.explanation(report), words.holder_line(report))
    parts += [f"<p>{_safe(text)}</p>" for text in texts if text]
    return f'<div class="verdict{calm}">{"".join(parts)}</div>'


def _advice(report: HeapReport, holders: ColouredHolders) -> str:
    texts = words.advice(report)
    if texts:
        return f"<h2>What would help</h2><ol>{''.join(f'<li>{_safe(text)}</li>' for text in texts)}</ol>"
    found = report.holders[0] if report.holders else None
    kinds = _kinds(found, holders) if found else ()
    rows = [
        row._replace(note="") for row in (words.holder_rows(found) if found else words.by_size(report))[:6]
    ]
    return f"<h2>Who holds most</h2>{_table(rows, kinds[:6])}" if rows else ""


def _device(report: HeapReport) -> str:
    """Who held the memory of the device, where the file says anything of it."""
    account = report.shown.account
    if account is None:
        return ""
    return (
        f"<h2>Memory of the device {_moment(report)}</h2>"
        f'<div class="bfcviz-account"><p>{_safe(account.device)}: {account.short}</p>'
        f"{account_bar(account)}{account_table(account)}</div>"
    )


def _way(report: HeapReport) -> str:
    sentence, rows = words.pins(report)
    if not rows:
        return ""
    return f"<h2>What is in the way</h2><p>{_safe(sentence)}</p>{_table(rows, ['asked'] * len(rows))}"


def _map_key(report: HeapReport, holders: ColouredHolders) -> str:
    key = [("free", "free"), *holders.legend()]
    if report.stats.requested_bytes_in_use < report.stats.bytes_in_use and requested_bytes_known(
        report.origin.details, report.pool
    ):
        key.append(("waste", "waste (size - requested)"))
    if report.shown.pinned_by:
        key.append(("asked", "in the way; the frame is the best place for the request"))
    entries = " ".join(f'<span><span class="key {kind}"></span>{name}</span>' for kind, name in key)
    shades = (
        "Lighter and darker shades of a holder are its largest parts. " if len(holders.legend()) > 1 else ""
    )
    return (
        f'<p class="muted map-key">{entries}</p>'
        f'<p class="muted">{shades}Addresses grow to the right and down.</p>'
    )


def _over_time(report: HeapReport) -> str:
    drawn = charts(report)
    if drawn:
        return f"<h2>Over time</h2>{drawn}"
    return (
        '<h2>Over time</h2><p class="muted">The file holds single moments: there is no history to draw.</p>'
    )


def _kinds(found: Holders, holders: ColouredHolders) -> list[str]:
    """The kind of each row of `words.holder_rows`: its colour in the map; `several` where it has more than one."""
    rows = largest(found, words.MOST_ROWS)
    paths = [found.path(row) if found.by == "op" else "" for row in rows]
    return [*(holders.kind_of(path) or "several" for path in paths), "several"]


def _holders(report: HeapReport, holders: ColouredHolders) -> str:
    parts = [f"<h2>Who holds the memory {_moment(report)}</h2>"]
    parts += [
        f"<h3>By {_safe(found.by.replace('_', ' '))}</h3>{_table(words.holder_rows(found), _kinds(found, holders))}"
        for found in report.holders
    ]
    if not report.holders:
        parts.append(f'<p class="muted">{words.NO_HOLDERS}</p>{_table(words.by_size(report))}')
    return "".join(parts)


def _section(title: str, rows: Sequence[ReportRow]) -> str:
    return f'<h2>{title}</h2><div class="plain">{_table(rows)}</div>' if rows else ""


def _table(rows: Sequence[ReportRow], kinds: Sequence[str] = ()) -> str:
    """A table; `kinds`: the class of the bar of each row, of the first rows at least."""
    has_shares = any(row.share is not None for row in rows)
    has_notes = any(row.note for row in rows)
    lines = []
    for number, row in enumerate(rows):
        cells = [f'<td class="name">{_safe(row.name)}</td><td class="value">{_safe(row.value)}</td>']
        if has_shares:
            kind = kinds[number] if number < len(kinds) else ""
            bar = (
                ""
                if row.share is None
                else f'<span class="bar {kind}" style="width:{100 * row.share:.2f}%"></span>'
            )
            cells.append(f'<td class="share">{bar}</td>')
        if has_notes:
            cells.append(f'<td class="note muted">{_safe(row.note)}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tbody>{''.join(lines)}</tbody></table>"
