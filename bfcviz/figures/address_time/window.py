"""AddressTimeWindow: the allocations in a window of addresses and steps; the slow part of the map, made once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.address_time import event_reader
from bfcviz.figures.address_time.event_reader import EventReader
from bfcviz.figures.style.colouring import Colouring, colouring
from bfcviz.figures.style.fading import with_faded
from bfcviz.figures.style.text import axis_unit
from bfcviz.figures.style.view_options import Look, Selected
from bfcviz.figures.timelines.axis import StepAxis
from bfcviz.model import Model
from bfcviz.model.lifetimes.address_layout import Layout
from bfcviz.model.lifetimes.occupancy_grid import Occupancy

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AddressTimeWindow:
    """The allocations in a window of addresses and steps, ready to draw.

    Attributes:
        trace: the trace.
        pool: the heap of the trace, by number.
        look: the look it was made for.
        reader: reads the events, for this window and for the next one.
        step_axis: the x axis.
        layout: the positions of addresses on the y axis.
        colours: the colouring of chunks in use.
        steps: the first and last step.
        positions: the ends of the window on the y axis, in bytes.
        lifetimes: LIFETIME records, ordered by `born`; not drawn if there is an `image`.
        image_colours: the colouring of the image: `Colouring.for_images`, and faded ones.
        names: the number of labels that the trace had; those of a running recording may come after their events.
        image: drawn instead of rectangles if there are too many lifetimes; else None.
        static_traces: the traces of the panel that do not depend on the step, added by `figure.address_time_window`.
    """

    trace: Trace
    pool: int
    look: Look
    reader: EventReader = field(repr=False)
    step_axis: StepAxis
    layout: Layout
    colours: Colouring
    steps: tuple[int, int]
    positions: tuple[float, float]
    lifetimes: NDArray[np.void]
    image_colours: Colouring
    names: int
    image: Occupancy | None
    static_traces: tuple[Mapping[str, Any], ...] = ()

    @property
    def divisor(self) -> int:
        """Bytes per unit of the y axis: the same for every window."""
        return axis_unit(self.layout.total)[0]

    @property
    def sides(self) -> tuple[float, float]:
        """The x of the first and the last step, in axis units."""
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
    known = before is not None and before.trace is trace and before.pool == pool
    reader = before.reader if known and before else EventReader(trace, pool, model or Model(trace, pool))
    layout = reader.layout()
    colours = colours or colouring(trace, pool, look.colour, look.paints)
    steps = window_of(step_axis, look)
    positions = look.addresses or (0.0, float(max(layout.total, 1)))
    found = reader.lifetimes(steps, layout, look)
    image_colours = with_faded(colours.for_images, trace, pool, look)
    too_many = found.seen > event_reader.EXACT_LIFETIMES
    return AddressTimeWindow(
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


def chunk_at_time(window: AddressTimeWindow, x: float, y: float) -> Selected | None:
    """The chunk, in use or free, at `x`, `y` (axis units); None outside of every region.

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
    chunk = chunks[at]
    return Selected(int(chunk["address"]), int(chunk["born"]) if chunk["in_use"] else None)


def window_of(step_axis: StepAxis, look: Look) -> tuple[int, int]:
    """The steps that a look asks for, clipped to those of the trace."""
    first, last = look.steps or (step_axis.first, step_axis.last)
    first = min(max(first, step_axis.first), step_axis.last)
    return first, min(max(last, first), step_axis.last)
