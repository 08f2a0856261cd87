"""The bin histogram: free chunks and chunks in use of each of the 21 size classes.

The heap keeps free chunks in these bins and searches them from small to large. Both axes are logarithmic, so that
one chunk of 256 bytes and a gigabyte are both visible.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.analysis.free_chunk_search import EventSearch
from bfcviz.events.schema import MIN_CHUNK, NUM_BINS, Events, bin_of
from bfcviz.figures.free_chunk_ladder import TAB
from bfcviz.figures.map_rows import selected
from bfcviz.figures.panel import Panel
from bfcviz.figures.text import round_bytes
from bfcviz.figures.theme import Paint, Theme, translucent
from bfcviz.figures.view import DashboardPlace, HeapData, View
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.units import exact_bytes, format_bytes

# ------------------------------------------------------------------------------
# Markers of the bin histogram: the searched bins, the chunk taken, this step, the selected chunk.


@dataclass(frozen=True)
class Marks:
    """The bins of the histogram to mark, by number; empty lists mark nothing."""

    step: list[int]  # the bins of this step's events
    # first, last: the first and the last bin searched; None: no search
    first: int | None
    last: int | None
    taken: list[int]  # the bin of the chunk that the search took
    found: str  # the hover text of that chunk
    selected: list[int]  # the bin of the selected chunk


@dataclass(frozen=True)
class BinScale:
    """A logarithmic y axis of the bin histogram, from `foot` to `top`."""

    foot: float
    top: float

    def at(self, part: float) -> float:
        """The value at this part (0..1) of the axis' height."""
        return float(self.foot * (self.top / self.foot) ** part)


def marks_of(model: Model, highlight: Events | None, look: Look, search: EventSearch | None) -> Marks:
    """The bins of the histogram to mark at the model's step."""
    step: list[int] = []
    if highlight is not None:
        step = np.unique(highlight["bin"][highlight["bin"] >= 0]).tolist()
    chosen = [bin_of(int(size)) for size in selected(model.chunks(), look.selected)["size"]]
    if search is None:
        return Marks(step, None, None, [], "", chosen)
    taken = search.taken
    found = "" if taken is None else f"chunk taken: {exact_bytes(taken.size)} at {taken.address:#x}"
    return Marks(
        step=[number for number in step if taken is None or number != taken.bin],
        first=search.first_bin,
        last=search.last_bin,
        taken=[] if taken is None else [taken.bin],
        found=found,
        selected=chosen,
    )


def pointers(marks: Marks, scale: BinScale, theme: Theme) -> list[dict[str, Any]]:
    """Marker traces of the bin histogram: the chunk taken, this step, the selected chunk."""
    return [
        _bin_markers("taken", marks.taken, scale.at(0.94), ("star", 12, theme.highlight), marks.found),
        _bin_markers("this step", marks.step, scale.at(0.94), ("triangle-down", 11, theme.highlight)),
        _bin_markers("selected", marks.selected, scale.at(0.82), ("diamond-open", 10, theme.text)),
    ]


def band(marks: Marks, scale: BinScale, theme: Theme) -> dict[str, Any]:
    """The searched bins as one wide bar; it is drawn first, so it lies behind the other bars of the histogram."""
    bins = np.empty((0, 2))
    if marks.first is not None and marks.last is not None:
        bins = np.array([[marks.first, marks.last]], np.float64)
    width = bins[:, 1] - bins[:, 0] + 1
    return {
        "type": "bar",
        "name": "searched",
        "x": bins.mean(axis=1),
        "y": np.full(len(bins), scale.top - scale.foot),
        "base": scale.foot,
        "width": width,
        "offset": -width / 2,
        "marker": {"color": translucent(theme.highlight, 0.14), "line": {"width": 0}},
        "legendrank": 1001,  # after the bars, which have 1000
        "hoverinfo": "skip",
    }


def _bin_markers(
    name: str, numbers: list[int], height: float, symbol: tuple[str, int, str], text: str = ""
) -> dict[str, Any]:
    shape, size, colour = symbol
    line = {"width": 2 if "open" in shape else 0}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": np.array(numbers, np.float64),
        "y": np.full(len(numbers), height),
        "marker": {"symbol": shape, "size": size, "color": colour, "line": line},
        "cliponaxis": False,
        "legendrank": 1002,
        "hovertext": text,
        "hoverinfo": "text" if text else "skip",
    }


# ------------------------------------------------------------------------------
# The two panels.

_LEAST_BYTES = 128  # where bars of bytes start: below the smallest chunk
_LEAST_COUNT = 0.5
_DEFINITION = (
    "Bin n holds free chunks of 256 B * 2^n up to, not including, twice that; the last bin holds all larger ones.<br>"
    "Chunks in use are in no bin: they are counted by their size.<br>"
    "A request searches from the bin of its size upwards: the searched bins are shaded, and a star marks the bin of "
    "the chunk it took.<br>Bars show the heap after the step; the search ran before it."
)


class MarkedBins(NamedTuple):
    """The bins at a step: BIN records of the model, and the bins to mark."""

    rows: NDArray[np.void]
    marks: Marks


def histogram_bins(heap: HeapData, look: Look) -> MarkedBins:
    """The bins of the heap; those of its last event, of the search it made and of the selected chunk are marked."""
    return MarkedBins(heap.model.bins(), marks_of(heap.model, heap.last_event, look, heap.search()))


def bin_panels(bins: MarkedBins, look: Look) -> list[Panel]:
    """The bin histogram as two panels: bytes per bin and chunks per bin; both shade the searched bins."""
    return [_bin_bytes_panel(*bins, look.paints), _bin_chunks_panel(*bins, look.paints)]


def _bin_bytes_panel(bins: NDArray[np.void], marks: Marks, theme: Theme) -> Panel:
    top = _bin_axis_top(float(bins["free_bytes"].sum() + bins["in_use_bytes"].sum()), 16, 1 << 20)
    scale = BinScale(_LEAST_BYTES, top)
    ticks = [256 * 16**power for power in range(12) if 256 * 16**power <= top]
    return Panel(
        name="bin_bytes",
        title_names_y=True,
        title="Bytes by bin",
        caption="sizes of free chunks and of chunks in use, by chunk size; logarithmic",
        traces=_bin_traces(bins, "bytes", marks, scale, theme),
        xaxis=_bin_axis(),  # the panel below carries the title
        yaxis=_bin_amount_axis("bytes", scale, {tick: round_bytes(tick) for tick in ticks}),
        definition=_DEFINITION,
    )


def _bin_chunks_panel(bins: NDArray[np.void], marks: Marks, theme: Theme) -> Panel:
    most = float(max(bins["free_chunks"].max(), bins["in_use_chunks"].max()))
    top = _bin_axis_top(most, 10, 10)
    scale = BinScale(_LEAST_COUNT, top)
    ticks = [10**power for power in range(12) if 10**power <= top]
    traces = _bin_traces(bins, "chunks", marks, scale, theme)
    return Panel(
        name="bin_chunks",
        title_names_y=True,
        title="Chunks by bin",
        caption="number of chunks, by chunk size; logarithmic",
        # The legend of the panel above serves both.
        traces=[{**trace, "showlegend": False} for trace in traces],
        xaxis=_bin_axis() | {"title": {"text": "bin (least chunk size)"}},
        yaxis=_bin_amount_axis("number of chunks", scale, {tick: f"{tick:,}" for tick in ticks}),
        definition=_DEFINITION,
    )


def _bin_traces(
    bins: NDArray[np.void], amount: str, marks: Marks, scale: BinScale, theme: Theme
) -> list[dict[str, Any]]:
    """The traces of a panel of bins; `amount` is `bytes` or `chunks`."""
    return [
        band(marks, scale, theme),
        _bin_bars(bins, "free", amount, theme.free, base=scale.foot),
        _bin_bars(bins, "in_use", amount, theme.in_use, base=scale.foot),
        *pointers(marks, scale, theme),
    ]


def _bin_bars(
    bins: NDArray[np.void], state: str, amount: str, paint: Paint, *, base: float
) -> dict[str, Any]:
    amounts = bins[f"{state}_{amount}"].astype(np.float64)
    return {
        "type": "bar",
        "name": state.replace("_", " "),
        "x": np.arange(NUM_BINS, dtype=np.float64),
        # A logarithmic axis has no 0: an empty bin gets no bar.
        "y": np.where(amounts > 0, np.maximum(amounts - base, base * 1e-3), np.nan),
        "base": base,
        "marker": {"color": paint.fill, "line": {"color": paint.line, "width": 1}},
        "hovertext": _bin_hover_texts(bins, state),
        "hoverinfo": "text",
    }


def _bin_hover_texts(bins: NDArray[np.void], state: str) -> list[str]:
    label = state.replace("_", " ")
    columns = zip(
        bins["bin"].tolist(), bins[f"{state}_bytes"].tolist(), bins[f"{state}_chunks"].tolist(), strict=True
    )
    return [
        f"<b>{label}</b>: {chunks:,} chunks, {exact_bytes(held)}<br>bin {number}: chunks of {_bin_size_range(number)}"
        for number, held, chunks in columns
    ]


@cache
def _bin_size_range(number: int) -> str:
    least = MIN_CHUNK << number
    if number == NUM_BINS - 1:
        return f"{format_bytes(least)} or more"
    return f"{format_bytes(least)} up to, not including, {format_bytes(2 * least)}"


def _bin_axis() -> dict[str, Any]:
    shown = list(range(0, NUM_BINS, 2))
    return {
        "range": [-0.6, NUM_BINS - 0.4],
        "tickvals": shown,
        "ticktext": [round_bytes(MIN_CHUNK << number) for number in shown],
        "tickangle": -40,
        "tickfont": {"size": 10},
        "showgrid": False,
    }


def _bin_amount_axis(title: str, scale: BinScale, ticks: dict[int, str]) -> dict[str, Any]:
    return {
        "type": "log",
        "title": {"text": title},
        "range": [math.log10(scale.foot), math.log10(scale.top)],
        "tickvals": list(ticks),
        "ticktext": list(ticks.values()),
    }


def _bin_axis_top(value: float, factor: int, least: int) -> float:
    top = float(least)
    while top < value:
        top *= factor
    return top


def bin_table(found: MarkedBins) -> pa.Table:
    """The table of the bin histogram: least chunk size, bytes and number of chunks of each bin, free and in use."""
    bins = found.rows
    sizes = np.array([MIN_CHUNK << int(number) for number in bins["bin"]], dtype=np.uint64)
    amounts = ("free_bytes", "free_chunks", "in_use_bytes", "in_use_chunks")
    return pa.table({"bin": bins["bin"], "least_size": sizes, **{name: bins[name] for name in amounts}})


VIEW: Final = View(
    name="bin_histogram",
    title="bin histogram",
    data=histogram_bins,
    panels=lambda bins, _heap, look: bin_panels(bins, look),
    table=bin_table,
    height=180,
    panel_names=("bin_bytes", "bin_chunks"),
    dashboard=DashboardPlace(TAB, below=62),
)
