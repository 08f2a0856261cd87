"""The region map: every region a row, every chunk at its address, coloured by its state or class.

Up to `EXACT_CHUNKS` pieces of chunks on screen are drawn as exact rectangles, one trace per class; more become an
image, whose cost depends on its pixels.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.analysis.fit import fit_of, request_at
from bfcviz.analysis.what_grew import growth_chunks_at
from bfcviz.events.labels import Labels
from bfcviz.events.origin import requested_bytes_known
from bfcviz.events.schema import Events, bin_numbers
from bfcviz.figures.colouring import COLOURINGS, Colouring, colouring, faded
from bfcviz.figures.panel import Panel
from bfcviz.figures.region_map import traces as map_traces
from bfcviz.figures.region_map.live_map import LiveMap
from bfcviz.figures.region_map.rows import SPAN, Rows, VisibleRows, rows_of, selected
from bfcviz.figures.region_map.traces import VisibleChunks, map_fit_text, request_marks, touched
from bfcviz.figures.text import axis_unit, round_bytes
from bfcviz.figures.view import DashboardPlace, HeapData, View
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model import Model
from bfcviz.model.filters import found_by, search_filter
from bfcviz.model.model import CHUNK

MOST_FOUND: Final = 300
"""Matches that are outlined; more of them cannot be told apart."""


def map_search_matches(chunks: NDArray[np.void], labels: Labels, search: str | None) -> NDArray[np.bool_]:
    """Which chunks a search finds; only an address finds free ones."""
    if not search or not search.strip():
        return np.zeros(len(chunks), bool)
    is_address = search_filter(search).address is not None
    matches: NDArray[np.bool_] = found_by(labels, search)(chunks) & (chunks["in_use"] | is_address)
    return matches


def _outlined_matches(chunks: NDArray[np.void], matches: NDArray[np.bool_]) -> NDArray[np.void]:
    """The matches of a search that are outlined, the largest `MOST_FOUND`."""
    at = np.flatnonzero(matches)
    if len(at) > MOST_FOUND:
        at = np.sort(at[np.argpartition(~chunks["size"][at], MOST_FOUND)[:MOST_FOUND]])
    found: NDArray[np.void] = chunks[at]
    return found


MOST_GONE: Final = 300
"""Chunks that are gone and are outlined, the largest; more of them cannot be told apart."""


def map_gone_chunks(model: Model, since: int | None) -> NDArray[np.void]:
    """The chunks to shade as gone: in use at the step `since`, freed by now, the largest; none without a step."""
    chunks: NDArray[np.void] = model.in_use()
    if since is None or not model.trace.first <= since <= model.step:
        return chunks[:0]
    before = growth_chunks_at(model, since)
    gone = before[np.isin(before["born"], chunks["born"], invert=True)]
    largest: NDArray[np.void] = gone[np.argsort(~gone["size"], kind="stable")[:MOST_GONE]]
    return largest


EXACT_CHUNKS: Final = 3000
"""Pieces of chunks on screen that are drawn as exact rectangles, at most."""

_MOST_TICKS = 20
_TOP = -0.2  # rows: the upper end of the y axis
_REACH = 0.003  # of the screen's width: a click this close to a narrow chunk selects it

_DEFINITION = (
    "region: one grant from the sub-allocator; a long one continues in the next row.<br>"
    "chunk: wholly free or wholly in use.<br>waste: its size - its requested bytes."
)


def region_panel(
    model: Model, highlight: Events | None, look: Look, colours: Colouring | None = None
) -> Panel:
    """The map as a panel; it always has the same traces in the same order, some of them empty.

    Args:
        model: the heap; it stays at its step.
        highlight: events whose chunks are outlined.
        look: with `wanted`, the places of such a request are marked.
        colours: the colouring of `look` for this heap; None: it is made here.
    """
    visible, exact = _visible_chunks(model, look, colours)
    chunks = visible.chunks
    chosen = selected(model.chunks(), look.selected)
    found = _outlined_matches(chunks, visible.found)
    shape = map_traces.exact_traces if exact else map_traces.image_traces
    request = request_at(model, look.wanted)
    answer = fit_of(model, request.size) if request is not None else None
    traces = [
        *shape(visible, model.trace.labels),
        map_traces.gone(visible, map_gone_chunks(model, look.since)),
        *request_marks(visible, answer, model.trace.labels),
        *map_traces.outlines(visible, touched(highlight, model.chunks(), model.regions()), chosen, found),
        map_traces.hover_points(visible, model.trace.labels, model.trace.origin.details, exact=exact),
        map_traces.note(visible),
    ]
    panel = _region_map_panel(visible, traces, look, exact=exact)
    return panel if answer is None else replace(panel, caption=map_fit_text(answer, model.trace.labels))


def _visible_chunks(model: Model, look: Look, colours: Colouring | None) -> tuple[VisibleChunks, bool]:
    """The chunks of the part of the map that a look shows, and whether they are few enough for exact rectangles."""
    chunks = model.chunks()
    colours = colours or colouring(model.trace, model.pool, look.colour, look.paints, chunks)
    rows = rows_of(model)
    part = rows.part(look.map_window)
    indices, pieces = rows.chunks_in(chunks["address"], part)
    if len(indices) < len(chunks):
        chunks = chunks[indices]
    visible = VisibleChunks(
        chunks=chunks,
        rows=rows,
        part=part,
        divisor=axis_unit(_map_screen_bytes(rows, look))[0],
        theme=look.paints,
        colours=colours,
        classes=colours.classes(chunks, model.step),
        faded=faded(model.trace, model.pool, look, chunks),
        found=map_search_matches(chunks, model.trace.labels, look.search),
        shows_waste=colours.shows_waste and requested_bytes_known(model.trace.origin.details, model.pool),
        legend=look.legend,
        pixels=look.map_pixels,
    )
    # A browser mixes the colours of rectangles that share a pixel, and the mix can look like free.
    return visible, pieces <= EXACT_CHUNKS and not visible.rows_share_pixels


def image_panel(model: Model, look: Look, colours: Colouring) -> Panel:
    """The map as an image, without the slow parts: hover texts, names and outlines. See `region_panel`."""
    visible, _ = _visible_chunks(model, look, colours)
    image = map_traces.image(visible) if len(visible.chunks) else {"visible": False}
    nothing = np.empty(0, bool)
    visible = replace(
        visible, chunks=np.empty(0, CHUNK), classes=np.empty(0, np.uint8), faded=nothing, found=nothing
    )
    return _image_panel(visible, image, model.trace.labels, look)


def moving_map_panel(live_map: LiveMap, labels: Labels, look: Look) -> Panel:
    """The map of a running heap as a panel: an image, without hover texts and outlines; `map_window` is ignored."""
    rows, look = live_map.rows, replace(look, map_window=None)
    visible = VisibleChunks(
        chunks=np.empty(0, CHUNK),
        rows=rows,
        part=rows.part(None),
        divisor=live_map.divisor,
        theme=look.paints,
        colours=live_map.colours,
        classes=np.empty(0, np.uint8),
        faded=np.empty(0, bool),
        found=np.empty(0, bool),
        shows_waste=live_map.colours.shows_waste,
        legend=look.legend,
        pixels=look.map_pixels,
    )
    return _image_panel(visible, live_map.image(), labels, look)


def _image_panel(visible: VisibleChunks, image: Mapping[str, Any], labels: Labels, look: Look) -> Panel:
    """The map with this image, the fields of its trace that change; `visible` has no chunks."""
    empty, *others = map_traces.exact_traces(visible, labels)
    no_spans = np.empty(0, SPAN)
    traces = [
        {**empty, **image},
        *others,
        map_traces.gone(visible, no_spans),
        *request_marks(visible, None, labels),
        *map_traces.outlines(visible, no_spans, no_spans, no_spans),
        map_traces.hover_points(visible, labels, exact=True),
        map_traces.note(visible),
    ]
    return _region_map_panel(visible, traces, look, exact=False)


_BY_ADDRESS: Final = "addresses rise left to right, then down"
_BY_SIZE: Final = "many regions, the largest first"


def _region_map_panel(
    visible: VisibleChunks, traces: list[dict[str, Any]], look: Look, *, exact: bool
) -> Panel:
    rows, divisor = visible.rows, visible.divisor
    return Panel(
        name="region_map",
        title="Region map",
        caption=f"{_BY_SIZE if rows.are_by_size else _BY_ADDRESS}; widths to scale; "
        f"coloured by {COLOURINGS.get(visible.colours.name, visible.colours.name)}",
        definition=_DEFINITION,
        traces=traces,
        xaxis=_region_map_x_axis(rows, look, exact=exact),
        yaxis=_region_map_y_axis(rows, visible.part, look),
        x_unit=divisor,
    )


def chunk_at(model: Model, x: float, y: float, look: Look) -> np.void | None:
    """The chunk at `x`, `y` of the map drawn with `look`, as a CHUNK record; None if there is none.

    A click next to a chunk in use that is too narrow to hit selects that chunk.

    Args:
        model: the heap at the step that is shown.
        x: in the units of the panel's x axis.
        y: in rows.
        look: that of the map.
    """
    chunks, rows = model.chunks(), rows_of(model)
    span = _map_screen_bytes(rows, look)
    offset, row = x * axis_unit(span)[0], int(np.floor(y))
    if not (0 <= row < len(rows) and 0 <= offset < rows.width):
        return None
    region = int(rows.region_of(np.array([row]))[0])
    place = offset + (row - int(rows.first[region])) * rows.width
    if place >= int(rows.size[region]):
        return None
    inside = rows.address[region] <= chunks["address"]
    mine = chunks[inside & (chunks["address"] < rows.address[region] + rows.size[region])]
    begin = (mine["address"] - rows.address[region]).astype(np.float64)
    at = int(np.searchsorted(begin, place, side="right")) - 1
    return mine[_map_clicked_index(begin, mine, at, place, _REACH * span)]  # type: ignore[no-any-return]


def _map_clicked_index(begin: Any, mine: Any, at: int, place: float, reach: float) -> int:
    """The index of the chunk that a click at `place`, inside chunk `at`, selects."""
    if mine["size"][at] < 2 * reach:
        return at
    low, high = np.searchsorted(begin, [place - 2 * reach, place + reach])
    near = np.arange(low, high)
    near = near[mine["in_use"][near] & (mine["size"][near] < 2 * reach)]
    gap = np.abs(begin[near] + mine["size"][near] / 2 - place)
    return int(near[np.argmin(gap)]) if len(near) and gap.min() <= reach else at


def _map_screen_bytes(rows: Rows, look: Look) -> float:
    """The width of the screen in bytes."""
    window = look.map_window
    if window is None:
        return float(rows.width) if len(rows) else 1.0
    return max(abs(window.bytes[1] - window.bytes[0]), 1.0)


def _region_map_x_axis(rows: Rows, look: Look, *, exact: bool) -> dict[str, Any]:
    span = _map_screen_bytes(rows, look)
    divisor, unit = axis_unit(span)
    low, high = (0.0, span) if look.map_window is None else look.map_window.bytes
    tick = 2.0 ** np.ceil(np.log2(span / 8))
    pixels = "; each pixel has the colour of one of its chunks, paler by what is free: zoom in"
    return {
        "title": {"text": f"offset within the row ({unit}){'' if exact else pixels}"},
        "range": [low / divisor, high / divisor],
        "minallowed": 0.0,
        "maxallowed": (float(rows.width) if len(rows) else 1.0) / divisor,
        "dtick": float(tick) / divisor,
        "tick0": 0,
        "tickformat": ",~r" if tick < divisor else ",d",
        "showgrid": False,
        "zeroline": False,
        "showticklabels": len(rows) > 0,
    }


def _region_map_y_axis(rows: Rows, part: VisibleRows, look: Look) -> dict[str, Any]:
    values, texts = _row_names(rows, part)
    end = float(max(len(rows), 1))
    top, bottom = (_TOP, end) if look.map_window is None else look.map_window.rows
    return {
        "range": [bottom, top],
        "minallowed": _TOP,
        "maxallowed": end,
        "tickvals": values,
        "ticktext": texts,
        "ticks": "",
        "ticklabelstandoff": 4,
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "scaleanchor": False,
        "title": {"text": "regions by size" if rows.are_by_size else "row: region, or offset in the region"},
    }


def _row_names(rows: Rows, part: VisibleRows) -> tuple[list[float], list[str]]:
    """Tick labels of the rows: the region at its first row, else the offset; fewer if there are many rows."""
    divisor, unit = axis_unit(rows.width)
    if rows.are_by_size and len(part) > _MOST_TICKS:
        return _region_map_size_ticks(rows, part)
    every = max(1, -(-len(part) // _MOST_TICKS))
    values, texts = [], []
    for row in range(part.first, part.first + len(part), every):
        region = int(rows.region_of(np.array([row]))[0])
        offset = (row - int(rows.first[region])) * rows.width
        values.append(row + 0.5)
        texts.append(f"region {rows.slot[region]}" if offset == 0 else f"+{offset // divisor:,} {unit}")
    return values, texts


def _region_map_size_ticks(rows: Rows, part: VisibleRows) -> tuple[list[float], list[str]]:
    """Tick labels of rows by size: how many regions have each size, beside the middle of their rows."""
    texts = [round_bytes(size) for size in rows.size[rows.order].tolist()]
    begins = [at for at, text in enumerate(texts) if at == 0 or text != texts[at - 1]]
    edges = np.append(rows.first[rows.order], len(rows))
    found = []
    for begin, end in zip(begins, [*begins[1:], len(texts)], strict=True):
        top, bottom = max(int(edges[begin]), part.first), min(int(edges[end]), part.stop)
        if top < bottom:
            found.append((bottom - top, (top + bottom) / 2, f"{end - begin:,} of<br>{texts[begin]}"))
    apart = 2 * len(part) / _MOST_TICKS  # a label has two lines
    kept: list[tuple[float, str]] = []
    for _, middle, text in sorted(found, reverse=True):
        beside_ticks = middle > part.stop - apart / 2  # of the x axis
        if not beside_ticks and all(abs(middle - other) >= apart for other, _ in kept):
            kept.append((middle, text))
    return [middle for middle, _ in kept], [text for _, text in kept]


def chunk_table(model: Model) -> pa.Table:
    """One row per chunk, by address; sizes in bytes."""
    chunks = model.chunks()
    in_use, size, requested = chunks["in_use"], chunks["size"], chunks["requested"]
    names = model.trace.labels
    return pa.table(
        {
            "address": chunks["address"],
            "size": size,
            "requested": requested,
            "waste": np.where(in_use, size - requested, np.uint64(0)),
            "state": pa.array(np.where(in_use, "in use", "free")),
            "bin": bin_numbers(size).astype(np.int8),
            "chunk": chunks["handle"],
            "region": chunks["region"],
            "label": pa.array([names.name(number) for number in chunks["label"].tolist()], pa.string()),
            "thread": chunks["thread"],
            "stream": chunks["stream"],
            "allocated_at_step": pa.array(chunks["born"] + np.uint64(1), mask=~in_use),
        }
    )


def map_panel(heap: HeapData, look: Look, live_map: LiveMap | None = None) -> Panel:
    """The map of the heap at its step.

    Args:
        heap: the heap; a dashboard lists holders beside the map.
        look: see `region_panel`.
        live_map: the map of a running heap, drawn instead, without what costs most.
    """
    if heap.brief:
        look = replace(look, legend=look.colour != "holder" or look.since is not None)
    if live_map is not None:
        return moving_map_panel(live_map, heap.trace.labels, look)
    return region_panel(heap.model, heap.last_event, look, heap.colours(look))


def _region_map_height(model: Model, look: Look) -> list[int]:
    return [int(np.clip(26 * len(rows_of(model).part(look.map_window)), 200, 620))]


def _map_selection_at(model: Model, _: HeapData, look: Look, x: float, y: float) -> Selected | None:
    chunk = chunk_at(model, x, y, look)
    return None if chunk is None else Selected.of(chunk)


VIEW: Final = View(
    name="region_map",
    title="region map",
    data=lambda heap, _look: heap.model,
    panels=lambda _model, heap, look: [map_panel(heap, look)],
    table=chunk_table,
    height=_region_map_height,
    at=_map_selection_at,
    windows=("map_window",),
    dashboard=DashboardPlace(None, height=246, below=24),
)
