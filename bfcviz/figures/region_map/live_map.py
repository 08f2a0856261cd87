"""LiveMap: the region map of a heap that is at work, brought up to date by events alone.

An image of the whole map costs as much as the heap has chunks. Here each cell's bytes are kept as sums, to which an
ALLOCATE adds its chunk and from which a FREE takes it away again: a picture costs its pixels and what has happened
since the one before, whatever the heap holds.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.figures.region_map.raster import raster
from bfcviz.figures.region_map.raster.cells import Cells
from bfcviz.figures.region_map.rows import lay_out
from bfcviz.figures.style.colouring import Colouring
from bfcviz.figures.style.text import axis_unit
from bfcviz.figures.style.theme import Theme, rgb
from bfcviz.model import Model
from bfcviz.model.state.views import CHUNK

_CELLS: Final = 7680  # coarser than the map of a heap at rest
_MOST_COLUMNS: Final = 480
_FEWEST_COLUMNS: Final = 60
_LOW: Final = np.uint64(0xFFFF_FFFF)


class LiveMap:
    """The whole region map of one heap as an image, from the model's step on.

    Regions that come later are not on it: they need another map. Colours by age need one as well, for ages change
    without any event: see `moves`.

    Args:
        model: the heap; what it holds is read here, and the model not kept.
        colours: what chunks in use are coloured by.
        theme: the other colours.

    Attributes:
        step: what is shown.
        rows: where addresses lie.
        divisor: bytes that 1 on the map's x axis stands for.
    """

    def __init__(self, model: Model, colours: Colouring, theme: Theme) -> None:
        self.step = model.step
        self.rows = lay_out(model.regions())
        self.divisor = axis_unit(float(self.rows.width))[0]
        self.colours = colours
        self._theme = theme
        self._columns = int(np.clip(_CELLS // max(len(self.rows), 1), _FEWEST_COLUMNS, _MOST_COLUMNS))
        self._cells = self._held_by(model) if len(self.rows) else None

    @property
    def moves(self) -> bool:
        """Whether events alone can bring it up to date."""
        return self.colours.name != "age"

    @property
    def _by_state(self) -> bool:
        return self.colours.name == "state"

    def take(self, events: Events) -> None:
        """Go on over `events`, those from `step` on."""
        self.step += len(events)
        if self._cells is not None:
            self._cells.take(events, self._classes(events if self._by_state else chunks_of_events(events)))

    def image(self) -> dict[str, Any]:
        """What changes of plotly's image trace."""
        if self._cells is None:
            return {"visible": False}
        picture = raster.paint(self._cells.cell_bytes(), self._theme, waste=self._by_state)
        dx, dy = self.rows.width / self.divisor / self._columns, len(self.rows) / len(picture)
        place = {"dx": dx, "dy": dy, "x0": dx / 2, "y0": dy / 2}
        return {"visible": True, "source": picture.data_uri(), **place}

    def _held_by(self, model: Model) -> Cells:
        fills = np.array([rgb(paint.fill) for paint in self.colours.paints], np.float64)
        cells = Cells(self.rows, self._columns, fills, model.pool)
        used = model.in_use()
        cells.add_chunks(used["address"], used["size"], used["requested"], self._classes(used))
        return cells

    def _classes(self, chunks: NDArray[np.void]) -> NDArray[np.uint8]:
        """Of chunks in use. By state there is but one class."""
        return np.zeros(len(chunks), np.uint8) if self._by_state else self.colours.classes(chunks, self.step)


def chunks_of_events(events: Events) -> NDArray[np.void]:
    """The chunks that these ALLOCATEs and FREEs are about while in use, of CHUNK; of other events anything."""
    chunks = np.zeros(len(events), CHUNK)
    for name in ("address", "size", "requested", "label", "thread", "stream"):
        chunks[name] = events[name]
    seq, low = events["seq"], events["other"].astype(np.uint64)  # of a FREE: the low half of its ALLOCATE's
    born = (seq & ~_LOW) + low - np.where(low > seq & _LOW, _LOW + np.uint64(1), np.uint64(0))
    chunks["born"] = np.where(events["kind"] == Kind.FREE, born, seq)
    chunks["in_use"] = True
    return chunks
