"""Model -> plotly figure: each function here is pure, draws one picture, and knows no widget.

Enters: a `bfcviz.model.Model` at a step (it is not moved), or a whole trace. Leaves: a `Picture`, a plotly
figure with the table of numbers it was drawn from. `FIGURES` names them all; `export` writes one to a file.
May import model and events, and what those import.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bfcviz import _compiled

_compiled.load("bfcviz._raster")

from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.figures.active_memory.figure import active_memory
from bfcviz.figures.address_time.figure import address_time
from bfcviz.figures.bins.histogram import bin_histogram
from bfcviz.figures.export import FORMATS, export
from bfcviz.figures.panel import Picture
from bfcviz.figures.region_map.figure import region_map
from bfcviz.figures.region_map.highlights import last_event
from bfcviz.figures.style.view_options import Look
from bfcviz.figures.timelines.event_rate import event_rate
from bfcviz.figures.timelines.fragmentation import fragmentation_timeline
from bfcviz.figures.timelines.stats import stats_timeline
from bfcviz.model import Model
from bfcviz.units import parse_bytes

__all__ = [
    "FIGURES",
    "FORMATS",
    "FigureKind",
    "Look",
    "Picture",
    "active_memory",
    "address_time",
    "bin_histogram",
    "draw",
    "event_rate",
    "export",
    "fragmentation_timeline",
    "region_map",
    "stats_timeline",
]


@dataclass(frozen=True)
class FigureKind:
    """One picture that can be asked for by name.

    Attributes:
        title: what people call it.
        draw: makes it for a model at a step, the events to highlight, and a look. Its `table` holds the
            numbers.
    """

    title: str
    draw: Callable[[Model, Events | None, Look], Picture]


def _over_time(figure: Callable[..., Picture]) -> Callable[[Model, Events | None, Look], Picture]:
    """A picture of the whole trace, asked for as those of one step are."""
    return lambda model, _, look: figure(model.trace, model.step, pool=model.pool, look=look)


FIGURES: Final = {
    "region_map": FigureKind("region map", region_map),
    "bin_histogram": FigureKind("bin histogram", bin_histogram),
    "stats_timeline": FigureKind(
        "stats timeline",
        _over_time(stats_timeline),
    ),
    "fragmentation_timeline": FigureKind(
        "fragmentation timeline",
        _over_time(fragmentation_timeline),
    ),
    "address_time": FigureKind(
        "address-time map",
        _over_time(address_time),
    ),
    "active_memory": FigureKind(
        "active memory",
        _over_time(active_memory),
    ),
    "event_rate": FigureKind(
        "events a second",
        _over_time(event_rate),
    ),
}
"""Name -> picture."""


def draw(name: str, trace: Trace, step: int | None = None, *, pool: int = 0, **look: Any) -> Picture:
    """The picture called `name` of one heap of `trace` at `step` (None: after the last event).

    Args:
        name: one of `FIGURES`.
        trace: the events.
        step: how many of them have happened.
        pool: which heap of the trace.
        look: the fields of `Look`, such as `theme="dark"`; `wanted` may be text, such as `64MiB`.

    Raises:
        ValueError: there is no such picture; the message lists those there are. Or `wanted` is text that is no size.
        TraceError: the trace has no such step.
    """
    if name not in FIGURES:
        raise ValueError(f"no figure {name!r}; there are: {', '.join(FIGURES)}")
    if isinstance(wanted := look.get("wanted"), str):
        look["wanted"] = parse_bytes(wanted, "wanted")
    model = Model(trace, pool)
    model.seek(len(trace) if step is None else step)
    return FIGURES[name].draw(model, last_event(model), Look(**look))
