"""AddressTimeWindow: the allocations in a window of addresses and steps; the slow part of the map, made once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.style.colouring import Colouring, colouring
from bfcviz.figures.style.text import axis_unit
from bfcviz.figures.style.view_options import Look, Selected
from bfcviz.figures.timelines.axis import StepAxis
from bfcviz.model import Model
from bfcviz.model.lifetimes.address_layout import Layout
from bfcviz.model.lifetimes.lifetimes import Wanted, find, times_of
from bfcviz.model.lifetimes.occupancy import Classes, Occupancy, occupancy

EXACT_LIFETIMES: Final = 3000
"""Allocations drawn as exact rectangles, at most."""

PIXELS: Final = (1000, 320)
"""Pixels of the image: columns, lines."""

COARSER: Final = (750, 240)
"""The same if there are several classes, each with a grid of its own."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AddressTimeWindow:
    """The allocations in a window of addresses and steps, ready to draw.

    Attributes:
        trace: the trace.
        pool: the heap of the trace, by number.
        look: the look it was made for.
        model: a model of the trace and pool, at any step; a read moves it and moves it back.
        step_axis: the x axis.
        layout: the positions of addresses on the y axis.
        colours: the colouring of chunks in use.
        steps: the first and last step.
        positions: the ends of the window on the y axis, in bytes.
        lifetimes: LIFETIME records, ordered by `born`; not drawn if there is an `image`.
        image: drawn instead of rectangles if there are too many lifetimes; else None.
        count: the number of lifetimes in the window; a lower bound if there is an `image`.
        static_traces: the traces of the panel that do not depend on the step, added by `figure.address_time_window`.
        ends: cache: `born` of a selected lifetime -> `seq` of its FREE.
    """

    trace: Trace
    pool: int
    look: Look
    model: Model
    step_axis: StepAxis
    layout: Layout
    colours: Colouring
    steps: tuple[int, int]
    positions: tuple[float, float]
    lifetimes: NDArray[np.void]
    image: Occupancy | None
    count: int
    static_traces: tuple[Mapping[str, Any], ...] = ()
    ends: dict[int, int] = field(default_factory=dict)

    @property
    def divisor(self) -> int:
        """Bytes per unit of the y axis: the same for every window."""
        return axis_unit(self.layout.total)[0]

    @property
    def sides(self) -> tuple[float, float]:
        """The x of the first and the last step, in axis units."""
        return self.step_axis.position(self.steps[0]), self.step_axis.position(self.steps[1])

    def spans(self, records: NDArray[np.void]) -> tuple[Floats, Floats]:
        """Where lifetimes or regions begin and end on the x axis, clipped to the window."""
        return self.moments(records["born"]), self.moments(records["died"])

    def moments(self, seqs: NDArray[np.uint64]) -> Floats:
        """The x of the states after these events, clipped to the window; NEVER is the window's end."""
        left, right = self.sides
        x = np.full(len(seqs), right)
        happened = np.flatnonzero(seqs < self.steps[1])
        seqs = seqs[happened]
        times = times_of(self.trace, seqs) if self.step_axis.axis == "time" else np.zeros(0)
        x[happened] = self.step_axis.positions(seqs + np.uint64(1), times)
        cut: Floats = np.clip(x, left, right)
        return cut

    def heights(self, records: NDArray[np.void]) -> tuple[Floats, Floats]:
        """Where lifetimes or regions begin and end on the y axis, clipped to the window."""
        low = self.layout.position(records["address"])
        ends = (low, low + records["size"].astype(np.float64))
        bottom, top = (np.clip(end, *self.positions) / self.divisor for end in ends)
        return bottom, top


def read_window(  # noqa: PLR0913  the caller passes what it already has
    trace: Trace,
    pool: int,
    look: Look,
    colours: Colouring | None,
    *,
    model: Model | None,
    before: AddressTimeWindow | None,
) -> AddressTimeWindow:
    """Read a window: `figure.address_time_window` without its traces."""
    step_axis = StepAxis.of(trace, look.axis)
    known = before if before is not None and _holds(before, trace, pool, step_axis) else None
    layout = known.layout if known else Layout.of(trace, pool)
    steps = window_of(step_axis, look)
    positions = look.addresses or (0.0, float(max(layout.total, 1)))
    model = model or (known.model if known else Model(trace, pool))
    found = find(trace, pool, *steps, wanted=_touching(layout, look), most=EXACT_LIFETIMES, model=model)
    made = AddressTimeWindow(
        trace=trace,
        pool=pool,
        look=look,
        model=model,
        step_axis=step_axis,
        layout=layout,
        colours=colours or colouring(trace, pool, look.colour, look.paints),
        steps=steps,
        positions=positions,
        lifetimes=found.lifetimes,
        image=None,
        count=found.seen,
    )
    return replace(made, image=_image(made)) if found.seen > EXACT_LIFETIMES else made


def chunk_at_time(window: AddressTimeWindow, x: float, y: float) -> Selected | None:
    """The chunk, in use or free, at `x`, `y` (axis units); None outside of every region.

    Raises:
        TraceError: the events up to there contradict each other.
    """
    address = window.layout.address(y * window.divisor)
    if address is None:
        return None
    with window.model.visiting(window.step_axis.step_at(x)) as model:
        chunks = model.chunks()
    at = int(np.searchsorted(chunks["address"], np.uint64(address), side="right")) - 1
    if at < 0 or address >= int(chunks["address"][at]) + int(chunks["size"][at]):
        return None
    chunk = chunks[at]
    return Selected(int(chunk["address"]), int(chunk["born"]) if chunk["in_use"] else None)


def _holds(before: AddressTimeWindow, trace: Trace, pool: int, step_axis: StepAxis) -> bool:
    return (
        before.trace is trace
        and before.pool == pool
        and before.step_axis.last == step_axis.last
        and before.step_axis.first == step_axis.first
    )


def window_of(step_axis: StepAxis, look: Look) -> tuple[int, int]:
    """The steps that a look asks for, clipped to those of the trace."""
    first, last = look.steps or (step_axis.first, step_axis.last)
    first = min(max(first, step_axis.first), step_axis.last)
    return first, min(max(last, first), step_axis.last)


def _touching(layout: Layout, look: Look) -> Wanted | None:
    """A test whether allocations overlap the window of positions; None if the window is everything."""
    if look.addresses is None:
        return None
    low, high = look.addresses

    def touching(address: NDArray[np.uint64], size: NDArray[np.uint64]) -> NDArray[np.bool_]:
        begin = layout.position(address)
        found: NDArray[np.bool_] = (begin < high) & (begin + size > low)
        return found

    return touching


def _image(window: AddressTimeWindow) -> Occupancy:
    colours, last = window.colours.without_shades, window.steps[1]
    several = len(colours.paints) > 1
    return occupancy(
        window.trace,
        window.pool,
        *window.steps,
        window.positions,
        *(COARSER if several else PIXELS),
        axis=window.step_axis.axis,
        classes=Classes(len(colours.paints), lambda lifetimes: colours.classes(lifetimes, last))
        if several
        else None,
        layout=window.layout,
        model=window.model,
    )
