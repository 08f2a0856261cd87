"""The address-time map: addresses on the y axis, time on the x axis, each allocation a rectangle.

It shows how fragmentation grew. Up to `EXACT_LIFETIMES` allocations are drawn as exact rectangles, one trace per
class; more become an image, whose cost depends on its pixels.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.address_time.hover import hover_points
from bfcviz.figures.address_time.window import AddressTimeWindow, chunk_at_time, read_window
from bfcviz.figures.panel import Panel, Picture, single
from bfcviz.figures.style.boxes import Boxes, box_outlines, box_trace
from bfcviz.figures.style.colour_math import rgb
from bfcviz.figures.style.colouring import MOST_CLASSES, Colouring, colouring_at
from bfcviz.figures.style.fading import fade_trace, faded
from bfcviz.figures.style.png import data_uri
from bfcviz.figures.style.text import axis_unit
from bfcviz.figures.style.theme import Paint, Theme
from bfcviz.figures.style.view_options import PLAIN, Look
from bfcviz.figures.timelines import axis as timelines
from bfcviz.model import Model
from bfcviz.model.lifetimes.address_layout import NEVER
from bfcviz.model.lifetimes.occupancy_grid import Occupancy

__all__ = ["AddressTimeWindow", "address_time", "address_time_panel", "address_time_window", "chunk_at_time"]

_MOST_FRAMES: Final = 400  # more frames cannot be told apart

_HOVER: Final = -2  # the place of the hover points in `static_traces`

_FAINTEST: Final = 0.25  # the least share of a pixel that memory in use gets, if there was any


def address_time(trace: Trace, step: int | None = None, *, pool: int = 0, look: Look = PLAIN) -> Picture:
    """The addresses in use over the trace.

    Args:
        trace: the events.
        step: the step that a vertical line marks, whose holders get the colours; None: no line.
        pool: the heap of the trace, by number.
        look: theme and colouring, the x axis (step or time), and the steps and positions to draw.

    Returns:
        The figure; its table has one row per allocation, or one row per pixel if it is drawn as an image.
    """
    colours = colouring_at(trace, pool, look.colour, look.paints, step)
    window = address_time_window(trace, pool, look, colours)
    picture = single(address_time_panel(window, step, look), 420, look.paints)
    return picture.with_table(lifetime_table(window) if window.image is None else _pixel_table(window.image))


def address_time_window(  # noqa: PLR0913  the caller passes what it already has
    trace: Trace,
    pool: int = 0,
    look: Look = PLAIN,
    colours: Colouring | None = None,
    *,
    model: Model | None = None,
    before: AddressTimeWindow | None = None,
) -> AddressTimeWindow:
    """Do the slow part of the map: read the window of `look` (its `steps` and `addresses`).

    Args:
        trace: the events.
        pool: the heap of the trace, by number.
        look: theme, colouring, axis and window; a change of anything else needs no new window.
        colours: the colouring of `look`, if the caller has it.
        model: a model of this trace and pool, whose snapshots speed up the search; returns to its step.
        before: the last window of this trace; only events that it did not read are read.

    Raises:
        TraceError: the events up to the window contradict each other.
    """
    window, theme = read_window(trace, pool, look, colours, model=model, before=before), look.paints
    if before is not None and window.has_the_places_of(before):
        hover = before.static_traces[_HOVER]  # other colours need no new texts
    else:
        hover = hover_points(window)
    static_traces = (
        _image(window, theme),
        box_trace("free", _grants(window, drawn=window.image is None), theme.free, 0.0),
        *_classes(window),
        _fade(window, theme),
        _frames(window, theme),
        hover,
        _note(window, theme),
    )
    return replace(window, static_traces=static_traces)


def address_time_panel(window: AddressTimeWindow, step: int | None, look: Look) -> Panel:
    """The map as a panel; only its last two traces depend on `step` and on the selection.

    Args:
        window: made for the theme, colouring, axis and window of `look`.
        step: the step that a vertical line marks; None: no line.
        look: the selected chunk.
    """
    theme = look.paints
    unit = axis_unit(window.layout.total)[1]
    bottom, top = (end / window.divisor for end in window.positions)
    traces = [
        *window.static_traces,
        _selected(window, look, theme),
        timelines.step_line(np.nan if step is None else window.step_axis.position(step), theme, top),
    ]
    mixed = "" if window.image is None else "; each pixel mixes the colours of its bytes and steps"
    return Panel(
        name="address_time",
        title="Address-time map",
        caption=f"each allocation is a rectangle: its addresses by its steps in use; gaps are free{mixed}",
        traces=traces,
        xaxis=window.step_axis.xaxis(look.steps),
        yaxis={
            "title": {"text": f"position in the pool ({unit})"},
            "range": [bottom, top],
            "minallowed": 0.0,
            "maxallowed": max(window.layout.total / window.divisor, top),
            "showgrid": False,
            "zeroline": False,
            "scaleanchor": False,
            "tickformat": ",~g",
        },
        x_unit=window.step_axis.unit,
        y_unit=float(window.divisor),
        definition=(
            "position: bytes from the lowest address of the pool,<br>"
            " gaps between regions left out.<br>"
            "Free memory in many thin stripes is fragmented:<br> a large request fits into none of them."
        ),
    )


def lifetime_table(window: AddressTimeWindow) -> pa.Table:
    """One row per allocation, by allocating step; `freed_at_step` is null if it is still in use at the end."""
    lives = window.lifetimes
    names = window.trace.labels
    gone = lives["died"] != NEVER
    return pa.table(
        {
            "address": lives["address"],
            "position": window.layout.position(lives["address"]),
            "size": lives["size"],
            "requested": lives["requested"],
            "allocated_at_step": lives["born"] + np.uint64(1),
            "freed_at_step": pa.array(np.where(gone, lives["died"], 0) + np.uint64(1), mask=~gone),
            "label": pa.array([names.name(number) for number in lives["label"].tolist()], pa.string()),
            "chunk": lives["chunk"],
            "region": lives["region"],
            "thread": lives["thread"],
            "stream": lives["stream"],
        }
    )


def _pixel_table(image: Occupancy) -> pa.Table:
    grid = image.grid
    line, column = np.divmod(np.arange(grid.lines * grid.columns), grid.columns)
    return pa.table(
        {
            "column": column,
            "position": grid.low + line * grid.cell,
            "bytes_in_use": image.in_use.ravel(),
            "pool_bytes": image.pool.ravel(),
        }
    )


def _image(window: AddressTimeWindow, theme: Theme) -> dict[str, Any]:
    image, (left, right) = window.image, window.sides
    bottom, top = (end / window.divisor for end in window.positions)
    paints = window.image_colours.paints
    pixels = np.zeros((1, 1, 4), np.uint8) if image is None else paint(image, paints, theme)
    width = max(right - left, 1e-9) if image is None else image.grid.width / window.step_axis.unit
    dx, dy = width, (top - bottom) / pixels.shape[0]
    return {
        "type": "image",
        "source": data_uri(pixels),
        "visible": image is not None,
        "hoverinfo": "skip",
        "zsmooth": False,
        "dx": dx,
        "dy": dy,
        "x0": left + dx / 2,  # the centre of the first pixel
        "y0": bottom + dy / 2,
    }


def paint(image: Occupancy, paints: Sequence[Paint], theme: Theme) -> NDArray[np.uint8]:
    """RGBA pixels (lines, columns, 4), the lowest address first; transparent where no region was."""
    pool = np.maximum(image.pool, 1e-9)
    shares = np.minimum(image.by_class / pool, 1.0)
    used = shares.sum(axis=0)
    # A single small chunk can keep gigabytes from being freed: it stays visible.
    wanted = np.where(used > 1e-6, np.clip(used, _FAINTEST, 1.0), 0.0)
    shares *= wanted / np.maximum(used, 1e-9)
    colours = np.array([rgb(paint.fill) for paint in paints], np.float64)
    free = np.array(rgb(theme.free.fill), np.float64)
    pixels = np.zeros((*used.shape, 4), np.uint8)
    mixed = (colours - free).T @ shares.reshape(len(colours), -1) + free[:, None]
    pixels[..., :3] = np.rint(mixed.T).reshape(*used.shape, 3)
    pixels[..., 3] = np.rint(255 * np.clip(image.pool / image.grid.cell, 0.0, 1.0))
    return pixels


def _grants(window: AddressTimeWindow, *, drawn: bool = True) -> Boxes:
    grants = window.layout.grants if drawn else window.layout.grants[:0]
    return Boxes(*window.spans(grants), *window.heights(grants)).with_area()


def _classes(window: AddressTimeWindow) -> list[dict[str, Any]]:
    """One trace of rectangles per class; over an image it is empty and only names the class."""
    lives = window.lifetimes
    which = window.colours.classes(lives, window.steps[1])
    across, up = window.spans(lives), window.heights(lives)
    traces = []
    for number in range(MOST_CLASSES):
        mine = which == number
        boxes = Boxes(across[0][mine], across[1][mine], up[0][mine], up[1][mine]).with_area()
        named = number < len(window.colours.names)
        colour = window.colours.paints[number] if named else Paint("#000000", "#000000")
        trace = box_trace("", boxes, colour, 0.4)
        traces.append(trace | window.colours.legend(number, shown=window.look.legend))
    return traces


def _fade(window: AddressTimeWindow, theme: Theme) -> dict[str, Any]:
    """The paper's colour over the faded rectangles; an image has faded colours."""
    lives = window.lifetimes
    pale = lives[faded(window.trace, window.pool, window.look, lives)]
    x, y = Boxes(*window.spans(pale), *window.heights(pale)).with_area().corners()
    return fade_trace(x, y, theme)


def _frames(window: AddressTimeWindow, theme: Theme) -> dict[str, Any]:
    boxes = _grants(window, drawn=len(window.layout.grants) <= _MOST_FRAMES)
    return box_outlines("region", boxes, theme.pool.line, 1)


def _note(window: AddressTimeWindow, theme: Theme) -> dict[str, Any]:
    empty = window.layout.total == 0
    return {
        "type": "scatter",
        "mode": "text",
        "x": np.full(int(empty), sum(window.step_axis.range(window.look.steps)) / 2),
        "y": np.full(int(empty), sum(window.positions) / window.divisor / 2),
        "text": ["no region in this trace"] if empty else [],
        "textfont": {"color": theme.muted, "size": 13},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _selected(window: AddressTimeWindow, look: Look, theme: Theme) -> dict[str, Any]:
    """The outline of the selected allocation."""
    outline = box_outlines("selected", _selected_box(window, look), theme.selection, 2.5)
    return outline | {"showlegend": False}


def _selected_box(window: AddressTimeWindow, look: Look) -> Boxes:
    born = None if look.selected is None else look.selected.born
    if born is None or not window.trace.first <= born < window.step_axis.last:
        return Boxes.none()
    event = window.trace.read(born, born + 1)
    end = window.reader.ends.end_of(born, window.steps[1])
    freed = window.trace.read(end, end + 1) if end != NEVER else event
    times = np.append(event["time"], freed["time"])
    ends = window.moments(np.array([born, end], np.uint64), times)
    return Boxes(ends[:1], ends[1:], *window.heights(event)).with_area()
