"""What the cells of an even grid over the rows hold: what a raster is painted from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Shares:
    """What the cells of an even grid over the rows hold, each (rows, columns) float64, in bytes.

    Attributes:
        in_use: in chunks in use, waste included.
        waste: nobody asked for.
        region: inside a region.
        colour: (rows, columns, 3): the sum of the colours (0..255) of the bytes in use.
    """

    in_use: NDArray[np.float64]
    waste: NDArray[np.float64]
    region: NDArray[np.float64]
    colour: NDArray[np.float64]

    @classmethod
    def unknown(cls, rows: int, columns: int) -> "Shares":
        """Room for so many cells, not filled in."""
        shape = rows, columns
        return cls(np.empty(shape), np.empty(shape), np.empty(shape), np.empty((*shape, 3)))
