"""The icicle of holders: each holder a rectangle as wide as its bytes, above those that it holds memory through.

::

    |            in use, 12 MiB            |
    |      layer_1, 10 MiB      | no label |
    |     MatMul     |   Relu   |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from bfcviz.analysis.short_names import shortened_name
from bfcviz.figures.colouring import colouring
from bfcviz.figures.panel import BARE_ROWS, FLAT_BARS, Floats, Panel, Picture
from bfcviz.figures.text import axis_unit, harmless
from bfcviz.figures.theme import Theme, contrasting
from bfcviz.figures.view import HeapData, View
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.grouping import Grouping, grouping_of
from bfcviz.model.holders import HolderIndex, Holders, SummarizedHolder, holders, summary
from bfcviz.units import counted, exact_bytes, format_bytes

MOST: Final = 150
"""Holders that are drawn by name; with those drawn together there are at most twice as many rectangles."""

_LEAST_SHARE: Final = 0.004  # of the bytes in use: a narrower rectangle is less than about 4 pixels wide

_DEEPEST: Final = 9  # rows of rectangles

_ROW: Final = 44  # pixels
_PLOT: Final = 1080  # pixels of a plot's width in an image
_LETTER: Final = 7.2  # pixels of a letter, and of the space beside a name
_FEWEST: Final = 4  # letters of a shortened name; a shorter one is left out
_DEFINITION: Final = (
    "The width of a rectangle is the bytes of its chunks in use, with those of the rectangles below it.<br>"
    "Where nothing lies below, its own chunks are; a name with a slash is a holder with only one below it.<br>"
    "'other' is all holders that are too small to draw; `bfcviz holders` and the exported table have every one."
)


def _icicle_fills(model: Model, how: Grouping, look: Look) -> dict[str, str]:
    """The colour of most bytes of each holder in the map coloured by holder, by its path in one line."""
    chunks = model.in_use()
    made = colouring(model.trace, model.pool, "holder", look.paints, chunks)
    index = HolderIndex(how)
    main = index.main_class(index.codes(chunks), made.classes(chunks, model.step), chunks["size"])
    return {index.how.text(index.path(node)): made.paints[main[node]].fill for node in range(1, len(index))}


@dataclass(frozen=True)
class Icicle:
    """The icicle of a tree of holders, and what is drawn of it."""

    found: Holders  # the tree
    parts: Sequence[SummarizedHolder]  # its rectangles, from the outermost
    fills: Mapping[str, str]  # the colour of each holder, by its path in one line

    @property
    def rows(self) -> int:
        """Rows of rectangles of an icicle."""
        return max(part.depth for part in self.parts) + 1


def icicle_of(heap: HeapData, look: Look, by: str = "op") -> Icicle:
    """The icicle of who holds the memory in use at the heap's step; `by`: see `bfcviz.model.holders`."""
    how = grouping_of(heap.trace, heap.model.pool, by)
    found = holders(heap.model, by, how)
    parts = summary(found, MOST, _LEAST_SHARE, _DEEPEST)
    return Icicle(found, parts, _icicle_fills(heap.model, how, look))


def icicle_panel(icicle: Icicle, theme: Theme) -> Panel:
    """The icicle of holders as a panel: the rectangles of their tree."""
    found, parts = icicle.found, icicle.parts
    divisor, unit = axis_unit(found.bytes_in_use)
    return Panel(
        name="holders",
        title="Memory in use",
        caption=f"who holds it at step {found.step:,}, by {found.by.replace('_', ' ')}",
        traces=[_icicle_bars(parts, found, icicle.fills, divisor, theme)],
        xaxis={
            "title": {"text": f"bytes in use ({unit})"},
            "range": [0, max(found.bytes_in_use, 1) / divisor],
            "showgrid": False,
        },
        yaxis={**BARE_ROWS, "range": [icicle.rows, 0]},
        x_unit=float(divisor),
        definition=_DEFINITION,
    )


def _icicle_bars(
    parts: Sequence[SummarizedHolder], found: Holders, fills: Mapping[str, str], divisor: int, theme: Theme
) -> dict[str, Any]:
    left, width = _icicle_part_sides(parts, divisor)
    coloured = [_icicle_part_fill(part, found, fills, theme) for part in parts]
    return {
        **FLAT_BARS,
        "name": "holders",
        "showlegend": False,
        "x": width,
        "base": left.tolist(),  # plotly's page decodes no binary array here
        "y": np.array([part.depth + 0.5 for part in parts]),
        "width": 0.96,
        "marker": {"color": coloured, "line": {"color": theme.paper, "width": 1}},
        "text": _icicle_part_texts(parts, width * divisor, found),
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
        "insidetextfont": {"size": 12, "color": [contrasting(fill) for fill in coloured]},
        "hovertext": [_icicle_part_hover(part, parts, found) for part in parts],
    }


def _icicle_part_sides(parts: Sequence[SummarizedHolder], divisor: int) -> tuple[Floats, Floats]:
    """The left edge and the width of each part of an icicle: side by side, from the edge of the part around."""
    lefts, filled = [0] * len(parts), [0] * len(parts)
    for number, part in enumerate(parts):
        if part.parent >= 0:
            lefts[number] = lefts[part.parent] + filled[part.parent]
            filled[part.parent] += part.bytes
    widths = np.array([part.bytes for part in parts], np.float64)
    return np.array(lefts, np.float64) / divisor, widths / divisor


def _icicle_part_fill(part: SummarizedHolder, found: Holders, fills: Mapping[str, str], theme: Theme) -> str:
    """The colour of an icicle's part: that of the map; all memory and small holders together have none."""
    if part.row < 0:
        return theme.other.fill
    return theme.pool.fill if part.depth == 0 else fills[found.path(part.row)]


def _icicle_part_texts(parts: Sequence[SummarizedHolder], widths: Floats, found: Holders) -> list[str]:
    """Name, bytes and share of an icicle's part, where the rectangle has room for them."""
    texts = []
    for part, width in zip(parts, widths.tolist(), strict=True):
        share = width / max(found.bytes_in_use, 1)
        room = int(share * _PLOT / _LETTER) - 1
        if room < _FEWEST:
            texts.append("")
            continue
        full = part.name if part.row >= 0 else f"other ({part.holders:,})"
        name = harmless(_shortened_holder_path(full, room, found.separator), room)
        size = format_bytes(part.bytes)
        sizes = (each for each in (f"{size}, {100 * share:.0f} %", size) if len(each) <= room)
        texts.append("<br>".join([name, *islice(sizes, 1)]))
    return texts


def _shortened_holder_path(name: str, room: int, separator: str) -> str:
    """A path in an icicle without what does not fit: a name keeps its start, a stack its innermost frame."""
    if len(name) <= room:
        return name
    first, _, _ = name.partition("/")
    best = first if separator == "/" else name.rpartition(separator)[2]
    return shortened_name(best, max(room, 2))


def _icicle_part_hover(part: SummarizedHolder, parts: Sequence[SummarizedHolder], found: Holders) -> str:
    share = 100 * part.bytes / max(found.bytes_in_use, 1)
    what = f"other: {counted(part.holders, 'small holder')} together"
    around = found.path(part.row) if part.row > 0 else part.name
    lines = [f"<b>{harmless(around if part.row >= 0 else what)}</b>"]
    if part.parent > 0:
        lines.append(f"in {harmless(parts[part.parent].name)}")
    lines.append(f"{exact_bytes(part.bytes)}, {share:.1f} % of all bytes in use")
    lines.append(counted(part.chunks, "chunk"))
    if found.requested_known:
        lines[-1] += f", {exact_bytes(part.requested)} requested"
    if part.row >= 0 and 0 < part.own_bytes < part.bytes:
        lines.append(f"{exact_bytes(part.own_bytes)} of it in no rectangle below")
    return "<br>".join(lines)


def draw_holders(model: Model, by: str, look: Look) -> Picture:
    """The icicle of who holds the memory in use at the model's step, by another property than the name."""
    return replace(VIEW, data=lambda heap, look: icicle_of(heap, look, by)).draw(model, look)


VIEW: Final = View(
    name="holders",
    title="holders",
    data=icicle_of,
    panels=lambda icicle, _heap, look: [icicle_panel(icicle, look.paints)],
    table=lambda icicle: icicle.found.to_arrow(),
    height=lambda icicle, _look: [max(icicle.rows, 3) * _ROW],
)
