"""Model -> plotly figure: each function is pure, draws one picture, and uses no widget.

Input: a `bfcviz.model.Model` at a step (it stays at that step), or a whole trace. Output: a `Picture`, a plotly
figure with the table of numbers it shows. `FIGURES` lists all of them; `export` writes one to a file.
May import model and events, and what those import.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bfcviz import _compiled

_compiled.load("bfcviz._raster")

from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.figures.active_memory_timeline import active_memory
from bfcviz.figures.address_time_map import address_time
from bfcviz.figures.bins import bin_histogram
from bfcviz.figures.export import FORMATS, export
from bfcviz.figures.failed_request import failure
from bfcviz.figures.free_chunk_ladder import ladder
from bfcviz.figures.icicle import holders_icicle
from bfcviz.figures.panel import Picture
from bfcviz.figures.python_code import facts_of
from bfcviz.figures.region_map.figure import region_map
from bfcviz.figures.region_map.rows import last_event
from bfcviz.figures.timelines.event_rate import event_rate
from bfcviz.figures.timelines.fragmentation import fragmentation_timeline
from bfcviz.figures.timelines.stats import stats_timeline
from bfcviz.figures.view_options import Look
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
    "failure",
    "fragmentation_timeline",
    "holders_icicle",
    "ladder",
    "region_map",
    "stats_timeline",
]


@dataclass(frozen=True)
class FigureKind:
    """A figure that `draw` finds by name.

    Attributes:
        title: its name in texts.
        draw: makes the picture of a model at a step, from the events to highlight and a look. The picture's
            `table` holds its numbers.
    """

    title: str
    draw: Callable[[Model, Events | None, Look], Picture]


def _over_time(figure: Callable[..., Picture]) -> Callable[[Model, Events | None, Look], Picture]:
    """Adapt a figure of the whole trace to the arguments of a figure at one step."""
    return lambda model, _, look: figure(model.trace, model.step, pool=model.pool, look=look)


FIGURES: Final = {
    "region_map": FigureKind("region map", region_map),
    "ladder": FigureKind("ladder of free chunks", ladder),
    "bin_histogram": FigureKind("bin histogram", bin_histogram),
    "failure": FigureKind("failed request", failure),
    "holders": FigureKind("holders", holders_icicle),
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
        "event rate",
        _over_time(event_rate),
    ),
}
"""Name -> figure."""


def draw(name: str, trace: Trace, step: int | None = None, *, pool: int = 0, **look: Any) -> Picture:
    """The picture called `name` of one heap of `trace` at `step` (None: after the last event).

    Args:
        name: one of `FIGURES`.
        trace: the events.
        step: the number of events applied; None: all of them.
        pool: the heap of the trace, by number.
        look: the fields of `Look`, such as `theme="dark"`; `wanted` may be text, such as `64MiB`.

    Raises:
        ValueError: `name` is unknown (the message lists all names), or `wanted` is a text that is not a size.
        TraceError: the trace has no such step.
    """
    if name not in FIGURES:
        raise ValueError(f"no figure {name!r}; there are: {', '.join(FIGURES)}")
    if isinstance(wanted := look.get("wanted"), str):
        look["wanted"] = parse_bytes(wanted, "wanted")
    model = Model(trace, pool)
    model.seek(len(trace) if step is None else step)
    return FIGURES[name].draw(model, last_event(model), Look(**look)).with_facts(facts_of(model))
