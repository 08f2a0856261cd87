"""Region maps of several heaps at the same moment, side by side: the same bytes a pixel, the same colours.

All regions of a heap follow each other without gaps, like text: the area of a map is the size of the pool. Frames show
where regions begin and end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import Colouring, colouring
from bfcviz.figures.panel import BELOW, Margins, Panel, Picture, Place, compose
from bfcviz.figures.region_map import traces as hover
from bfcviz.figures.region_map import traces as map_traces
from bfcviz.figures.region_map.figure import EXACT_CHUNKS, chunk_table
from bfcviz.figures.region_map.rows import Pieces, Rows
from bfcviz.figures.region_map.traces import VisibleChunks, outline
from bfcviz.figures.text import axis_unit, harmless
from bfcviz.figures.view_options import PLAIN, Look
from bfcviz.model import Model
from bfcviz.model.model import REGION
from bfcviz.units import format_bytes

MOST_ROWS: Final = 20
"""Rows of the largest heap, at most."""

_COLUMNS: Final = 2  # maps beside each other
_ROW: Final = 12  # pixels
_GAP: Final = 0.05  # of the width, between maps
_PIXELS: Final = 460  # width of a map, about
_TITLE_LETTER, _LETTER = 8.0, 6.0  # pixels of a letter
_HOVERED: Final = 0.006  # of the width: a narrower chunk has no text
_LONGEST: Final = 46  # characters of a name
_FRAMED: Final = 0.02  # of the width: the frames of narrower regions would be a black area
_DEFINITION: Final = (
    "All maps show the heap after the same request, with the same bytes a pixel.<br>"
    "frame: a region; all regions follow each other, in the order of their addresses. Narrow ones have no frame.<br>"
    "colour: the same holder has the same colour in every map; its shades are further parts of that holder."
)


@dataclass(frozen=True)
class HeapAtStep:
    """One of the heaps; all have the same labels, by number.

    Attributes:
        name: of the policy.
        trace: its events; it has one heap.
        step: events applied.
        failed: whether a request failed at this step.
        role: such as `as recorded`, the title in place of the name; empty: none.
    """

    name: str
    trace: Trace
    step: int
    failed: bool = False
    role: str = ""


def maps_figure(heaps: Sequence[HeapAtStep], moment: str, look: Look | None = None) -> Picture:
    """The heaps side by side.

    Args:
        heaps: one or more.
        moment: what they have in common, such as `after request 12`.
        look: the theme and the colouring, which is that of the first heap; None: light, by holder.

    Returns:
        The figure; its table has one row per chunk, with the name of its policy.
    """
    look = look or replace(PLAIN, colour="holder")
    models = [_model_of(heap) for heap in heaps]
    colours = colouring(models[0].trace, 0, look.colour, look.paints, models[0].chunks())
    sizes = [_pool_bytes(model) for model in models]
    width = _row_width(max(sizes))
    rows = max(1, *(-(-size // width) for size in sizes))
    columns = min(_COLUMNS, len(heaps))
    height = _ROW * rows
    maps = _Maps(look, colours, width, rows, (_PIXELS, height))
    panels = [
        maps.panel(number, heap, model, legend=number == 0 if number < columns else None)
        for number, (heap, model) in enumerate(zip(heaps, models, strict=True))
    ]
    tables = [
        chunk_table(model).add_column(0, "policy", pa.array([heap.name] * len(model.chunks()), pa.string()))
        for heap, model in zip(heaps, models, strict=True)
    ]
    picture = compose(panels, _places(panels, columns, height), look.paints, Margins(left=60, right=24))
    return picture.with_table(pa.concat_tables(tables)).with_facts(
        f"{harmless(moment)} · shades of a colour: parts of that holder"
    )


def _model_of(heap: HeapAtStep) -> Model:
    model = Model(heap.trace)
    model.seek(heap.step)
    return model


def _pool_bytes(model: Model) -> int:
    return int(model.regions()["size"].sum())


def _row_width(most: int) -> int:
    """Bytes of a row: the smallest power of two at which the largest heap has at most `MOST_ROWS`."""
    width = 256
    while width * MOST_ROWS < most:
        width *= 2
    return width


def _places(panels: Sequence[Panel], columns: int, height: int) -> list[Place]:
    width = (1 - _GAP * (columns - 1)) / columns
    places, top = [], panels[0].above
    for number, panel in enumerate(panels):
        if number and not number % columns:
            top += height + BELOW + panel.above
        left = (number % columns) * (width + _GAP)
        places.append(Place(left, left + width, top, height))
    return places


@dataclass(frozen=True)
class _Maps:
    """What all maps have in common: bytes of a row, rows, and pixels of a map."""

    look: Look
    colours: Colouring
    width: int
    rows: int
    pixels: tuple[int, int]

    def panel(self, number: int, heap: HeapAtStep, model: Model, *, legend: bool | None) -> Panel:
        """The map of one heap; `legend` None: without room for one."""
        divisor, unit = axis_unit(self.width)
        regions = model.regions()
        chunks, placed = model.chunks(), _in_one_row(model.chunks(), regions)
        rows = _rows_of(regions, self.width)
        visible = VisibleChunks(
            chunks=placed,
            rows=rows,
            part=rows.part(None),
            divisor=divisor,
            theme=self.look.paints,
            colours=self.colours,
            classes=self.colours.classes(placed, model.step),
            faded=np.zeros(len(placed), bool),
            legend=self.look.legend,
            pixels=(self.pixels[0], self.pixels[1] * len(rows) // self.rows),
        )
        traces = self._traces(visible, chunks, regions, model)
        name = harmless(heap.role or heap.name, _LONGEST)
        return Panel(
            name=f"map_{number}",
            title=name,
            caption=_caption(model, heap),
            definition=_DEFINITION,
            traces=traces if legend else [_unlisted(trace) for trace in traces],
            xaxis={
                "title": {"text": f"offset in the row ({unit})"},
                "range": [0, self.width / divisor],
                "showgrid": False,
                "zeroline": False,
            },
            yaxis={
                "range": [self.rows, -0.1],
                "tickvals": [row for row in range(self.rows) if not row % 4],
                "ticktext": [f"{row * self.width // divisor:,}" for row in range(self.rows) if not row % 4],
                "title": {"text": f"bytes before the row ({unit})", "font": {"size": 11}},
                "showgrid": False,
                "zeroline": False,
                "scaleanchor": False,  # an image must not keep its pixels square
            },
            x_unit=divisor,
            legend=legend is not None,
        )

    def _traces(
        self, visible: VisibleChunks, chunks: NDArray[np.void], regions: NDArray[np.void], model: Model
    ) -> list[dict[str, Any]]:
        labels = model.trace.labels
        exact = len(visible.chunks) + len(visible.rows) <= EXACT_CHUNKS
        shape = map_traces.exact_traces if exact else map_traces.image_traces
        found = [*shape(visible, labels), _frames(self._framed(regions, visible), visible)]
        if exact:
            wide = visible.pieces.right - visible.pieces.left > _HOVERED * visible.screen
            points = hover.points_in_pieces(
                chunks, visible.pieces.only(wide), visible.part, labels, model.step
            )
            found.append(
                {
                    "type": "scatter",
                    "mode": "none",
                    **points,
                    "x": points["x"] / visible.divisor,
                    "showlegend": False,
                }
            )
        return [*found, map_traces.note(visible)]

    def _framed(self, regions: NDArray[np.void], visible: VisibleChunks) -> Pieces | None:
        """The pieces of regions that are wider than their frame; None: there is no region."""
        if not len(regions):
            return None
        pieces = visible.rows.pieces(_packed_starts(regions), regions["size"])
        return pieces.only(regions["size"][pieces.source] >= _FRAMED * self.width)


def _unlisted(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace without an entry in the legend; an image has none."""
    return trace if trace["type"] == "image" else {**trace, "showlegend": False}


def _caption(model: Model, heap: HeapAtStep) -> str:
    """The totals, and whether a request failed; only what has room beside the name."""
    failed = "out of memory" if heap.failed else ""
    totals = f"{format_bytes(int(model.table.bytes_in_use))} of {format_bytes(_pool_bytes(model))}"
    room = _PIXELS - _TITLE_LETTER * min(len(heap.role or heap.name), _LONGEST)
    both = "; ".join(filter(None, [failed, totals]))
    return next((text for text in (both, failed) if _LETTER * len(text) < room), "")


def _packed_starts(regions: NDArray[np.void]) -> NDArray[np.uint64]:
    """Where each region begins, if they follow each other without gaps."""
    sizes: NDArray[np.uint64] = regions["size"]
    return np.cumsum(sizes, dtype=np.uint64) - sizes


def _in_one_row(chunks: NDArray[np.void], regions: NDArray[np.void]) -> NDArray[np.void]:
    """The chunks, at their addresses if the regions follow each other without gaps."""
    placed = chunks.copy()
    if len(chunks):
        starts: NDArray[np.uint64] = regions["address"]
        region = np.searchsorted(starts, chunks["address"], side="right") - 1
        moved = _packed_starts(regions) - starts
        placed["address"] += moved[region]
    return placed


def _rows_of(regions: NDArray[np.void], width: int) -> Rows:
    """The rows of all regions together, as of one."""
    whole = np.zeros(1 if len(regions) else 0, REGION)
    whole["size"] = regions["size"].sum()
    rows = -(-whole["size"].astype(np.int64) // width)
    first = np.concatenate([[0], np.cumsum(rows)]).astype(np.intp)
    return Rows(width, whole["address"], whole["size"], whole["slot"], first)


def _frames(pieces: Pieces | None, visible: VisibleChunks) -> dict[str, Any]:
    """The edges of the regions."""
    trace = outline("region", pieces, visible.divisor, visible.theme.text, 1.1) if pieces is not None else {}
    return {"type": "scatter", "mode": "lines", **trace, "showlegend": False}
