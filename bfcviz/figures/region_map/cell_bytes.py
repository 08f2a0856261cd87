"""CellBytes: what each cell of an even grid over the rows holds; a raster image is painted from it.

Not in `cells`: a compiled module that is imported first cannot give a class to the modules that it imports itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CellBytes:
    """The bytes of each cell of an even grid over the rows: arrays (rows, columns), float64.

    Attributes:
        in_use: bytes of chunks in use, waste included.
        waste: bytes of chunks in use that were not requested.
        region: bytes inside a region.
        colour: (rows, columns, 3): the sum of the colours (0..255) of the bytes in use.
    """

    in_use: NDArray[np.float64]
    waste: NDArray[np.float64]
    region: NDArray[np.float64]
    colour: NDArray[np.float64]

    @classmethod
    def unfilled(cls, rows: int, columns: int) -> "CellBytes":
        """Arrays for so many cells, with undefined values."""
        shape = rows, columns
        return cls(np.empty(shape), np.empty(shape), np.empty(shape), np.empty((*shape, 3)))
