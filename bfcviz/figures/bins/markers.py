"""Markers of the bin histogram: the searched bins, the chunk taken, this step, the selected chunk."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bfcviz.events.schema import Events, bin_of
from bfcviz.figures.region_map.highlights import selected
from bfcviz.figures.style.colour_math import translucent
from bfcviz.figures.style.text import exact_bytes
from bfcviz.figures.style.theme import Theme
from bfcviz.figures.style.view_options import Look
from bfcviz.model import Model
from bfcviz.model.explain.search import Search


@dataclass(frozen=True)
class Marks:
    """The bins to mark, by number; empty lists mark nothing.

    Attributes:
        step: the bins of this step's events.
        first, last: the first and the last bin searched; None: no search.
        taken: the bin of the chunk that the search took.
        found: the hover text of that chunk.
        selected: the bin of the selected chunk.
    """

    step: list[int]
    first: int | None
    last: int | None
    taken: list[int]
    found: str
    selected: list[int]


@dataclass(frozen=True)
class Scale:
    """A logarithmic y axis from `foot` to `top`."""

    foot: float
    top: float

    def at(self, part: float) -> float:
        """The value at this part (0..1) of the axis' height."""
        return float(self.foot * (self.top / self.foot) ** part)


def marks_of(model: Model, highlight: Events | None, look: Look, search: Search | None) -> Marks:
    """The bins to mark at the model's step."""
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


def pointers(marks: Marks, scale: Scale, theme: Theme) -> list[dict[str, Any]]:
    """Marker traces: the chunk taken, this step, the selected chunk."""
    return [
        _markers("taken", marks.taken, scale.at(0.94), ("star", 12, theme.highlight), marks.found),
        _markers("this step", marks.step, scale.at(0.94), ("triangle-down", 11, theme.highlight)),
        _markers("selected", marks.selected, scale.at(0.82), ("diamond-open", 10, theme.text)),
    ]


def band(marks: Marks, scale: Scale, theme: Theme) -> dict[str, Any]:
    """The searched bins as one wide bar; it is drawn first, so it lies behind the other bars."""
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


def _markers(
    name: str, numbers: list[int], height: float, symbol: tuple[str, int, str], text: str = ""
) -> dict[str, Any]:
    shape, size, colour = symbol
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": np.array(numbers, np.float64),
        "y": np.full(len(numbers), height),
        "marker": {
            "symbol": shape,
            "size": size,
            "color": colour,
            "line": {"width": 2 if "open" in shape else 0},
        },
        "cliponaxis": False,
        "legendrank": 1002,
        "hovertext": text,
        "hoverinfo": "text" if text else "skip",
    }
