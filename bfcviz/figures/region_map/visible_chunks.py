"""VisibleChunks: the chunks of a region map that are on screen, and their colours: the input of its traces."""

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
    """The chunks of a region map that are on screen.

    Attributes:
        chunks: CHUNK records of the chunks at least partly on screen, by address.
        rows: the layout of all regions.
        part: the part of the rows on screen.
        divisor: bytes per unit of the x axis.
        theme: all other colours.
        colours: the colouring of chunks in use.
        classes: the class of each chunk; see `Colouring.classes`.
        faded: which chunks are drawn faded.
        legend: whether the classes are named in the legend.
        pixels: width and height of the plot.
    """

    chunks: NDArray[np.void]
    rows: Rows
    part: VisibleRows
    divisor: int
    theme: Theme
    colours: Colouring
    classes: NDArray[np.uint8]
    faded: NDArray[np.bool_]
    legend: bool
    pixels: tuple[int, int]

    @cached_property
    def pieces(self) -> Pieces:
        """The chunks, split at the ends of rows."""
        return self.cut(self.chunks["address"], self.chunks["size"])

    @property
    def screen(self) -> float:
        """The width of the screen in bytes."""
        return max(self.part.right - self.part.left, 1.0)

    def cut(self, address: NDArray[np.uint64], size: NDArray[np.uint64]) -> Pieces:
        """The pieces of these address ranges that are on screen."""
        return pieces_of(self.rows, address, size).within(self.part)
