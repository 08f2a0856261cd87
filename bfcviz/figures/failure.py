"""The figure of a failed request, and of the question whether a request would fit.

::

    asked               ==================|
    largest free chunk  ===============   :     the line is the request
    free                ==================:==========
    wasted              ==                :

    0x7f00...  [ free | in use | free     : ]   each run from its start, all on one scale
    0x7f08...  [ free |in use|  free     ]:
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.analysis.diagnosis import Diagnosis, without_failure
from bfcviz.analysis.failures import diagnose
from bfcviz.analysis.pinned_runs import Run, largest_first
from bfcviz.analysis.would_fit import would_fit
from bfcviz.events.label_table import NO_LABEL
from bfcviz.events.origin import unknown_of_chunks
from bfcviz.events.trace import Trace
from bfcviz.figures.address_time import without_unknown
from bfcviz.figures.panel import FLAT_BARS, LINES, TEXTS, Panel
from bfcviz.figures.text import axis_unit, harmless
from bfcviz.figures.theme import Paint
from bfcviz.figures.view import HeapData, View
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.find_steps import failed_steps, failure_before
from bfcviz.units import counted, exact_bytes, format_bytes, short_address

# ------------------------------------------------------------------------------
# The panel of the best runs: each a row of its chunks, from its start, all rows on one scale.

MOST_BARS: Final = 1000
"""Chunks of one run with a bar of their own, the largest; one bar behind them stands for all others."""

_MOST_NAMES: Final = 3
_APART: Final = 0.24  # of the widest run: the least distance between two names
_LONGEST: Final = 26  # characters of a name
_ROWS_AXIS: Final = {"showgrid": False, "fixedrange": True, "tickfont": {"size": 10}}
_RUNS_DEFINITION: Final = (
    "Each row: neighbouring chunks of one region that hold the request once the chunks in use among them are freed.<br>"
    "The first row needs the fewest bytes freed. The dotted line is the size of the request."
)


def runs_panel(found: Diagnosis, model: Model, look: Look) -> Panel:
    """The runs in the figure of a failed request as rows of bars."""
    theme, runs = look.paints, found.runs
    widest = max((run.size for run in runs), default=max(1, found.rounded))
    divisor, unit = axis_unit(widest)
    chunks = _chunks_at_failure(found, model)
    free, used, rest = (_FailureRunBars(divisor) for _ in range(3))
    for row, run in enumerate(runs):
        mine = chunks[run.first : run.stop]
        large = np.sort(np.argsort(~mine["size"], kind="stable")[:MOST_BARS])
        if len(large) < len(mine):
            rest.add(row, 0, run.size, f"{len(mine) - len(large):,} smaller chunks")
        for chunk in mine[large]:
            bars, start = used if chunk["in_use"] else free, int(chunk["address"]) - run.address
            bars.add(row, start, int(chunk["size"]), _failure_chunk_hover(chunk, model))
    return Panel(
        name="failure_runs",
        title="Best places",
        caption=f"chunks from the start of each place ({unit}); {_failure_caption(found)}",
        definition=_RUNS_DEFINITION,
        traces=[
            rest.trace("smaller chunks", theme.other),
            free.trace("free", theme.free),
            used.trace("in use: pins the place", theme.in_use),
            _pin_name_texts(found, divisor, widest, theme.text),
            _failure_request_line(found, divisor, theme.oom),
        ],
        xaxis={
            "range": [0, 1.04 * max(widest, found.rounded) / divisor],
            "title": {"text": f"bytes from the start ({unit})"},
            "tickformat": ",~g",
        },
        yaxis={
            **_ROWS_AXIS,
            "range": [max(1, len(runs)) - 0.4, -0.6],
            "tickvals": list(range(len(runs))),
            "ticktext": [f"place {row}<br>{short_address(run.address)}" for row, run in enumerate(runs, 1)],
        },
        x_unit=divisor,
    )


def failure_table(found: Diagnosis, model: Model) -> pa.Table:
    """The table of a failed request: a row per size, then one per chunk of the runs; sizes in bytes."""
    sizes = _failure_sizes(found)
    chunks = _chunks_at_failure(found, model)
    parts = [chunks[run.first : run.stop] for run in found.runs]
    rows = np.concatenate(parts) if parts else chunks[:0]
    places = np.repeat(np.arange(1, len(parts) + 1), [len(part) for part in parts])
    in_use, name = rows["in_use"].tolist(), model.trace.labels.name
    none = [None] * len(sizes)
    table = pa.table(
        {
            "what": pa.array([*sizes, *["chunk"] * len(rows)], pa.string()),
            "size": pa.array([*sizes.values(), *rows["size"].tolist()], pa.uint64()),
            "place": pa.array([*none, *places.tolist()], pa.int8()),
            "address": pa.array([*none, *rows["address"].tolist()], pa.uint64()),
            "requested": pa.array([*none, *rows["requested"].tolist()], pa.uint64()),
            "state": pa.array([*none, *("in use" if used else "free" for used in in_use)], pa.string()),
            "label": pa.array([*none, *map(name, rows["label"].tolist())], pa.string()),
        }
    )
    return without_unknown(table, unknown_of_chunks(model.trace.origin.details, model.pool))


def _chunks_at_failure(found: Diagnosis, model: Model) -> NDArray[np.void]:
    with model.visiting(found.step) as there:
        return there.chunks()


def _failure_caption(found: Diagnosis) -> str:
    if not found.runs:
        return "no region holds the request" if found.requested else "nothing was asked"
    run = found.runs[0]
    return f"the first needs {format_bytes(run.bytes_in_use)} freed in {counted(run.chunks_in_use, 'chunk')}"


class _FailureRunBars:
    """Chunks of the best runs in the figure of a failure, as horizontal bars of one colour."""

    def __init__(self, divisor: int) -> None:
        self._divisor = divisor
        self._rows: list[int] = []
        self._bases: list[float] = []
        self._widths: list[float] = []
        self._texts: list[str] = []

    def add(self, row: int, start: int, size: int, text: str) -> None:
        self._rows.append(row)
        self._bases.append(start / self._divisor)
        self._widths.append(size / self._divisor)
        self._texts.append(text)

    def trace(self, name: str, paint: Paint) -> dict[str, Any]:
        return {
            **FLAT_BARS,
            "name": name,
            "x": self._widths,
            "base": self._bases,
            "y": self._rows,
            "width": 0.5,
            "offset": -0.3,  # room for the names below
            "marker": {"color": paint.fill, "line": {"color": paint.line, "width": 1}},
            "hovertext": self._texts,
            "showlegend": bool(self._rows),
        }


def _failure_chunk_hover(chunk: np.void, model: Model) -> str:
    place = f"{exact_bytes(int(chunk['size']))} at {int(chunk['address']):#x}"
    if not chunk["in_use"]:
        return f"<b>free</b><br>{place}"
    name = model.trace.labels.name(int(chunk["label"]))
    return f"<b>{harmless(name) if name else NO_LABEL}</b><br>{place}"


def _pin_name_texts(found: Diagnosis, divisor: int, widest: int, colour: str) -> dict[str, Any]:
    """The names of the largest pins in the figure of a failure, below their chunks, where they have room."""
    places = [
        (middle / divisor, row + 0.34, text)
        for row, run in enumerate(found.runs)
        for middle, text in _pin_name_places(run, widest)
    ]
    return {
        **TEXTS,
        "x": [x for x, _, _ in places],
        "y": [y for _, y, _ in places],
        "text": [text for _, _, text in places],
        "textposition": "middle center",
        "textfont": {"size": 10, "color": colour},
        "cliponaxis": False,
    }


def _pin_name_places(run: Run, widest: int) -> list[tuple[float, str]]:
    found: list[tuple[float, str]] = []
    for pin in largest_first(run.pins):
        middle = pin.address + pin.size / 2 - run.address
        if len(found) < _MOST_NAMES and all(abs(middle - other) >= _APART * widest for other, _ in found):
            name = harmless(pin.label, _LONGEST) if pin.label else NO_LABEL
            found.append((middle, f"{name}, {format_bytes(pin.size)}"))
    return found


def _failure_request_line(found: Diagnosis, divisor: int, colour: str) -> dict[str, Any]:
    """A line at the size of the failed request."""
    at = found.rounded / divisor
    rows = range(len(found.runs))
    return {
        **LINES,
        "name": "asked",
        "x": [x for _ in rows for x in (at, at, None)],
        "y": [y for row in rows for y in (row - 0.4, row + 0.24, None)],  # not through the names
        "line": {"color": colour, "width": 2, "dash": "dot"},
        "showlegend": bool(found.runs),
    }


# ------------------------------------------------------------------------------
# The panel of sizes; and which request the figure is about.

_HEIGHT: Final = 150  # pixels of the panel of sizes
_ROW: Final = 76  # pixels of a run
_DEFINITION: Final = (
    "asked: the request; the dotted line is its size as the heap rounds it up.<br>free: all free chunks together.<br>"
    "wasted: bytes of chunks in use that were not requested."
)


def failure_to_show(model: Model, look: Look) -> Diagnosis:
    """The request that `look` asks about, or the last failure before the model's step, else the first after it."""
    trace, step = model.trace, model.step
    if look.wanted is not None and look.wanted > 0:
        return would_fit(trace, step, look.wanted, model, pool=model.pool)
    if failure_before(model) is not None:
        return diagnose(trace, step - 1, model)
    chosen = failure_step_to_show(trace, model.pool, step)
    return without_failure(trace, model.pool, model) if chosen is None else diagnose(trace, chosen - 1, model)


def failure_step_to_show(trace: Trace, pool: int, step: int) -> int | None:
    """The step of the last failure at or before a step, else of the first after it; None where none failed."""
    steps = failed_steps(trace, pool)
    return max((each for each in steps if each <= step), default=steps[0]) if steps else None


def sizes_panel(found: Diagnosis, look: Look) -> Panel:
    """The sizes in the figure of a failed request: asked, largest free chunk, free and wasted, on one scale."""
    theme = look.paints
    paints = (Paint(theme.paper, theme.oom), theme.free, theme.free, theme.waste)
    sizes = _failure_sizes(found)
    most = max(1, *(size or 0 for size in sizes.values()))
    divisor, unit = axis_unit(most)
    verdict = found.verdict.replace("_", " ")
    asked = f"{format_bytes(found.requested)} asked: {verdict}" if found.requested else "no request failed"
    return Panel(
        name="failure_sizes",
        title=f"Request and free memory ({unit})",
        caption=f"{asked}; step {found.told_step:,}",
        definition=_DEFINITION,
        traces=[
            _failure_size_bar(name, size, paint, divisor)
            for (name, size), paint in zip(sizes.items(), paints, strict=True)
        ],
        xaxis={
            "range": [0, 1.18 * most / divisor],
            "title": {"text": f"size ({unit})"},
            "tickformat": ",~g",
            "showgrid": True,
        },
        yaxis={**_ROWS_AXIS, "autorange": "reversed", "automargin": False},
        x_unit=divisor,
    )


def _failure_sizes(found: Diagnosis) -> dict[str, int | None]:
    """The bars of sizes in the figure of a failure, from the top; None: unknown."""
    return {
        "asked": found.requested,
        "largest free chunk": found.largest_free_chunk if found.knows("largest_free_chunk") else None,
        "free": found.free_bytes if found.knows("free_bytes") else None,
        "wasted": found.wasted if found.recorded.has_heap else None,
    }


def _failure_size_bar(name: str, size: int | None, paint: Paint, divisor: int) -> dict[str, Any]:
    text = "unknown" if size is None else format_bytes(size)
    return {
        **FLAT_BARS,
        "name": name,
        "showlegend": False,
        "x": [(size or 0) / divisor],
        "y": [name.replace("largest free chunk", "largest<br>free chunk")],
        "width": 0.7,
        "marker": {"color": paint.fill, "line": {"color": paint.line, "width": 2 if name == "asked" else 1}},
        "text": [text],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [f"<b>{name}</b>: {text if size is None else exact_bytes(size)}"],
    }


@dataclass(frozen=True)
class Failure:
    """What the figure of a failed request shows: a diagnosis with its runs, and the model that it was made from."""

    diagnosis: Diagnosis
    model: Model


def _failure_data(heap: HeapData, look: Look) -> Failure:
    """The failed request that the figure shows, with the runs worth showing."""
    found = failure_to_show(heap.model, look)
    return Failure(replace(found, runs=found.useful_runs or found.runs[:1]), heap.model)


VIEW: Final = View(
    name="failure",
    title="failed request",
    data=_failure_data,
    panels=lambda found, _heap, look: [
        sizes_panel(found.diagnosis, look),
        runs_panel(found.diagnosis, found.model, look),
    ],
    table=lambda found: failure_table(found.diagnosis, found.model),
    height=lambda found, _look: [_HEIGHT, _ROW * max(1, len(found.diagnosis.runs))],
    panel_names=("failure_sizes", "failure_runs"),
)
