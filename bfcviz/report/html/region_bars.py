"""The region map of the page: a bar a row, from left to right by address; colours show who holds what is in use.

Of a heap with many chunks, a column of a bar shows the share of it that is in use, so that the page stays small
whatever the heap holds. Many regions stand beside each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin_details import requested_bytes_known
from bfcviz.events.row_copy import taken
from bfcviz.figures.region_map.rows import Rows, lay_out
from bfcviz.report.content import HeapReport
from bfcviz.report.holder_colours import ColouredHolders
from bfcviz.report.html.row_shapes import HEIGHT, RowChunks
from bfcviz.units import format_bytes

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
