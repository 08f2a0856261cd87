"""Model -> plotly figure: each view is one file that computes, draws and tabulates one picture; none uses a widget.

Input: a trace and a step. Output: a `Picture`, a plotly figure with the table of numbers it shows. `VIEWS` has all
views, `FIGURES` those that `draw` makes; `export` writes a figure to a file. May import model and events, and what
those import.
"""

from typing import Any

from bfcviz import _compiled
from bfcviz.extras import needed

with needed("a picture", "plotly and pyarrow", "plot"):
    import plotly  # noqa: F401
    import pyarrow as pa  # noqa: F401

_compiled.load("bfcviz._raster")

from bfcviz.events.trace import Trace
from bfcviz.figures import (
    active_memory,
    address_time,
    bin_histogram,
    event_rate,
    failure,
    fragmentation_timeline,
    free_chunk_ladder,
    holder_icicle,
    mark_values,
    region_map,
    stats_timeline,
    svg,  # noqa: F401  lets a Picture draw itself without a script
    time_strip,
)
from bfcviz.figures.export import FORMATS, export
from bfcviz.figures.panel import Picture
from bfcviz.figures.view import FIGURES, VIEWS, View, add_view
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.units import parse_bytes

__all__ = ["FIGURES", "FORMATS", "VIEWS", "Look", "Picture", "View", "add_view", "draw", "export"]

# In the order of menus and tabs.
for _module in (
    region_map,
    time_strip,
    active_memory,
    address_time,
    free_chunk_ladder,
    bin_histogram,
    fragmentation_timeline,
    stats_timeline,
    event_rate,
    mark_values,
    holder_icicle,
    failure,
):
    add_view(_module.VIEW)


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
    return FIGURES[name].draw(model, Look(**look))
