"""Glance: the region map of a heap that is at work, brought up to date by events alone.

An image of the whole map costs as much as the heap has chunks. Here each cell's bytes are kept as sums, to which an
ALLOCATE adds its chunk and from which a FREE takes it away again: a picture costs its pixels and what has happened
since the one before, whatever the heap holds.

The sums are those of differences: a chunk from 1.25 to 3.5 cells is +0.75 at cell 1, +0.25 at 2, -0.5 at 3 and
-0.5 at 4, and the running total says 0.75, 1, 0.5, 0: four numbers a chunk, however many cells it covers.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.rows import taken
from bfcviz.events.schema import Events, Kind
from bfcviz.figures import raster
from bfcviz.figures.colouring import Colouring
from bfcviz.figures.png import data_uri
from bfcviz.figures.rows import lay_out
from bfcviz.figures.text import axis_unit
from bfcviz.figures.theme import Theme, rgb
from bfcviz.model import Model
from bfcviz.model.state import CHUNK

_CELLS: Final = 7680  # coarser than the map of a heap at rest
_MOST_COLUMNS: Final = 480
_FEWEST_COLUMNS: Final = 60
_NOTHING: Final = 1e-7  # of a cell: rounding, in a heap whose addresses need all bits of a number
_LOW: Final = np.uint64(0xFFFF_FFFF)


class Glance:
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
        self._pool, self._theme = model.pool, theme
        self._columns = int(np.clip(_CELLS // max(len(self.rows), 1), _FEWEST_COLUMNS, _MOST_COLUMNS))
        self._cells = len(self.rows) * self._columns
        self._fills = np.array([rgb(paint.fill) for paint in colours.paints], np.float64)
        # By state: bytes in use, bytes of waste. Else: bytes in use, and these times each of the three colours.
        self._sums = np.zeros((2 if self._by_state else 4, self._cells + 2))
        used = model.in_use()
        self._add(used, np.ones(len(used)))

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
        kinds = events["kind"]
        ours = (kinds == Kind.ALLOCATE) | (kinds == Kind.FREE)
        chunks = taken(events, ours & (events["pool"] == self._pool))
        self._add(
            chunks if self._by_state else _owned(chunks), np.where(chunks["kind"] == Kind.FREE, -1.0, 1.0)
        )

    def image(self) -> dict[str, Any]:
        """What changes of plotly's image trace."""
        if not len(self.rows):
            return {"visible": False}
        pixels = raster.paint(self._shares(), self._theme, waste=self._by_state)
        dx, dy = self.rows.width / self.divisor / self._columns, len(self.rows) / pixels.shape[0]
        place = {"dx": dx, "dy": dy, "x0": dx / 2, "y0": dy / 2}
        return {"visible": True, "source": data_uri(pixels), **place}

    def _add(self, chunks: NDArray[np.void], sign: NDArray[np.float64]) -> None:
        """Adds chunks in use to the sums, or takes them away."""
        begin, inside = self._places(chunks["address"])
        if not inside.all():
            chunks, sign, begin = taken(chunks, inside), sign[inside], begin[inside]
        if not len(chunks):
            return
        cell = self.rows.width / self._columns
        end = begin + chunks["size"] / cell
        self._ramp(0, begin, end, sign)
        if self._by_state:
            self._ramp(1, begin + np.minimum(chunks["requested"], chunks["size"]) / cell, end, sign)
            return
        fill = self._fills[self.colours.classes(chunks, self.step)]
        for channel in range(3):
            self._ramp(1 + channel, begin, end, sign * fill[:, channel])

    def _places(self, address: NDArray[np.uint64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Cells from the first row's left edge, and which of the addresses lie on the map."""
        rows = self.rows
        if not len(rows):
            return np.zeros(len(address)), np.zeros(len(address), bool)
        region = np.maximum(np.searchsorted(rows.address, address, side="right") - 1, 0)
        offset = address - rows.address[region]  # far too large where it lies before the first region
        place = rows.first[region] * self._columns + offset * (self._columns / rows.width)
        return place, offset < rows.size[region]

    def _ramp(
        self,
        number: int,
        begin: NDArray[np.float64],
        end: NDArray[np.float64],
        weight: NDArray[np.float64],
    ) -> None:
        place, weight = np.concatenate([begin, end]), np.concatenate([weight, -weight])
        at = place.astype(np.intp)
        late = (place - at) * weight
        sums = self._sums[number]
        sums += np.bincount(at, weight - late, len(sums))
        sums[1:] += np.bincount(at, late, len(sums))[:-1]

    def _shares(self) -> raster.Shares:
        cell = self.rows.width / self._columns
        totals = np.cumsum(self._sums[:, : self._cells], axis=1)
        totals[np.abs(totals) < _NOTHING] = 0.0
        held = (totals * cell).reshape(len(totals), len(self.rows), self._columns)
        colour = held[0][..., None] * self._fills[0] if self._by_state else np.moveaxis(held[1:], 0, -1)
        waste = held[1] if self._by_state else np.zeros_like(held[0])
        return raster.Shares(held[0], waste, self._regions(cell), colour)

    def _regions(self, cell: float) -> NDArray[np.float64]:
        """Bytes of each cell that lie in a region."""
        rows = self.rows
        row = np.arange(len(rows))
        region = rows.region_of(row)
        left = (row - rows.first[region])[:, None] * float(rows.width) + np.arange(self._columns) * cell
        found: NDArray[np.float64] = np.clip(rows.size[region].astype(np.float64)[:, None] - left, 0.0, cell)
        return found


def _owned(events: Events) -> NDArray[np.void]:
    """The chunks that these ALLOCATEs and FREEs are about while in use, of CHUNK."""
    chunks = np.zeros(len(events), CHUNK)
    for name in ("address", "size", "requested", "label", "thread", "stream"):
        chunks[name] = events[name]
    seq, low = events["seq"], events["other"].astype(np.uint64)  # of a FREE: the low half of its ALLOCATE's
    born = (seq & ~_LOW) + low - np.where(low > seq & _LOW, _LOW + np.uint64(1), np.uint64(0))
    chunks["born"] = np.where(events["kind"] == Kind.FREE, born, seq)
    chunks["in_use"] = True
    return chunks
