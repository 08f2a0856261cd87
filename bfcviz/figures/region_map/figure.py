"""The region map: every region a row, every chunk at its address, coloured by its state or class.

Up to `EXACT_CHUNKS` pieces of chunks on screen are drawn as exact rectangles, one trace per class; more become an
image, whose cost depends on its pixels.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.events.schema import Events, bin_numbers
from bfcviz.figures.panel import Panel, Picture, single
from bfcviz.figures.region_map import markers
from bfcviz.figures.region_map import traces as map_traces
from bfcviz.figures.region_map.highlights import SPAN, selected, touched
from bfcviz.figures.region_map.live_map import LiveMap
from bfcviz.figures.region_map.matches import matches
from bfcviz.figures.region_map.request_marks import fit_caption, request_marks
from bfcviz.figures.region_map.rows import Rows, VisibleRows, lay_out
from bfcviz.figures.region_map.visible_chunks import VisibleChunks
from bfcviz.figures.style.colouring import COLOURINGS, Colouring, colouring
from bfcviz.figures.style.fading import faded
from bfcviz.figures.style.text import axis_unit
from bfcviz.figures.style.view_options import PLAIN, Look
from bfcviz.model import Model
from bfcviz.model.explain.fit import fit_of, request_at
from bfcviz.model.state.views import CHUNK

EXACT_CHUNKS: Final = 3000
"""Pieces of chunks on screen that are drawn as exact rectangles, at most."""

_MOST_TICKS = 20
_TOP = -0.2  # rows: the upper end of the y axis
_REACH = 0.003  # of the screen's width: a click this close to a narrow chunk selects it

_DEFINITION = (
    "region: one grant from the sub-allocator; a long one continues in the next row.<br>"
    "chunk: wholly free or wholly in use.<br>waste: its size - its requested bytes."
)


def region_map(model: Model, highlight: Events | None = None, look: Look = PLAIN) -> Picture:
    """The heap at the model's step.

    Args:
        model: the heap; it stays at its step.
        highlight: events whose chunks are outlined, such as the last one applied.
        look: theme and colouring, and the part to draw.

    Returns:
        The figure; its table has one row per chunk.
    """
    rows = lay_out(model.regions())
    height = int(np.clip(26 * len(rows.part(look.map_window)), 200, 620))
    look = replace(look, map_pixels=(look.map_pixels[0], height))
    panel = region_panel(model, highlight, look)
    return single(panel, height, look.paints).with_table(chunk_table(model))


def region_panel(
    model: Model, highlight: Events | None, look: Look, colours: Colouring | None = None
) -> Panel:
    """The map as a panel; it always has the same traces in the same order, some of them empty.

    Args:
        model: the heap; it stays at its step.
        highlight: events whose chunks are outlined.
        look: theme and colouring, the part to draw, the selected chunk, and `wanted`, the bytes of a request whose
            places are marked.
        colours: the colouring of `look` for this heap; None: it is made here.
    """
    chunks, regions = model.chunks(), model.regions()
    colours = colours or colouring(model.trace, model.pool, look.colour, look.paints, chunks)
    rows = lay_out(regions)
    part = rows.part(look.map_window)
    indices, pieces = rows.chunks_in(chunks["address"], part)
    exact = pieces <= EXACT_CHUNKS
    if len(indices) < len(chunks):
        chunks = chunks[indices]
    divisor = axis_unit(_span(rows, look))[0]
    visible = VisibleChunks(
        chunks=chunks,
        rows=rows,
        part=part,
        divisor=divisor,
        theme=look.paints,
        colours=colours,
        classes=colours.classes(chunks, model.step),
        faded=faded(model.trace, model.pool, look, chunks),
        legend=look.legend,
        pixels=look.map_pixels,
    )
    chosen = selected(model.chunks(), look.selected)
    found = matches(chunks, model.trace.labels, look.search)
    shape = map_traces.exact_traces if exact else map_traces.image_traces
    request = request_at(model, look.wanted)
    answer = fit_of(model, request.size) if request is not None else None
    traces = [
        *shape(visible, model.trace.labels),
        *request_marks(visible, answer, model.trace.labels),
        *markers.outlines(visible, touched(highlight, model.chunks(), regions), chosen, found),
        map_traces.hover_points(visible, model.trace.labels, model.step, exact=exact),
        map_traces.note(visible),
    ]
    panel = _panel(visible, traces, look, exact=exact)
    return panel if answer is None else replace(panel, caption=fit_caption(answer, model.trace.labels))


def live_map_panel(live_map: LiveMap, labels: Labels, look: Look) -> Panel:
    """The whole map of a running heap as an image, without the slow parts: hover texts and outlines.

    Args:
        live_map: the map, up to date.
        labels: the labels of the heap's trace.
        look: theme and colouring; its `map_window` is ignored.
    """
    rows, look = live_map.rows, replace(look, map_window=None)
    no_chunks, no_classes = np.empty(0, CHUNK), np.empty(0, np.uint8)
    visible = VisibleChunks(
        chunks=no_chunks,
        rows=rows,
        part=rows.part(None),
        divisor=live_map.divisor,
        theme=look.paints,
        colours=live_map.colours,
        classes=no_classes,
        faded=np.empty(0, bool),
        legend=look.legend,
        pixels=look.map_pixels,
    )
    image, *others = map_traces.exact_traces(visible, labels)
    no_spans = np.empty(0, SPAN)
    traces = [
        {**image, **live_map.image()},
        *others,
        *request_marks(visible, None, labels),
        *markers.outlines(visible, no_spans, no_spans, no_spans),
        map_traces.hover_points(visible, labels, live_map.step, exact=True),
        map_traces.note(visible),
    ]
    return _panel(visible, traces, look, exact=False)


def _panel(visible: VisibleChunks, traces: list[dict[str, Any]], look: Look, *, exact: bool) -> Panel:
    rows, divisor = visible.rows, visible.divisor
    return Panel(
        name="region_map",
        title="Region map",
        caption=f"addresses rise left to right, then down; widths to scale; "
        f"coloured by {COLOURINGS[visible.colours.name]}",
        definition=_DEFINITION,
        traces=traces,
        xaxis=_xaxis(rows, look, exact=exact),
        yaxis=_yaxis(rows, visible.part, look),
        x_unit=divisor,
    )


def chunk_at(model: Model, x: float, y: float, look: Look) -> np.void | None:
    """The chunk at `x`, `y` of the map drawn with `look`, as a CHUNK record; None if there is none.

    A click next to a chunk in use that is too narrow to hit selects that chunk.

    Args:
        model: the heap at the step that is shown.
        x: in the units of the panel's x axis.
        y: in rows.
        look: the look of the map.
    """
    chunks, rows = model.chunks(), lay_out(model.regions())
    span = _span(rows, look)
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
    return mine[_clicked_index(begin, mine, at, place, _REACH * span)]  # type: ignore[no-any-return]


def _clicked_index(begin: Any, mine: Any, at: int, place: float, reach: float) -> int:
    """The index of the chunk that a click at `place`, inside chunk `at`, selects."""
    if mine["size"][at] < 2 * reach:
        return at
    low, high = np.searchsorted(begin, [place - 2 * reach, place + reach])
    near = np.arange(low, high)
    near = near[mine["in_use"][near] & (mine["size"][near] < 2 * reach)]
    gap = np.abs(begin[near] + mine["size"][near] / 2 - place)
    return int(near[np.argmin(gap)]) if len(near) and gap.min() <= reach else at


def _span(rows: Rows, look: Look) -> float:
    """The width of the screen in bytes."""
    window = look.map_window
    if window is None:
        return float(rows.width) if len(rows) else 1.0
    return max(abs(window.bytes[1] - window.bytes[0]), 1.0)


def _xaxis(rows: Rows, look: Look, *, exact: bool) -> dict[str, Any]:
    divisor, unit = axis_unit(_span(rows, look))
    low, high = (0.0, _span(rows, look)) if look.map_window is None else look.map_window.bytes
    mixed = "" if exact else "; each pixel mixes the colours of its bytes: zoom in for exact chunks"
    tick = 2.0 ** np.ceil(np.log2(_span(rows, look) / 8))
    return {
        "title": {"text": f"offset within the row ({unit}){mixed}"},
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


def _yaxis(rows: Rows, part: VisibleRows, look: Look) -> dict[str, Any]:
    values, texts = _row_names(rows, part)
    top, bottom = (_TOP, float(max(len(rows), 1))) if look.map_window is None else look.map_window.rows
    return {
        "range": [bottom, top],
        "minallowed": _TOP,
        "maxallowed": float(max(len(rows), 1)),
        "tickvals": values,
        "ticktext": texts,
        "ticks": "",
        "ticklabelstandoff": 4,
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "scaleanchor": False,
        "title": {"text": "row: region, or offset in the region"},
    }


def _row_names(rows: Rows, part: VisibleRows) -> tuple[list[float], list[str]]:
    """Tick labels of the rows: the region at its first row, else the offset; fewer if there are many rows."""
    divisor, unit = axis_unit(rows.width)
    every = max(1, -(-len(part) // _MOST_TICKS))
    values, texts = [], []
    for row in range(part.first, part.first + len(part), every):
        region = int(rows.region_of(np.array([row]))[0])
        offset = (row - int(rows.first[region])) * rows.width
        values.append(row + 0.5)
        texts.append(f"region {rows.slot[region]}" if offset == 0 else f"+{offset // divisor:,} {unit}")
    return values, texts


def chunk_table(model: Model) -> pa.Table:
    """One row per chunk, by address; sizes in bytes."""
    chunks = model.chunks()
    in_use: NDArray[np.bool_] = chunks["in_use"]
    size: NDArray[np.uint64] = chunks["size"]
    requested: NDArray[np.uint64] = chunks["requested"]
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
