"""The figure of a failed request, and of the question whether a request would fit.

::

    asked               ==================|
    largest free chunk  ===============   :     the line is the request
    free                ==================:==========
    wasted              ==                :

    0x7f00...  [ free | in use | free     : ]   each run from its start, all on one scale
    0x7f08...  [ free |in use|  free     ]:
"""

from dataclasses import replace
from typing import Any, Final

from bfcviz.events.schema import Events, Kind
from bfcviz.figures.failure.runs import failure_table, runs_panel
from bfcviz.figures.panel import BELOW, Panel, Picture, Place, compose
from bfcviz.figures.style.text import axis_unit, exact_bytes
from bfcviz.figures.style.theme import Paint
from bfcviz.figures.style.view_options import PLAIN, Look
from bfcviz.model import Model
from bfcviz.model.explain.failure.diagnose import diagnose, failed_steps, without_failure, would_fit
from bfcviz.model.explain.failure.diagnosis import Diagnosis
from bfcviz.units import format_bytes

_HEIGHT: Final = 150
_ROW: Final = 76  # pixels of a run
_DEFINITION: Final = (
    "asked: the request, rounded up as the heap does.<br>free: all free chunks together.<br>"
    "wasted: bytes of chunks in use that were not requested."
)


def failure(model: Model, highlight: Events | None = None, look: Look = PLAIN) -> Picture:
    """What was asked, what is free, and the runs of chunks that need the fewest bytes freed.

    Args:
        model: the heap; it stays at its step.
        highlight: ignored; the failure is the one before the model's step, see `failure_to_show`.
        look: the theme; with `wanted` the question whether such a request fits at the model's step.

    Returns:
        The figure; its table has one row per size, and one per chunk of the runs.
    """
    del highlight
    found = failure_to_show(model, look)
    found = replace(found, runs=found.useful_runs or found.runs[:1])
    panels = [sizes_panel(found, look), runs_panel(found, model, look)]
    second = panels[0].above + _HEIGHT + BELOW + panels[1].above
    rows = max(1, len(found.runs))
    places = [Place(0.0, 1.0, panels[0].above, _HEIGHT), Place(0.0, 1.0, second, _ROW * rows)]
    return compose(panels, places, look.paints).with_table(failure_table(found, _sizes(found), model))


def failure_to_show(model: Model, look: Look) -> Diagnosis:
    """The request that `look` asks about, or the last failure before the model's step, else the first after it."""
    trace = model.trace
    if look.wanted is not None and look.wanted > 0:
        return would_fit(trace, model.step, look.wanted, model, pool=model.pool)
    step = model.step
    if step > trace.first:
        last = trace.read(step - 1, step)[0]
        if (last["kind"], last["pool"]) == (Kind.OOM, model.pool):
            return diagnose(trace, step - 1, model)
    steps = failed_steps(trace, model.pool)
    if not steps:
        return without_failure(trace, model.pool, model)
    chosen = max((each for each in steps if each <= step), default=steps[0])
    return diagnose(trace, chosen - 1, model)


def sizes_panel(found: Diagnosis, look: Look) -> Panel:
    """Asked, largest free chunk, free and wasted as bars on one scale."""
    theme = look.paints
    asked_paint = Paint(theme.highlight, theme.highlight)
    paints = (asked_paint, theme.free, theme.free, theme.waste)
    sizes = _sizes(found)
    most = max(1, *(size or 0 for size in sizes.values()))
    divisor, unit = axis_unit(most)
    verdict = found.verdict.replace("_", " ")
    asked = f"{format_bytes(found.requested)} asked: {verdict}" if found.requested else "no request failed"
    return Panel(
        name="failure_sizes",
        title=f"Request and free memory ({unit})",
        caption=f"{asked}; step {found.step:,}",
        definition=_DEFINITION,
        traces=[
            _bar(name, size, paint, divisor)
            for (name, size), paint in zip(sizes.items(), paints, strict=True)
        ],
        xaxis={"range": [0, 1.18 * most / divisor], "title": {"text": f"size ({unit})"}, "showgrid": True},
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "fixedrange": True,
            "automargin": False,
            "tickfont": {"size": 10},
        },
        x_unit=divisor,
    )


def _sizes(found: Diagnosis) -> dict[str, int | None]:
    """The bars, from the top; None: unknown."""
    return {
        "asked": found.rounded,
        "largest free chunk": found.largest_free_chunk if found.knows("largest_free_chunk") else None,
        "free": found.free_bytes if found.knows("free_bytes") else None,
        "wasted": found.wasted if found.recorded.has_heap else None,
    }


def _bar(name: str, size: int | None, paint: Paint, divisor: int) -> dict[str, Any]:
    text = "unknown" if size is None else format_bytes(size)
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "showlegend": False,
        "x": [(size or 0) / divisor],
        "y": [name.replace("largest free chunk", "largest<br>free chunk")],
        "width": 0.7,
        "marker": {"color": paint.fill, "line": {"color": paint.line, "width": 1}},
        "text": [text],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [f"<b>{name}</b>: {text if size is None else exact_bytes(size)}"],
        "hoverinfo": "text",
    }
