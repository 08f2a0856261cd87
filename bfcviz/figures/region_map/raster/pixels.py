"""Pixels: from what a cell holds to its colour.

Compiled, it keeps the interpreter's lock: see `cells`.
"""

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.region_map.raster.cell_bytes import Shares
from bfcviz.model.state import array_access


def paint(held: Shares, states: NDArray[np.float64], faintest: float, out: NDArray[np.uint8]) -> None:
    """Writes the pixel of each cell: its colours mixed by their share.

    Args:
        held: what the cells hold; where `region` is 0 the pixel is clear.
        states: (2, 3) the colours of free and of waste, 0..255.
        faintest: the least share of a pixel that chunks in use have, where there are any.
        out: (rows, columns, 4) red, green, blue and opacity.
    """
    in_use = held.in_use
    waste = held.waste
    region = held.region
    colour = held.colour
    for row in range(in_use.shape[0]):
        for i in range(in_use.shape[1]):
            used = spilled = scale = 0.0
            if region[row, i] > 0.0 and in_use[row, i] > 0.0:
                used = min(max(in_use[row, i] / region[row, i], faintest), 1.0)
                spilled = min(max(waste[row, i] / region[row, i], 0.0), 1.0)
                scale = max(used - spilled, 0.0) / in_use[row, i]
            free = max(1.0 - max(used, spilled), 0.0)
            for channel in range(3):
                mixed = (
                    scale * colour[row, i, channel] + free * states[0, channel] + spilled * states[1, channel]
                )
                out[row, i, channel] = array_access.whole_part(min(max(mixed, 0.0), 255.0) + 0.5)
            out[row, i, 3] = 255 if region[row, i] > 0.0 else 0
