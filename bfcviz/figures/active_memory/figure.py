"""The active-memory timeline: who held the memory, the largest allocations stacked on one another.

Each is a band from the step that handed it out to the one that took it back; bands come down when one below them
ends. What the smaller ones hold together is the one band on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.active_memory.bands import Bands, bands_of, hover_points, names_on_bands
from bfcviz.figures.address_time.window import window_of
from bfcviz.figures.panel import Panel, Picture, single
from bfcviz.figures.style.colouring import MOST_CLASSES, Colouring, colouring
from bfcviz.figures.style.text import axis_unit
from bfcviz.figures.style.theme import Paint, Theme
from bfcviz.figures.style.view_options import PLAIN, Look, Selected
from bfcviz.figures.timelines import axis as timelines
from bfcviz.figures.timelines.axis import StepAxis
from bfcviz.model import Model, timeline
from bfcviz.model.lifetimes.address_layout import NEVER
from bfcviz.model.lifetimes.lifetimes import find

LARGEST: Final = 200
"""So many allocations get a band of their own."""

INSTEAD_OF_STATE: Final = "label"
"""What bands are coloured by where chunks are by state: all that is here is in use."""


@dataclass(frozen=True)
class ActiveMemoryWindow:
    """What lies in a window of steps.

    Attributes:
        trace: the trace.
        pool: which of its heaps.
        look: what it was made for.
        step_axis: where steps lie on the x axis.
        steps: the first and last step.
        bands: the largest allocations.
        others: how many there are besides.
        series: of TIMELINE: bytes in use of all of them.
        colours: of the bands.
        still: the traces of a panel that no step changes.
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
    still: tuple[Mapping[str, Any], ...] = ()

    @property
    def divisor(self) -> int:
        """Bytes that 1 on the y axis stands for."""
        return axis_unit(self.top)[0]

    @property
    def reach(self) -> float:
        """Where the y axis ends."""
        return 1.05 * self.top / self.divisor

    @property
    def top(self) -> float:
        """The most bytes in use, at least 1."""
        return float(max(self.series["bytes_in_use_max"].max(initial=0), self.bands.highest, 1))


def active_memory(trace: Trace, step: int | None = None, *, pool: int = 0, look: Look = PLAIN) -> Picture:
    """Who held the memory over the trace.

    Args:
        trace: the events.
        step: where to draw the upright line; None: nowhere.
        pool: which heap of the trace.
        look: colours, over step or time, and the steps to draw.

    Returns:
        The figure; its table has one row for each allocation that has a band, the largest first.
    """
    window = active_memory_window(trace, pool, look)
    return single(active_memory_panel(window, step, look), 380, look.paints).with_table(band_table(window))


def active_memory_window(  # noqa: PLR0913  what the caller has already need not be made again
    trace: Trace,
    pool: int = 0,
    look: Look = PLAIN,
    colours: Colouring | None = None,
    *,
    series: NDArray[np.void] | None = None,
    model: Model | None = None,
) -> ActiveMemoryWindow:
    """Reads the window of `look` (its `steps`).

    Args:
        trace: the events.
        pool: which heap of the trace.
        look: colours, axis and window; a change of anything else needs no new lives.
        colours: those of `look`, if they are at hand; those of the state give way to `INSTEAD_OF_STATE`.
        series: `timeline`'s rows for these steps and no more than one to either side, if they are at hand.
        model: one of this trace and pool; it knows short ways to the window, is moved and put back.

    Raises:
        TraceError: the events up to the window contradict each other.
    """
    step_axis = StepAxis.of(trace, look.axis)
    first, last = window_of(step_axis, look)
    if series is None:
        series = timeline(trace, pool, first, last, timelines.intervals(last - first))
    found = find(trace, pool, first, last, largest=LARGEST, model=model)
    if colours is None or colours.name == "state":
        name = INSTEAD_OF_STATE if look.colour == "state" else look.colour
        colours = colouring(trace, pool, name, look.paints)
    window = ActiveMemoryWindow(
        trace=trace,
        pool=pool,
        look=look,
        step_axis=step_axis,
        steps=(first, last),
        bands=bands_of(found.lifetimes, trace, step_axis, (first, last)),
        others=found.seen - len(found.lifetimes),
        series=series,
        colours=colours,
    )
    return replace(window, still=_still(window, look.paints))


def _still(window: ActiveMemoryWindow, theme: Theme) -> tuple[Mapping[str, Any], ...]:
    return (
        _all_in_use(window, theme),
        *_bands(window, theme),
        names_on_bands(window.bands, window.trace, window.divisor, window.reach, theme),
        hover_points(window.bands, window.trace, window.divisor),
    )


def active_memory_panel(window: ActiveMemoryWindow, step: int | None, look: Look) -> Panel:
    """The timeline as a panel; only its last two traces depend on `step` and on what is selected.

    Args:
        window: made for the theme, colours, axis and steps of `look`.
        step: where to draw the upright line; None: nowhere.
        look: says which chunk is selected.
    """
    theme = look.paints
    divisor, unit = axis_unit(window.top)
    reach = window.reach
    traces = [
        *window.still,
        _selected(window, look, theme),
        timelines.step_line(np.nan if step is None else window.step_axis.position(step), theme, reach),
    ]
    drawn = len(window.bands.lifetimes)
    return Panel(
        name="lifetimes",
        title=f"Active memory ({unit})",
        caption=f"the {drawn:,} largest allocations, each a band while it lives; bands drop when one below is freed",
        traces=traces,
        xaxis=window.step_axis.xaxis(look.steps),
        yaxis={"title": {"text": unit}, "range": [0, reach], "tickformat": ",~g"},
        x_unit=window.step_axis.unit,
        y_unit=float(divisor),
        definition=(
            "Bytes in use (sizes of chunks, waste included).<br>"
            f"In these steps {drawn + window.others:,} allocations were alive;<br>"
            f"the {drawn:,} largest have a band of their own,<br>all others are one band on top."
        ),
    )


def allocation_at(window: ActiveMemoryWindow, x: float, y: float) -> Selected | None:
    """The allocation whose band is at a place in axis units; None where there is none."""
    found = window.bands.at(x, y * window.divisor)
    if found is None:
        return None
    life = window.bands.lifetimes[found]
    return Selected(int(life["address"]), int(life["born"]))


def band_table(window: ActiveMemoryWindow) -> pa.Table:
    """One row an allocation, the largest first; `freed_at_step` is null for those alive at the end."""
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
    """All bytes in use, behind the bands: what is seen of it is what the smaller allocations hold."""
    x, y = timelines.both_ends(window.series, "bytes_in_use", window.step_axis)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{window.others:,} smaller allocations",
        "x": x,
        "y": y / window.divisor,
        "line": {"color": theme.pool.line, "width": 1, "shape": "hv"},
        "fill": "tozeroy",
        "fillcolor": theme.pool.fill,
        "hovertemplate": f"all in use: %{{y:,.2f}} {axis_unit(window.top)[1]}<extra></extra>",
    }


def _bands(window: ActiveMemoryWindow, theme: Theme) -> list[dict[str, Any]]:
    """One trace a class."""
    which = window.colours.classes(window.bands.lifetimes, window.steps[1])
    traces = []
    for number in range(MOST_CLASSES):
        named = number < len(window.colours.names)
        paint = window.colours.paints[number] if named else Paint(theme.paper, theme.paper)
        x, y = window.bands.outlines(np.flatnonzero(which == number))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": window.colours.names[number] if named else "",
                "showlegend": named,
                "legend": window.colours.legend_line(number),
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
        "line": {"color": theme.highlight, "width": 2.5},
        "hoverinfo": "skip",
    }
