"""The active-memory timeline: bytes in use over time, with the largest allocations stacked as bands.

A band runs from the step that allocated its memory to the step that freed it; the bands above it drop when it ends.
Areas above the bands show all smaller allocations, one area for each colour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.active_memory.bands import Bands, bands_of, hover_points, names_on_bands
from bfcviz.figures.active_memory.smaller import ClassReader, HeldByClass, area_traces, fills_of
from bfcviz.figures.address_time.window import window_of
from bfcviz.figures.panel import Panel, Picture, single
from bfcviz.figures.style.colouring import MOST_CLASSES, Colouring, colouring, colouring_at
from bfcviz.figures.style.fading import fade_trace, faded
from bfcviz.figures.style.text import axis_unit
from bfcviz.figures.style.theme import Paint, Theme
from bfcviz.figures.style.view_options import PLAIN, Look, Selected
from bfcviz.figures.timelines import axis as timelines
from bfcviz.figures.timelines.axis import StepAxis
from bfcviz.model import Model, timeline
from bfcviz.model.lifetimes.address_layout import NEVER
from bfcviz.model.lifetimes.lifetimes import LifetimeReader

LARGEST: Final = 200
"""Allocations with a band of their own, at most."""

INSTEAD_OF_STATE: Final = "holder"
"""What bands are coloured by if chunks are coloured by state: every band is in use."""


@dataclass(frozen=True)
class ActiveMemoryWindow:
    """The allocations in a window of steps, ready to draw.

    Attributes:
        trace: the trace.
        pool: the heap of the trace, by number.
        look: the look it was made for.
        step_axis: the x axis.
        steps: the first and last step.
        bands: the largest allocations.
        others: the number of all other allocations.
        series: TIMELINE records: bytes in use of all allocations.
        colours: the colouring of the bands.
        reader: reads the allocations, for this window and for a later end of it.
        class_reader: reads the bytes of all allocations by class, likewise.
        by_class: those bytes; None: every allocation has a band.
        names: the number of labels that the trace had; those of a running recording may come after their events.
        static_traces: the traces of the panel that do not depend on the step.
    """

    trace: Trace
    pool: int
    look: Look
    step_axis: StepAxis
    steps: tuple[int, int]
    bands: Bands
    others: int
    series: NDArray[np.void]
    colours: Colouring
    reader: LifetimeReader = field(repr=False)
    class_reader: ClassReader = field(repr=False)
    by_class: HeldByClass | None
    names: int
    static_traces: tuple[Mapping[str, Any], ...] = ()

    @property
    def divisor(self) -> int:
        """Bytes per unit of the y axis."""
        return axis_unit(self.top)[0]

    @property
    def reach(self) -> float:
        """The end of the y axis, in its units."""
        return 1.05 * self.top / self.divisor

    @property
    def top(self) -> float:
        """The most bytes in use, at least 1."""
        return float(max(self.series["bytes_in_use_max"].max(initial=0), self.bands.highest, 1))


def active_memory(trace: Trace, step: int | None = None, *, pool: int = 0, look: Look = PLAIN) -> Picture:
    """Bytes in use over the trace, by allocation.

    Args:
        trace: the events.
        step: the step that a vertical line marks, whose holders get the colours; None: no line.
        pool: the heap of the trace, by number.
        look: theme and colouring, the x axis (step or time), and the steps to draw.

    Returns:
        The figure; its table has one row per allocation with a band, the largest first.
    """
    name = INSTEAD_OF_STATE if look.colour == "state" else look.colour
    colours = colouring_at(trace, pool, name, look.paints, step)
    window = active_memory_window(trace, pool, look, colours)
    return single(active_memory_panel(window, step, look), 380, look.paints).with_table(band_table(window))


def active_memory_window(  # noqa: PLR0913  the caller passes what it already has
    trace: Trace,
    pool: int = 0,
    look: Look = PLAIN,
    colours: Colouring | None = None,
    *,
    series: NDArray[np.void] | None = None,
    model: Model | None = None,
    before: ActiveMemoryWindow | None = None,
) -> ActiveMemoryWindow:
    """Read the allocations in the window of `look` (its `steps`).

    Args:
        trace: the events.
        pool: the heap of the trace, by number.
        look: theme, colouring, axis and window; its other fields do not matter here.
        colours: the colouring of `look`, if the caller has it; `INSTEAD_OF_STATE` replaces the one by state.
        series: `timeline`'s rows for these steps and at most one beyond each end, if the caller has them.
        model: a model of this trace and pool, whose snapshots speed up the search; returns to its step.
        before: the last window of this trace; only events that it did not read are read if both begin at one step.

    Raises:
        TraceError: the events up to the window contradict each other.
    """
    step_axis = StepAxis.of(trace, look.axis)
    first, last = window_of(step_axis, look)
    if series is None:
        series = timeline(trace, pool, first, last, timelines.intervals(last - first))
    reader, bands, others = _read(trace, pool, step_axis, (first, last), model, before)
    if colours is None or colours.name == "state":
        name = INSTEAD_OF_STATE if look.colour == "state" else look.colour
        colours = colouring(trace, pool, name, look.paints)
    class_reader = _class_reader(trace, pool, model, before)
    by_class = class_reader.read((first, last), step_axis, colours.for_images) if others else None
    window = ActiveMemoryWindow(
        trace=trace,
        pool=pool,
        look=look,
        step_axis=step_axis,
        steps=(first, last),
        bands=bands,
        others=others,
        series=series,
        colours=colours,
        reader=reader,
        class_reader=class_reader,
        by_class=by_class,
        names=len(trace.labels),
    )
    return replace(window, static_traces=_static_traces(window, look.paints, before))


def _read(  # noqa: PLR0913, PLR0917  as `active_memory_window`
    trace: Trace,
    pool: int,
    step_axis: StepAxis,
    steps: tuple[int, int],
    model: Model | None,
    before: ActiveMemoryWindow | None,
) -> tuple[LifetimeReader, Bands, int]:
    """The bands of these steps, and the number of other allocations; those of `before` if they are the same."""
    if before is not None and _continues(before, trace, pool, steps):
        reader = before.reader
        if before.steps == steps and before.step_axis.axis == step_axis.axis:
            return reader, before.bands, before.others
    else:
        reader = LifetimeReader(trace, pool, steps[0], largest=LARGEST, model=model)
    found = reader.read_to(steps[1])
    return reader, bands_of(found.lifetimes, step_axis, steps), found.seen - len(found.lifetimes)


def _class_reader(
    trace: Trace, pool: int, model: Model | None, before: ActiveMemoryWindow | None
) -> ClassReader:
    """The reader of `before`, if it is one of this heap."""
    if before is not None and before.trace is trace and before.pool == pool:
        return before.class_reader
    return ClassReader(trace, pool, model or Model(trace, pool))


def _continues(before: ActiveMemoryWindow, trace: Trace, pool: int, steps: tuple[int, int]) -> bool:
    same = before.trace is trace and before.pool == pool and before.steps[0] == steps[0]
    return same and before.reader.stop <= steps[1]


def _static_traces(
    window: ActiveMemoryWindow, theme: Theme, before: ActiveMemoryWindow | None
) -> tuple[Mapping[str, Any], ...]:
    lives, grouped = window.bands.lifetimes, window.colours.for_images
    pale = faded(window.trace, window.pool, window.look, lives)
    which = window.colours.classes(lives, window.steps[1])
    fills = [
        "" if faint else window.colours.paints[number].fill
        for faint, number in zip(pale.tolist(), which.tolist(), strict=True)
    ]
    x, y = window.bands.outlines(np.flatnonzero(pale))
    return (
        _all_in_use(window, theme),
        *area_traces(
            window.by_class,
            window.bands,
            grouped,
            fills_of(window.trace, window.pool, window.look, grouped),
            window.divisor,
        ),
        *_bands(window, which, theme),
        fade_trace(x, y / window.divisor, theme),
        names_on_bands(window.bands, window.trace, window.divisor, window.reach, fills),
        _hover(window, before),
    )


def _hover(window: ActiveMemoryWindow, before: ActiveMemoryWindow | None) -> Mapping[str, Any]:
    """The hover points; those of the window before if only colours differ."""
    if (
        before is None
        or before.bands is not window.bands
        or before.names != window.names
        or before.divisor != window.divisor
    ):
        return hover_points(window.bands, window.trace, window.divisor)
    return before.static_traces[-1]


def active_memory_panel(window: ActiveMemoryWindow, step: int | None, look: Look) -> Panel:
    """The timeline as a panel; only its last two traces depend on `step` and on the selection.

    Args:
        window: made for the theme, colouring, axis and steps of `look`.
        step: the step that a vertical line marks; None: no line.
        look: the selected chunk.
    """
    theme = look.paints
    divisor, unit = axis_unit(window.top)
    reach = window.reach
    traces = [
        *window.static_traces,
        _selected(window, look, theme),
        timelines.step_line(np.nan if step is None else window.step_axis.position(step), theme, reach),
    ]
    drawn = len(window.bands.lifetimes)
    smaller = f"; {window.others:,} smaller ones, an area a colour" if window.others else ""
    return Panel(
        name="lifetimes",
        title=f"Active memory ({unit})",
        caption=f"the {drawn:,} largest allocations, each a band from allocate to free{smaller}",
        traces=traces,
        xaxis=window.step_axis.xaxis(look.steps),
        yaxis={"title": {"text": f"bytes in use ({unit})"}, "range": [0, reach], "tickformat": ",~g"},
        x_unit=window.step_axis.unit,
        y_unit=float(divisor),
        definition=(
            "bytes in use: the sizes of all chunks in use, waste included.<br>"
            f"In these steps {drawn + window.others:,} allocations were in use:<br>"
            f" the {drawn:,} largest have a band each;<br>"
            " the areas above are all others, averaged<br> over a few pixels, one area a colour."
        ),
    )


def allocation_at(window: ActiveMemoryWindow, x: float, y: float) -> Selected | None:
    """The allocation whose band is at `x`, `y` (axis units); None if there is none."""
    found = window.bands.at(x, y * window.divisor)
    if found is None:
        return None
    life = window.bands.lifetimes[found]
    return Selected(int(life["address"]), int(life["born"]))


def band_table(window: ActiveMemoryWindow) -> pa.Table:
    """One row per allocation, the largest first; `freed_at_step` is null for those still in use at the end."""
    every = window.bands.lifetimes
    rows = every[np.lexsort([every["born"], ~every["size"]])]
    gone = rows["died"] != NEVER
    names = window.trace.labels
    return pa.table(
        {
            "size": rows["size"],
            "requested": rows["requested"],
            "label": pa.array([names.name(number) for number in rows["label"].tolist()], pa.string()),
            "allocated_at_step": rows["born"] + np.uint64(1),
            "freed_at_step": pa.array(np.where(gone, rows["died"], 0) + np.uint64(1), mask=~gone),
            "address": rows["address"],
            "chunk": rows["chunk"],
            "thread": rows["thread"],
            "stream": rows["stream"],
        }
    )


def _all_in_use(window: ActiveMemoryWindow, theme: Theme) -> dict[str, Any]:
    """All bytes in use, behind bands and areas: what is visible are peaks that the areas average out."""
    x, y = timelines.upper_edge(window.series, "bytes_in_use", window.step_axis)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "bytes in use",
        "x": x,
        "y": y / window.divisor,
        "line": {"color": theme.pool.line, "width": 1, "shape": "hv"},
        "fill": "tozeroy",
        "fillcolor": theme.pool.fill,
        "hovertemplate": f"bytes in use: %{{y:,.2f}} {axis_unit(window.top)[1]}<extra></extra>",
    }


def _bands(window: ActiveMemoryWindow, which: NDArray[np.uint8], theme: Theme) -> list[dict[str, Any]]:
    """One trace per class; `which`: the class of each band."""
    traces = []
    for number in range(MOST_CLASSES):
        named = number < len(window.colours.names)
        paint = window.colours.paints[number] if named else Paint(theme.paper, theme.paper)
        x, y = window.bands.outlines(np.flatnonzero(which == number))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                **window.colours.legend(number, shown=window.look.legend),
                "x": x,
                "y": y / window.divisor,
                "fill": "toself",
                "fillcolor": paint.fill,
                "line": {"color": paint.line, "width": 0.5},
                "hoverinfo": "skip",
            }
        )
    return traces


def _selected(window: ActiveMemoryWindow, look: Look, theme: Theme) -> dict[str, Any]:
    born = None if look.selected is None else look.selected.born
    mine = (
        np.flatnonzero(window.bands.lifetimes["born"] == born) if born is not None else np.zeros(0, np.intp)
    )
    x, y = window.bands.outlines(mine)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "selected",
        "showlegend": False,
        "x": x,
        "y": y / window.divisor,
        "line": {"color": theme.selection, "width": 2.5},
        "hoverinfo": "skip",
    }
