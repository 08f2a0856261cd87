"""The region map of a running heap as an image, updated by events alone.

The bytes of each cell are kept as sums: an ALLOCATE adds its chunk, a FREE subtracts it. An image costs its pixels and
the events since the last image, however many chunks the heap has.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.figures import raster_image
from bfcviz.figures.colouring import Colouring
from bfcviz.figures.region_map.cells import Cells
from bfcviz.figures.region_map.rows import lay_out
from bfcviz.figures.text import axis_unit
from bfcviz.figures.theme import Theme
from bfcviz.model import CHUNK, Model

_CELLS: Final = 7680  # fewer than the map of a heap that is not running
_MOST_COLUMNS: Final = 480
_FEWEST_COLUMNS: Final = 60
_LOW: Final = np.uint64(0xFFFF_FFFF)


class LiveMap:
    """The whole region map of one heap as an image, from the model's step on.

    A region that is granted later is missing: it needs a new map. A colouring by age needs a new map too, because
    ages change without events: see `moves`.

    Args:
        model: the heap; its chunks are read here, and the model is not kept.
        colours: the colouring of chunks in use.
        theme: all other colours.

    Attributes:
        step: the step that is shown.
        rows: the layout of the regions.
        divisor: bytes per unit of the map's x axis.
        cells: the bytes of each cell; None if the heap has no region.
    """

    def __init__(self, model: Model, colours: Colouring, theme: Theme) -> None:
        self.step = model.step
        self.rows = lay_out(model.regions())
        self.divisor = axis_unit(float(self.rows.width))[0]
        self.colours = colours
        self._theme = theme
        self._columns = int(np.clip(_CELLS // max(len(self.rows), 1), _FEWEST_COLUMNS, _MOST_COLUMNS))
        self.cells = self._cells_of(model) if len(self.rows) else None

    @property
    def moves(self) -> bool:
        """Whether events alone can update it."""
        return self.colours.name != "age"

    @property
    def _by_state(self) -> bool:
        return self.colours.name == "state"

    def take(self, events: Events) -> None:
        """Apply `events`, those from `step` on."""
        self.step += len(events)
        if self.cells is not None:
            self.cells.take(events, self._classes(events if self._by_state else live_map_chunks(events)))

    def image(self) -> dict[str, Any]:
        """The fields of plotly's image trace that change."""
        if self.cells is None:
            return {"visible": False}
        fills = [paint.fill for paint in self.colours.paints]
        held, waste = self.cells.cell_bytes(), self.colours.shows_waste
        picture = raster_image.paint(held, fills, self._theme, waste=waste)
        dx, dy = self.rows.width / self.divisor / self._columns, len(self.rows) / len(picture)
        place = {"dx": dx, "dy": dy, "x0": dx / 2, "y0": dy / 2}
        return {"visible": True, "source": picture.data_uri(), **place}

    def _cells_of(self, model: Model) -> Cells:
        cells = Cells(self.rows, self._columns, len(self.colours.paints), model.pool)
        used = model.in_use()
        cells.add_chunks(used["address"], used["size"], used["requested"], self._classes(used))
        return cells

    def _classes(self, chunks: NDArray[np.void]) -> NDArray[np.uint8]:
        """The class of each chunk in use; coloured by state there is only one class."""
        return np.zeros(len(chunks), np.uint8) if self._by_state else self.colours.classes(chunks, self.step)


def live_map_chunks(events: Events) -> NDArray[np.void]:
    """The chunk that each ALLOCATE and FREE adds to a live map, or takes from it, as CHUNK records in use."""
    chunks = np.zeros(len(events), CHUNK)
    for name in ("address", "size", "requested", "label", "thread", "stream"):
        chunks[name] = events[name]
    # `other` of a FREE is the low half of the `seq` of its ALLOCATE.
    seq, low = events["seq"], events["other"].astype(np.uint64)
    born = (seq & ~_LOW) + low - np.where(low > seq & _LOW, _LOW + np.uint64(1), np.uint64(0))
    chunks["born"] = np.where(events["kind"] == Kind.FREE, born, seq)
    chunks["in_use"] = True
    return chunks
