"""The ladder of free chunks: sorted by size, each as wide and as high as its bytes, the request as a line across.

::

    - - - - - - - - - - - - - - - -  asked
    +--------+
    |        |------+
    |        |      |---+--          right end: all free bytes

A request above the first step fits in no free chunk. Where the line crosses the steps, everything to its right is
free memory that the request cannot use. Chunks narrower than a pixel share one step.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.analysis.would_fit import Request, fit_of, request_at
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import bin_numbers
from bfcviz.figures.panel import LINES, TEXTS, Panel
from bfcviz.figures.text import axis_unit, harmless
from bfcviz.figures.theme import TAKER, Paint, Theme, mixed
from bfcviz.figures.view import DashboardPlace, View, ViewTab
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model import Model
from bfcviz.units import counted, exact_bytes, format_bytes

STEPS: Final = 600
"""Steps of the ladder, at most: pixels of its width."""


@dataclass(frozen=True)
class Ladder:
    """The free chunks of a heap by size, and the request that they are compared with."""

    chunks: NDArray[np.void]  # the free chunks, of CHUNK: the largest first, of equal ones the lowest address
    request: Request | None  # the request; None: none
    rounded: int  # its bytes as the heap rounds them; 0 without a request

    @property
    def ends(self) -> NDArray[np.uint64]:
        """Bytes of each free chunk on the ladder and all larger ones, shape (n,)."""
        return np.cumsum(self.chunks["size"], dtype=np.uint64)

    @property
    def total(self) -> int:
        """All free bytes of the ladder."""
        return int(self.chunks["size"].sum())

    @property
    def takers(self) -> int:
        """How many free chunks on the ladder would take the request: the first ones."""
        return int(np.count_nonzero(self.chunks["size"] >= self.rounded)) if self.request else 0


def ladder_of(model: Model, look: Look) -> Ladder:
    """The free chunks of the model's step, and the request of `look` or of the failure just before the step."""
    chunks = model.chunks()
    free = chunks[np.flatnonzero(~chunks["in_use"])]
    free = free[np.lexsort((free["address"], ~free["size"]))]
    request = request_at(model, look.wanted)
    return Ladder(free, request, fit_of(model, request.size).found.rounded if request else 0)


# `first`: index of its first chunk; `size`: of its largest one.
_STEP: Final = np.dtype(
    [("first", "<i8"), ("count", "<i8"), ("left", "<u8"), ("bytes", "<u8"), ("size", "<u8"), ("takes", "?")]
)


def steps_of(found: Ladder) -> NDArray[np.void]:
    """The free chunks as at most about `STEPS` steps of the ladder: narrow ones share a step with those beside."""
    count = len(found.chunks)
    ends = found.ends
    lefts = ends - found.chunks["size"]
    firsts = np.arange(count)
    if count > STEPS:
        pixel = lefts // np.uint64(max(found.total // STEPS, 1))
        takes = firsts < found.takers
        firsts = np.flatnonzero(np.append(True, (np.diff(pixel) > 0) | (np.diff(takes))))
    steps = np.zeros(len(firsts), _STEP)
    steps["first"], steps["count"] = firsts, np.diff(np.append(firsts, count))
    steps["left"], steps["size"] = lefts[firsts], found.chunks["size"][firsts]
    steps["bytes"] = np.diff(np.append(lefts[firsts], np.uint64(found.total)))
    steps["takes"] = firsts < found.takers
    return steps


# ------------------------------------------------------------------------------
# The panel, its traces and its table.

_NAMED: Final = 0.085  # of the width: a narrower step shows no size
_LONGEST: Final = 30  # characters of the request's name
_DEFINITION: Final = (
    "Each step is one free chunk: its width and its height are its bytes. The whole width is all free memory.<br>"
    "A request fits if the first step reaches its line; steps below the line are free memory that it cannot use."
)


def free_chunk_at(found: Ladder, x: float) -> Selected | None:
    """The free chunk whose step of the ladder is at `x`, in the unit of the axis; None: `x` is beside all steps."""
    divisor, _ = axis_unit(max(found.total, found.rounded, 1))
    if not 0 <= x * divisor < found.total:
        return None
    at = int(np.searchsorted(found.ends, x * divisor, side="right"))
    return Selected(int(found.chunks["address"][min(at, len(found.chunks) - 1)]), None)


def ladder_panel(found: Ladder, labels: Labels, look: Look) -> Panel:
    """The ladder of free chunks as a panel; it always has the same traces in the same order, some empty."""
    theme = look.paints
    divisor, unit = axis_unit(max(found.total, found.rounded, 1))
    top = 1.15 * max(int(found.chunks["size"].max(initial=0)), found.rounded, 1) / divisor
    right = max(found.total, 1) / divisor
    steps = steps_of(found)
    takers = Paint(mixed(theme.free.fill, theme.fit, TAKER), theme.fit)
    return Panel(
        name="ladder",
        title=f"Free chunks ({unit})",
        caption=_ladder_caption(found),
        definition=_DEFINITION,
        traces=[
            _ladder_step_bars(found, steps, divisor, theme.free, takes=False),
            _ladder_step_bars(found, steps, divisor, takers, takes=True),
            _selected_ladder_step(found, look, divisor),
            _ladder_step_sizes(found, steps, divisor, theme),
            *_ladder_request_line(found, labels, (right, top), divisor, theme),
        ],
        xaxis={
            "title": {"text": f"free memory, largest chunk first ({unit})"},
            "range": [0, 1.01 * right],
            "showgrid": False,
            "tickformat": ",~g",
        },
        yaxis={"title": {"text": f"size of the chunk ({unit})"}, "range": [0, top], "tickformat": ",~g"},
        x_unit=divisor,
        y_unit=divisor,
    )


def ladder_table(found: Ladder) -> pa.Table:
    """The table of the ladder: one row per free chunk, the largest first; sizes in bytes."""
    takes = np.arange(len(found.chunks)) < found.takers
    return pa.table(
        {
            "address": found.chunks["address"],
            "size": found.chunks["size"],
            "bytes_up_to_here": found.ends,
            "bin": bin_numbers(found.chunks["size"]).astype(np.int8),
            "region": found.chunks["region"],
            "takes": pa.array(takes, mask=np.full(len(takes), found.request is None)),
        }
    )


def _ladder_step_bars(
    found: Ladder, steps: NDArray[np.void], divisor: int, paint: Paint, *, takes: bool
) -> dict[str, Any]:
    mine = steps[steps["takes"] == takes]
    return {
        "type": "bar",
        "name": "would take it" if takes else "free",
        "showlegend": len(mine) > 0,
        "x": mine["left"] / divisor,
        "width": mine["bytes"] / divisor,
        "offset": 0.0,
        "y": mine["size"] / divisor,
        "marker": {
            "color": paint.fill,
            "line": {"color": paint.line, "width": 1 if len(mine) < STEPS / 4 else 0},
        },
        "hovertext": _ladder_step_texts(found, mine),
        "hoverinfo": "text",
    }


def _ladder_step_texts(found: Ladder, steps: NDArray[np.void]) -> list[str]:
    """The hover text of each step."""
    largest = found.chunks[steps["first"]]
    least = found.chunks["size"][steps["first"] + steps["count"] - 1].tolist()
    places = zip(largest["address"].tolist(), largest["region"].tolist(), least, strict=True)
    chunks, total = len(found.chunks), max(found.total, 1)
    texts = []
    for (first, count, left, held, size, _), (address, region, smallest) in zip(
        steps.tolist(), places, strict=True
    ):
        if count == 1:
            what = f"<b>free chunk {first + 1:,} of {chunks:,}</b>: {exact_bytes(size)}"
            where = f"at {address:#x}, region {region}"
        else:
            what = f"<b>{count:,} free chunks</b>: {exact_bytes(held)}"
            where = f"each {format_bytes(smallest)} to {format_bytes(size)}"
        share = f"{(left + held) / total:.1%} of the free memory is in chunks of this size and larger ones"
        texts.append(f"{what}<br>{where}<br>{share}")
    return texts


def _selected_ladder_step(found: Ladder, look: Look, divisor: int) -> dict[str, Any]:
    """The outline of the selected free chunk."""
    chosen = look.selected
    at = np.empty(0, np.intp)
    if chosen is not None and chosen.born is None:
        at = np.flatnonzero(found.chunks["address"] == np.uint64(chosen.address))
    sizes = found.chunks["size"][at]
    return {
        "type": "bar",
        "name": "selected",
        "showlegend": len(at) > 0,
        "x": (found.ends[at] - sizes) / divisor,
        "width": sizes / divisor,
        "offset": 0.0,
        "y": sizes / divisor,
        "marker": {"color": "rgba(0,0,0,0)", "line": {"color": look.paints.selection, "width": 3}},
        "hoverinfo": "skip",
    }


def _ladder_step_sizes(found: Ladder, steps: NDArray[np.void], divisor: int, theme: Theme) -> dict[str, Any]:
    """The sizes at the steps of the ladder that have room for them."""
    wide = steps[(steps["bytes"] >= _NAMED * found.total) & (steps["count"] == 1)]
    if found.request is not None:  # not where the name of the request stands
        above = wide["size"].astype(np.float64) - found.rounded
        room = 0.1 * max(found.rounded, int(found.chunks["size"].max(initial=0)))
        wide = wide[(above < 0) | (above > room)]
    empty = not len(found.chunks)
    return {
        **TEXTS,
        "x": [0.5] if empty else (wide["left"] + wide["bytes"] / 2) / divisor,
        "y": [0.5] if empty else wide["size"] / divisor,
        "text": ["nothing is free"] if empty else [format_bytes(size) for size in wide["size"].tolist()],
        "textposition": "top center",
        "textfont": {"size": 10, "color": theme.text},
    }


_BESIDE_LINE: Final = 0.02
"""Between the line of the request and its name, as a share of the axis."""


def _ladder_request_line(
    found: Ladder, labels: Labels, ends: tuple[float, float], divisor: int, theme: Theme
) -> list[dict[str, Any]]:
    """The line on the ladder at the size of the request, and its name."""
    request, (right, top) = found.request, ends
    failed = request is not None and request.failed
    colour, level = theme.oom if failed else theme.text, found.rounded / divisor
    label = labels.name(request.label) if request is not None else ""
    name = f" {harmless(label, _LONGEST)}" if label else ""
    size = 0 if request is None else request.size
    text = f"<b>{'failed' if failed else 'asked'}: {format_bytes(size)}</b>{name}"
    shown = 1 if request is not None else 0
    line = {
        **LINES,
        "name": "failed request" if failed else "asked",
        "showlegend": False,  # its name is beside it
        "x": [0.0, right][: 2 * shown],
        "y": [level, level][: 2 * shown],
        "line": {"color": colour, "width": 2, "dash": "dash"},
    }
    is_above = level < 0.9 * top
    beside = level + (_BESIDE_LINE if is_above else -_BESIDE_LINE) * top
    name_of_line = {
        **TEXTS,
        "x": [right] * shown,
        "y": [beside] * shown,
        "text": [text] * shown,
        "textposition": "top left" if is_above else "bottom left",
        "textfont": {"size": 12, "color": colour},
    }
    return [line, name_of_line]


def _ladder_caption(found: Ladder) -> str:
    count = f"{format_bytes(found.total)} in {counted(len(found.chunks), 'chunk')}"
    if found.request is None:
        return f"{count}; each step is as wide and as high as its bytes"
    if not found.takers:
        return f"{count}; none of them would take it"
    held = int(found.chunks["size"][: found.takers].sum())
    return f"{count}; {found.takers:,} of them would take it ({format_bytes(held)})"


TAB: Final = ViewTab("free_chunks", "free chunks")
"""The tab of the ladder, with the bins that these chunks are in beside it."""

VIEW: Final = View(
    name="ladder",
    title="ladder of free chunks",
    data=lambda heap, look: ladder_of(heap.model, look),
    panels=lambda found, heap, look: [ladder_panel(found, heap.trace.labels, look)],
    table=ladder_table,
    height=300,
    at=lambda found, _heap, _look, x, _y: free_chunk_at(found, x),
    dashboard=DashboardPlace(TAB),
)
