"""The address-time map: addresses on the y axis, time on the x axis, each allocation a rectangle.

It shows how fragmentation grew. Up to `EXACT_LIFETIMES` allocations are drawn as exact rectangles, one trace per
class; more become an image, whose cost depends on its pixels.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.label_table import NO_LABEL
from bfcviz.events.origin import thread_text, unknown_of_chunks
from bfcviz.events.trace import Trace
from bfcviz.figures import timeline_parts
from bfcviz.figures.colouring import MOST_CLASSES, Colouring, colouring, faded, with_faded
from bfcviz.figures.map_cells import choose_classes
from bfcviz.figures.map_image import data_uri
from bfcviz.figures.panel import (
    HOVER_POINTS,
    LEAST_EDGED,
    TEXTS,
    Boxes,
    Floats,
    Panel,
    box_outlines,
    box_trace,
    edges_trace,
    fade_trace,
)
from bfcviz.figures.text import axis_unit, harmless
from bfcviz.figures.theme import Paint, Theme, rgb
from bfcviz.figures.timeline_parts import StepAxis, timeline_steps
from bfcviz.figures.view import DashboardPlace, HeapData, View, ViewTab, plot_pixels
from bfcviz.figures.view_options import PLAIN, Look, Selected, choice_of
from bfcviz.model import Model
from bfcviz.model.address_layout import NEVER, Layout, LayoutReader
from bfcviz.model.lifetimes import Ends, Found, LifetimeReader, Wanted
from bfcviz.model.occupancy import Classes, Occupancy, OccupancyGrid, OccupancyReader
from bfcviz.units import exact_bytes

EXACT_LIFETIMES: Final = 3000  # allocations drawn as exact rectangles, at most

PIXELS: Final = (1000, 320)  # pixels of the image: columns (at most, and more than half of it) and lines

COARSER: Final = (750, 240)  # the same if there are several classes, each with a grid of its own

Reader = TypeVar("Reader", LifetimeReader, OccupancyReader)


class AddressTimeReader:
    """What the address-time map reads of one heap: the layout, the lifetimes, the image and the ends of lifetimes.

    A window that differs from the last one only in its end, which moved on, costs only the events between. Another
    window, other classes, or a region at new addresses cost all events of the window again; other colours of the same
    classes cost none.

    Args:
        trace: the events.
        pool: the heap of the trace, by number.
        model: of this heap, to reach the first step sooner; it returns to its step.

    Attributes:
        trace, pool, model: the arguments.
        ends: finds the ends of lifetimes.
    """

    def __init__(self, trace: Trace, pool: int, model: Model) -> None:
        self.trace, self.pool, self.model = trace, pool, model
        self.ends = Ends(trace, pool)
        self._layouts = LayoutReader(trace, pool)
        self._lifetimes: tuple[object, LifetimeReader] | None = None
        self._image: tuple[object, OccupancyReader] | None = None
        self._positions: Layout | None = None
        self._by_position = False  # lifetimes were selected by their positions

    def layout(self) -> Layout:
        """The layout of all grants so far, for the address-time map."""
        layout = self._layouts.read()
        if self._positions is None or not layout.same_positions(self._positions):
            self._positions, self._image = layout, None
            if self._by_position:
                self._lifetimes = None
        return layout

    def lifetimes(self, steps: tuple[int, int], layout: Layout, look: Look) -> Found:
        """The lifetimes in the window of these steps and the look's addresses; none if they are too many."""
        start, stop = steps

        def begin() -> LifetimeReader:
            wanted = _touches_address_window(layout, look)
            return LifetimeReader(
                self.trace, self.pool, start, wanted=wanted, most=EXACT_LIFETIMES, model=self.model
            )

        self._by_position = look.addresses is not None
        self._lifetimes = continued(self._lifetimes, (start, look.addresses), stop, begin)
        return self._lifetimes[1].read_to(stop)

    def image(
        self,
        steps: tuple[int, int],
        positions: tuple[float, float],
        look: Look,
        layout: Layout,
        colours: Colouring,
    ) -> Occupancy:
        """The occupancy of the window of these steps and positions, by the classes of `colours`."""
        start, stop = steps
        count = len(colours.paints)
        columns, lines = COARSER if count > 1 else PIXELS

        def begin() -> OccupancyReader:
            grid = OccupancyGrid(start, stop, *positions, columns, lines, look.scale)
            classes = Classes(count, lambda lives: colours.classes(lives, stop)) if count > 1 else None
            return OccupancyReader(self.trace, self.pool, grid, layout, classes, self.model)

        key = (start, positions, look.axis, colours.key_at(stop))
        self._image = continued(self._image, key, stop, begin)
        return self._image[1].read_to(stop, layout)


def continued(
    known: tuple[object, Reader] | None, key: object, stop: int, begin: Callable[[], Reader]
) -> tuple[object, Reader]:
    """The known reader of an address-time map, if it is for the same window and before step `stop`; else a new one."""
    if known is not None and known[0] == key and known[1].stop <= stop:
        return known
    return key, begin()


def _touches_address_window(layout: Layout, look: Look) -> Wanted | None:
    """A test whether allocations overlap the window of positions; None if the window is everything."""
    if look.addresses is None:
        return None
    low, high = look.addresses

    def touching(address: NDArray[np.uint64], size: NDArray[np.uint64]) -> NDArray[np.bool_]:
        begin = layout.position(address)
        found: NDArray[np.bool_] = (begin < high) & (begin + size > low)
        return found

    return touching


# ------------------------------------------------------------------------------
# AddressTimeWindow: the allocations in a window of addresses and steps; the slow part of the map, made once.


@dataclass(frozen=True)
class AddressTimeWindow:
    """The allocations in a window of addresses and steps, ready to draw."""

    # trace, pool, look: what it was made for
    trace: Trace
    pool: int
    look: Look
    reader: AddressTimeReader = field(repr=False)  # reads the events, for this window and for the next one
    step_axis: StepAxis  # the x axis
    layout: Layout  # the positions of addresses on the y axis
    colours: Colouring  # the colouring of chunks in use
    steps: tuple[int, int]  # the first and last step
    positions: tuple[float, float]  # the ends of the window on the y axis, in bytes
    lifetimes: NDArray[np.void]  # LIFETIME records, ordered by `born`; not drawn if there is an `image`
    image_colours: Colouring  # the colouring of the image: `Colouring.for_images`, and faded ones
    # the number of labels that the trace had; those of a running recording may come after their events
    names: int
    image: Occupancy | None  # drawn instead of rectangles if there are too many lifetimes; else None
    # the traces of the panel that do not depend on the step
    static_traces: tuple[Mapping[str, Any], ...] = ()

    @property
    def divisor(self) -> int:
        """Bytes per unit of the map's address axis: the same for every window."""
        return axis_unit(self.layout.total)[0]

    @property
    def sides(self) -> tuple[float, float]:
        """The x of the first and the last step of an address-time map, in axis units."""
        return self.step_axis.position(self.steps[0]), self.step_axis.position(self.steps[1])

    def has_the_places_of(self, other: "AddressTimeWindow") -> bool:
        """Whether both show the same allocations at the same places; their colours may differ."""
        same = self.trace is other.trace and self.step_axis == other.step_axis and self.names == other.names
        here, there = ((each.pool, each.steps, each.positions, each.image is None) for each in (self, other))
        places = same and here == there and self.layout.same_positions(other.layout)
        return places and np.array_equal(self.lifetimes, other.lifetimes)

    def spans(self, records: NDArray[np.void]) -> tuple[Floats, Floats]:
        """Where lifetimes or regions begin and end on the x axis, clipped to the window."""
        born, died = (self.moments(records[end], records[f"{end}_time"]) for end in ("born", "died"))
        return born, died

    def moments(self, seqs: NDArray[np.uint64], times: NDArray[np.int64]) -> Floats:
        """The x of the states after these events, clipped to the window; NEVER is the window's end.

        Args:
            seqs: of the events.
            times: of the events, in nanoseconds; not used for those after the window.
        """
        left, right = self.sides
        x = np.where(seqs < self.steps[1], self.step_axis.positions(seqs + np.uint64(1), times), right)
        cut: Floats = np.clip(x, left, right)
        return cut

    def heights(self, records: NDArray[np.void]) -> tuple[Floats, Floats]:
        """Where lifetimes or regions begin and end on the y axis, clipped to the window."""
        low = self.layout.position(records["address"])
        ends = (low, low + records["size"].astype(np.float64))
        bottom, top = (np.clip(end, *self.positions) / self.divisor for end in ends)
        return bottom, top


def chunk_at_time(window: AddressTimeWindow, x: float, y: float) -> Selected | None:
    """The chunk, in use or free, at `x`, `y` of the address-time map; None outside of every region.

    Raises:
        TraceError: the events up to there contradict each other.
    """
    address = window.layout.address(y * window.divisor)
    if address is None:
        return None
    with window.reader.model.visiting(window.step_axis.step_at(x)) as model:
        chunks = model.chunks()
    at = int(np.searchsorted(chunks["address"], np.uint64(address), side="right")) - 1
    if at < 0 or address >= int(chunks["address"][at]) + int(chunks["size"][at]):
        return None
    return Selected.of(chunks[at])


# ------------------------------------------------------------------------------
# Hover texts of the address-time map: invisible points on an even grid, each with its own text.

COLUMNS: Final = 40
LINES: Final = 24

_ALONE: Final = 600  # extra points at most, for the largest lifetimes that no grid point lies in


def life_text(life: np.void, trace: Trace, pool: int) -> str:
    """The hover text of one allocation of a heap on the address-time map, a LIFETIME record."""
    born, died = int(life["born"]) + 1, int(life["died"]) + 1
    if life["died"] == NEVER:
        freed = "still in use at the end"
    else:
        freed = f"freed at step {died:,} after {died - born:,} steps"
    name = trace.labels.name(int(life["label"]))
    details = trace.origin.details
    told = {
        "requested": exact_bytes(int(life["requested"])),
        "thread": harmless(thread_text(details, int(life["thread"]))),
        "stream": f"{life['stream']}",
        "born": f"{born:,}",
    }
    told |= dict.fromkeys(unknown_of_chunks(details, pool), "unknown")
    return (
        f"<b>{harmless(name) if name else NO_LABEL}</b><br>"
        f"size {exact_bytes(int(life['size']))}, requested {told['requested']}<br>"
        f"address {int(life['address']):#x}, chunk {life['chunk']}<br>"
        f"thread {told['thread']}, stream {told['stream']}<br>"
        f"allocated at step {told['born']}, {freed}"
    )


def hover_points(window: AddressTimeWindow) -> dict[str, Any]:
    """The hover points of an address-time map as a plotly trace."""
    x, y, texts = _on_image(window, window.image) if window.image is not None else _on_boxes(window)
    return {**HOVER_POINTS, "x": x, "y": y, "hovertext": texts}


Points = tuple[Floats, Floats, list[str]]


def _grid_positions(window: AddressTimeWindow) -> tuple[Floats, Floats]:
    """The x of the columns and the y of the lines of an address-time grid, in axis units."""
    left, right = window.sides
    bottom, top = (end / window.divisor for end in window.positions)
    across = left + (np.arange(COLUMNS) + 0.5) * (right - left) / COLUMNS
    return across, bottom + (np.arange(LINES) + 0.5) * (top - bottom) / LINES


def _on_boxes(window: AddressTimeWindow) -> Points:
    """Each point of an address-time grid shows the lifetime it lies in; one without a point gets its own."""
    across, up = _grid_positions(window)
    left, right = window.spans(window.lifetimes)
    bottom, top = window.heights(window.lifetimes)
    order = np.argsort(bottom)
    x, y = [(left + right) / 2], [(bottom + top) / 2]
    source = [np.arange(len(left))]
    for place in across:
        alive = order[(left[order] <= place) & (place < right[order])]
        if not len(alive):
            continue
        below = np.maximum(np.searchsorted(bottom[alive], up, side="right") - 1, 0)
        hit = (bottom[alive[below]] <= up) & (up < top[alive[below]])
        x.append(np.full(int(hit.sum()), place))
        y.append(up[hit])
        source.append(alive[below[hit]])
    which = np.concatenate(source)
    # A lifetime with a grid point needs no point at its centre.
    missed = np.flatnonzero(~np.isin(source[0], which[len(left) :]))
    missed = missed[np.argsort(-((right - left) * (top - bottom))[missed], kind="stable")][:_ALONE]
    needed = np.append(missed, np.arange(len(left), len(which)))
    shown_lives = which[needed].tolist()
    texts = {
        number: life_text(window.lifetimes[number], window.trace, window.pool) for number in set(shown_lives)
    }
    shown = [texts[number] for number in shown_lives]
    return np.concatenate(x)[needed], np.concatenate(y)[needed], shown


def _on_image(window: AddressTimeWindow, image: Occupancy) -> Points:
    """Each hover point of an address-time image shows its address, and the share of its pixel in use."""
    across, up = _grid_positions(window)
    grid = image.grid
    column = np.minimum((across - window.sides[0]) * window.step_axis.unit / grid.width, grid.columns - 1)
    line = (np.arange(LINES) + 0.5) * grid.lines / LINES
    cells = np.ix_(line.astype(np.intp), column.astype(np.intp))
    pool = image.pool[cells].ravel()
    share = 100 * image.in_use[cells].ravel() / np.maximum(pool, 1e-9)
    x, y = (found.ravel() for found in np.meshgrid(across, up))
    there = np.flatnonzero(pool > 0)
    addresses = [window.layout.address(place * window.divisor) for place in y[there].tolist()]
    texts = [
        f"{full:.0f} % in use in this pixel<br>{exact_bytes(int(grid.cell))} around address {address or 0:#x}"
        for full, address in zip(share[there].tolist(), addresses, strict=True)
    ]
    return x[there], y[there], texts


# ------------------------------------------------------------------------------
# The address-time map: addresses on the y axis, time on the x axis, each allocation a rectangle.

_HOVER: Final = -2  # the place of the hover points in `static_traces`

_EDGE: Final = 0.4  # pixels of the line around an allocation

_FRAME: Final = 1.0  # the same, around a region

_FAINTEST: Final = 0.25  # the least share of a pixel that memory in use gets, if there was any


def address_time_window(  # noqa: PLR0913  the caller passes what it already has
    trace: Trace,
    pool: int = 0,
    look: Look = PLAIN,
    colours: Colouring | None = None,
    *,
    model: Model | None = None,
    before: AddressTimeWindow | None = None,
) -> AddressTimeWindow:
    """Do the slow part of the address-time map: read the window of `look` (its `steps` and `addresses`).

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
    theme, step_axis = look.paints, StepAxis.of(trace, look.axis)
    known = before is not None and before.trace is trace and before.pool == pool
    reader = (
        before.reader if known and before else AddressTimeReader(trace, pool, model or Model(trace, pool))
    )
    layout = reader.layout()
    colours = colours or colouring(trace, pool, look.colour, look.paints)
    steps = timeline_steps(step_axis, look)
    positions = look.addresses or (0.0, float(max(layout.total, 1)))
    found = reader.lifetimes(steps, layout, look)
    image_colours = with_faded(colours.for_images, trace, pool, look)
    too_many = found.seen > EXACT_LIFETIMES
    window = AddressTimeWindow(
        trace=trace,
        pool=pool,
        look=look,
        reader=reader,
        step_axis=step_axis,
        layout=layout,
        colours=colours,
        steps=steps,
        positions=positions,
        lifetimes=found.lifetimes,
        image_colours=image_colours,
        names=len(trace.labels),
        image=reader.image(steps, positions, look, layout, image_colours) if too_many else None,
    )
    if before is not None and window.has_the_places_of(before):
        hover = before.static_traces[_HOVER]  # other colours need no new texts
    else:
        hover = hover_points(window)
    static_traces = (
        _address_time_image(window, theme),
        box_trace("free", _region_lifetime_boxes(window, drawn=window.image is None), theme.free, 0.0),
        *_lifetime_class_traces(window),
        _lifetime_edges(window, theme),
        _faded_lifetimes_trace(window, theme),
        _region_lifetime_frames(window, theme),
        hover,
        _address_time_note(window, theme),
    )
    return replace(window, static_traces=static_traces)


def address_time_panel(window: AddressTimeWindow, step: int | None, look: Look) -> Panel:
    """The address-time map as a panel; only its last two traces depend on `step` and on the selection."""
    theme = look.paints
    unit = axis_unit(window.layout.total)[1]
    bottom, top = (end / window.divisor for end in window.positions)
    caption = "each allocation is a rectangle: its addresses by its steps in use; gaps are free"
    if window.image is not None:
        caption += "; a pixel has the colour of one of its holders, paler by what is free"
    return Panel(
        name="address_time",
        listed_elsewhere=True,
        title="Address-time map",
        caption=caption,
        traces=[
            *window.static_traces,
            box_outlines("selected", _selected_lifetime_box(window, look), theme.selection, 2.5)
            | {"showlegend": False},
            timeline_parts.step_line(window.step_axis, step, top, theme),
        ],
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
    """The table of an address-time map: a row per allocation, by allocating step; of an image, a row per pixel."""
    if window.image is not None:
        return _address_time_pixel_table(window.image)
    table = life_table(window.lifetimes, window.trace, window.pool)
    position = pa.array(window.layout.position(window.lifetimes["address"]))
    return table.add_column(1, "position", position)


def life_table(lives: NDArray[np.void], trace: Trace, pool: int) -> pa.Table:
    """One row per allocation, LIFETIME records; null for what is not known.

    `freed_at_step` is also null for those still in use at the end.
    """
    gone = lives["died"] != NEVER
    names = trace.labels
    found = pa.table(
        {
            "address": lives["address"],
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
    return without_unknown(found, unknown_of_chunks(trace.origin.details, pool))


def without_unknown(table: pa.Table, unknown: Collection[str]) -> pa.Table:
    """A table of chunks or allocations with null for the numbers of `unknown_of_chunks`."""
    for name in (*unknown, *(["allocated_at_step"] if "born" in unknown else ())):
        if name in table.column_names:
            at = table.column_names.index(name)
            table = table.set_column(at, name, pa.nulls(len(table), table.schema.field(name).type))
    return table


def _address_time_pixel_table(image: Occupancy) -> pa.Table:
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


def _address_time_image(window: AddressTimeWindow, theme: Theme) -> dict[str, Any]:
    image, (left, right) = window.image, window.sides
    bottom, top = (end / window.divisor for end in window.positions)
    paints = window.image_colours.paints
    pixels = np.zeros((1, 1, 4), np.uint8) if image is None else _occupancy_pixels(image, paints, theme)
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


def _occupancy_pixels(image: Occupancy, paints: Sequence[Paint], theme: Theme) -> NDArray[np.uint8]:
    """RGBA pixels of an address-time image, the lowest address first; transparent where no region was.

    A pixel has the colour of one class, paler by what is free.
    """
    used = np.minimum(image.in_use / np.maximum(image.pool, 1e-9), 1.0)
    # A single small chunk can keep gigabytes from being freed: it stays visible.
    wanted = np.where(used > 1e-6, np.clip(used, _FAINTEST, 1.0), 0.0)
    colours = np.array([rgb(paint.fill) for paint in paints], np.float64)
    free = np.array(rgb(theme.free.fill), np.float64)
    chosen = np.empty(used.shape, np.uint8)
    choose_classes(image.by_class, chosen)
    pixels = np.zeros((*used.shape, 4), np.uint8)
    pixels[..., :3] = np.rint(free + (colours[chosen] - free) * wanted[..., None])
    pixels[..., 3] = np.rint(255 * np.clip(image.pool / image.grid.cell, 0.0, 1.0))
    return pixels


def _region_lifetime_boxes(window: AddressTimeWindow, *, drawn: bool = True) -> Boxes:
    grants = window.layout.grants if drawn else window.layout.grants[:0]
    return Boxes(*window.spans(grants), *window.heights(grants)).with_area()


def _lifetime_class_traces(window: AddressTimeWindow) -> list[dict[str, Any]]:
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
        trace = box_trace("", boxes, colour.edgeless, _EDGE)
        drawn = len(boxes) > 0 or _image_shows(window, colour)
        traces.append(trace | window.colours.legend(number, shown=window.look.legend, drawn=drawn))
    return traces


def _image_shows(window: AddressTimeWindow, paint: Paint) -> bool:
    """Whether the image has memory of the classes of this paint, faded or not."""
    paints = window.colours.for_images.paints
    return window.image is not None and any(
        bool(window.image.by_class[number :: len(paints)].any())
        for number, each in enumerate(paints)
        if each == paint
    )


def _lifetime_edges(window: AddressTimeWindow, theme: Theme) -> dict[str, Any]:
    """Lines around the rectangles that are much larger than a line."""
    boxes = Boxes(*window.spans(window.lifetimes), *window.heights(window.lifetimes))
    return edges_trace(*_edged_boxes(window, boxes, _EDGE).corners(), theme, _EDGE)


def _edged_boxes(window: AddressTimeWindow, boxes: Boxes, line: float) -> Boxes:
    """The rectangles of an address-time map that have room for lines, so many pixels wide, at their edges."""
    (left, right), (low, high) = window.sides, window.positions
    width, height = window.look.map_pixels
    least = LEAST_EDGED * line
    return boxes.with_area().at_least(
        least / width * (right - left), least / height * (high - low) / window.divisor
    )


def _faded_lifetimes_trace(window: AddressTimeWindow, theme: Theme) -> dict[str, Any]:
    """The paper's colour over the faded rectangles; an image has faded colours."""
    lives = window.lifetimes
    pale = lives[faded(window.trace, window.pool, window.look, lives)]
    x, y = Boxes(*window.spans(pale), *window.heights(pale)).with_area().corners()
    return fade_trace(x, y, theme)


def _region_lifetime_frames(window: AddressTimeWindow, theme: Theme) -> dict[str, Any]:
    boxes = _edged_boxes(window, _region_lifetime_boxes(window), _FRAME)
    return box_outlines("region", boxes, theme.pool.line, _FRAME)


def _address_time_note(window: AddressTimeWindow, theme: Theme) -> dict[str, Any]:
    empty = window.layout.total == 0
    return {
        **TEXTS,
        "x": np.full(int(empty), sum(window.step_axis.range(window.look.steps)) / 2),
        "y": np.full(int(empty), sum(window.positions) / window.divisor / 2),
        "text": ["no region in this trace"] if empty else [],
        "textfont": {"color": theme.muted, "size": 13},
    }


def _selected_lifetime_box(window: AddressTimeWindow, look: Look) -> Boxes:
    born = None if look.selected is None else look.selected.born
    if born is None or not window.trace.first <= born < window.step_axis.last:
        return Boxes.none()
    event = window.trace.read(born, born + 1)
    end = window.reader.ends.end_of(born, window.steps[1])
    freed = window.trace.read(end, end + 1) if end != NEVER else event
    times = np.append(event["time"], freed["time"])
    ends = window.moments(np.array([born, end], np.uint64), times)
    return Boxes(ends[:1], ends[1:], *window.heights(event)).with_area()


def _address_time_data(heap: HeapData, look: Look) -> AddressTimeWindow:
    """The window that the address-time map shows; the last one, if nothing of it has changed."""
    colours, model, before = heap.colours(look), heap.model, heap.previous("address_time")
    look = replace(look, legend=look.legend and not heap.brief, map_pixels=plot_pixels(VIEW, heap, look))
    place = (look.axis, look.steps, look.addresses, look.map_pixels)
    key = (len(heap.trace), *place, colours, choice_of(look))

    def make() -> AddressTimeWindow:
        return address_time_window(heap.trace, model.pool, look, colours=colours, model=model, before=before)

    return heap.cached("address_time", key, make)


VIEW: Final = View(
    name="address_time",
    title="address-time map",
    data=_address_time_data,
    panels=lambda window, heap, look: [address_time_panel(window, heap.step, look)],
    table=lifetime_table,
    height=420,
    at=lambda window, _heap, _look, x, y: chunk_at_time(window, x, y),
    windows=("steps", "addresses"),
    dashboard=DashboardPlace(ViewTab("address_time", "address-time"), height=220),
)
