"""The map of a card: regions as rows, chunks coloured by holder, and the request drawn to scale where it fits best."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.row_copy import taken
from bfcviz.figures.region_map.rows import Pieces, Rows, lay_out
from bfcviz.model import Model
from bfcviz.model.explain.failure.diagnosis import Diagnosis
from bfcviz.report.holder_colours import ColouredHolders
from bfcviz.report.html.row_shapes import HEIGHT, RowChunks
from bfcviz.units import format_bytes

_WIDTH: Final = 1000  # units of a row
_ROWS: Final = 7
_GAP: Final = 7  # pixels between two rows: the marks of chunks in the way lie in it
_TALLEST: Final = 280  # pixels of the drawing: with more rows they are thinner
_EXACT: Final = 1500  # chunks that are drawn with their exact ends
_COLUMNS: Final = 500  # of a row, where there are more
_NAMED_FREE: Final = 3  # free chunks with their size
_LEAST_NAMED: Final = 0.11  # of a row: a narrower chunk has no room for its size


class _Request(NamedTuple):
    """Where the request is drawn: its address and its bytes, clipped to the region; and the chunks in the way."""

    address: int
    size: int
    pins: list[tuple[int, int]]


def card_map(model: Model, holders: ColouredHolders, found: Diagnosis | None) -> str:
    """The map with a line of text below it; `found`: the failed request."""
    regions, request = model.regions(), None if found is None else _request(model, found)
    shown = _shown(regions, None if request is None else request.address)
    rows = lay_out(shown, wrapped_rows=max(_ROWS, len(shown)))
    count = min(len(rows), 2 * _ROWS)
    height = count * (HEIGHT + _GAP)
    drawn = min(height, _TALLEST)
    parts = [*_background(rows, count), *_chunks(rows, count, shown, holders)]
    if request is not None:
        parts += _request_shapes(rows, count, request)
    texts = _free_sizes(rows, count, shown, holders.chunks)
    left = len(regions) - len(shown)
    more = f", {left:,} smaller regions not drawn" if left else ""
    key = "".join(f'<span class="key {kind}"></span>{name}' for kind, name in _key(request))
    return (
        f'<div class="map"><div class="plot" style="height:{drawn}px">'
        f'<svg viewBox="0 0 {_WIDTH} {height}" style="height:{drawn}px" preserveAspectRatio="none" role="img" '
        f'aria-label="the chunks by address">{"".join(parts)}</svg>{texts}</div>'
        f'<div class="facts">{key}<span class="scale">a row: {format_bytes(rows.width)}{more}</span></div></div>'
    )


def _key(request: _Request | None) -> list[tuple[str, str]]:
    found = [("free", "free")]
    if request is not None:
        found.append(("request", "the request, to scale"))
        if request.pins:
            found.append(("in-the-way", "in its way"))
    return found


def _request(model: Model, found: Diagnosis) -> _Request | None:
    """The best place for the request, else where the largest free chunk begins; None where nothing is free."""
    if found.pinned_by:
        run = found.runs[0]
        pins = [(pin.address, pin.size) for pin in run.pins]
        address = run.address
    elif found.hole.chunk is not None:
        address, pins = int(found.hole.chunk["address"]), []
    else:
        return None
    regions = model.regions()
    region = regions[int(np.searchsorted(regions["address"], np.uint64(address), "right")) - 1]
    left = int(region["address"]) + int(region["size"]) - address
    return _Request(address, min(found.rounded, left), pins)


def _shown(regions: NDArray[np.void], address: int | None) -> NDArray[np.void]:
    """At most `_ROWS` regions: that of the request, then the largest."""
    if len(regions) <= _ROWS:
        return regions
    sizes = regions["size"].astype(np.float64)
    if address is not None:
        sizes[int(np.searchsorted(regions["address"], np.uint64(address), "right")) - 1] = np.inf
    return taken(regions, np.sort(np.argsort(-sizes, kind="stable")[:_ROWS]))


def _background(rows: Rows, count: int) -> list[str]:
    """The bytes of the regions, in the colour of free chunks."""
    pieces = rows.of_regions()
    scale = _WIDTH / rows.width
    return [
        f'<rect class="free-area" y="{row * (HEIGHT + _GAP)}" width="{right * scale:.2f}" height="{HEIGHT}"/>'
        for row, right in zip(pieces.row.tolist(), pieces.right.tolist(), strict=True)
        if row < count
    ]


def _inside(shown: NDArray[np.void], chunks: NDArray[np.void], wanted: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Which of the wanted chunks lie in the regions shown."""
    return np.flatnonzero(wanted & np.isin(chunks["region"], shown["slot"]))


def _chunks(rows: Rows, count: int, shown: NDArray[np.void], holders: ColouredHolders) -> list[str]:
    chunks = holders.chunks
    at = _inside(shown, chunks, chunks["in_use"])
    pieces = rows.pieces(chunks["address"][at], chunks["size"][at])
    kinds = holders.numbers[at][pieces.source]
    scale = _WIDTH / rows.width
    found = []
    for row in range(count):
        mine = pieces.row == row
        drawn = RowChunks(pieces.left[mine] * scale, pieces.right[mine] * scale, kinds[mine], holders.kinds)
        shapes = drawn.exact() if len(pieces) <= _EXACT else drawn.shaded(_WIDTH, _COLUMNS)
        found.append(f'<g transform="translate(0,{row * (HEIGHT + _GAP)})">{"".join(shapes)}</g>')
    return found


def _request_shapes(rows: Rows, count: int, request: _Request) -> list[str]:
    scale, found = _WIDTH / rows.width, []
    for row, left, right in _boxes(_pieces(rows, [(request.address, request.size)]), count):
        found.append(
            f'<rect class="request" x="{left * scale:.2f}" y="{row * (HEIGHT + _GAP) - 1}" '
            f'width="{(right - left) * scale:.2f}" height="{HEIGHT + 2}" vector-effect="non-scaling-stroke"/>'
        )
    for row, left, right in _boxes(_pieces(rows, request.pins), count):
        found.append(
            f'<rect class="in-the-way" x="{left * scale:.2f}" y="{row * (HEIGHT + _GAP) + HEIGHT + 2}" '
            f'width="{max((right - left) * scale, 2):.2f}" height="3"/>'
        )
    return found


def _free_sizes(rows: Rows, count: int, shown: NDArray[np.void], chunks: NDArray[np.void]) -> str:
    """The sizes of the largest free chunks as texts over the map."""
    at = _inside(shown, chunks, ~chunks["in_use"])
    at = at[np.argsort(-chunks["size"][at].astype(np.float64), kind="stable")[:_NAMED_FREE]]
    found, tall = [], 100 * HEIGHT / (HEIGHT + _GAP) / count
    for index in at.tolist():
        size = int(chunks["size"][index])
        boxes = _boxes(_pieces(rows, [(int(chunks["address"][index]), size)]), count)
        row, left, right = max(boxes, key=lambda box: box[2] - box[1], default=(0, 0.0, 0.0))
        if right - left >= _LEAST_NAMED * rows.width:
            place = f"left:{100 * left / rows.width:.2f}%;width:{100 * (right - left) / rows.width:.2f}%"
            found.append(
                f'<span style="top:{100 * row / count:.2f}%;height:{tall:.2f}%;{place}">'
                f"{format_bytes(size)} free</span>"
            )
    return "".join(found)


def _pieces(rows: Rows, spans: list[tuple[int, int]]) -> Pieces:
    inside = [(address, size) for address, size in spans if _is_shown(rows, address)]
    return rows.pieces(
        np.array([address for address, _ in inside], np.uint64),
        np.array([size for _, size in inside], np.uint64),
    )


def _is_shown(rows: Rows, address: int) -> bool:
    at = int(np.searchsorted(rows.address, np.uint64(address), "right")) - 1
    return at >= 0 and address < int(rows.address[at]) + int(rows.size[at])


def _boxes(pieces: Pieces, count: int) -> list[tuple[int, float, float]]:
    """Row, left and right of each piece on the map, in bytes."""
    rows = zip(pieces.row.tolist(), pieces.left.tolist(), pieces.right.tolist(), strict=True)
    return [(row, left, right) for row, left, right in rows if row < count]
