"""What of a region map is on screen, and how it is coloured: what each of its traces is made from."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.region_map.rectangles import pieces_of
from bfcviz.figures.region_map.rows import Pieces, Rows, VisibleRows
from bfcviz.figures.style.colouring import Colouring
from bfcviz.figures.style.theme import Theme


@dataclass(frozen=True)
class VisibleChunks:
    """What is on screen.

    Attributes:
        chunks: those of which something is seen, by address.
        rows: where they lie.
        part: what is seen of the rows.
        divisor: bytes that 1 on the x axis stands for.
        theme: the colours.
        colours: what chunks in use are coloured by.
        classes: of `chunks`.
    """

    chunks: NDArray[np.void]
    rows: Rows
    part: VisibleRows
    divisor: int
    theme: Theme
    colours: Colouring
    classes: NDArray[np.uint8]

    @cached_property
    def pieces(self) -> Pieces:
        """The chunks, cut at the ends of rows."""
        return self.cut(self.chunks["address"], self.chunks["size"])

    @property
    def screen(self) -> float:
        """Bytes across the screen."""
        return max(self.part.right - self.part.left, 1.0)

    @property
    def by_state(self) -> bool:
        """Whether all chunks in use look the same, and their waste is told from them."""
        return self.colours.name == "state"

    def cut(self, address: NDArray[np.uint64], size: NDArray[np.uint64]) -> Pieces:
        """Pieces of these ranges, those that are seen."""
        return pieces_of(self.rows, address, size).within(self.part)
