"""Corners: a grid built from its second differences.

A point with a weight is a corner: from there on, up and to the right, every cell has that much more. A point that
falls inside a cell is shared out among the corners around it, so that the cell gets its part.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_AROUND: Final = ((0, 0), (0, 1), (1, 0), (1, 1))  # lines up, columns to the right

_SPARSE: Final = 12
"""Cells for each point, from which on points are added one by one (measured)."""


class Corners:
    """Sheets of cells, each with one line and column more for what begins at the far edges.

    Args:
        sheets: how many there are.
        lines: cells up.
        columns: cells across.
    """

    def __init__(self, sheets: int, lines: int, columns: int) -> None:
        self._cells = np.zeros((sheets, lines + 2, columns + 2))

    def add(self, x: Floats, y: Floats, weights: Floats, sheets: NDArray[np.integer] | None = None) -> None:
        """Take in points: places in columns and lines from the lower left, on the grid or on its edges."""
        if not len(x):
            return
        column, line = x.astype(np.intp), y.astype(np.intp)
        right, up = x - column, y - line
        across, lower = weights * right, 1.0 - up
        left = weights - across
        shares = (left * lower, across * lower, left * up, across * up)
        sheet = np.zeros(1, np.intp) if sheets is None else sheets.astype(np.intp)
        first, last = int(column.min()), int(column.max())
        if len(x) * _SPARSE < self._cells[:, :, first : last + 1].size:
            self._add_each((sheet, line, column), shares)
        else:
            self._add_sums((sheet, line, column - first), shares, first, last - first + 1)

    def sums(self) -> Floats:
        """What each cell has, (sheets, lines, columns); to be called once."""
        np.cumsum(self._cells, axis=1, out=self._cells)
        np.cumsum(self._cells, axis=2, out=self._cells)
        return self._cells[:, :-2, :-2]

    def _add_each(self, at: tuple[NDArray[np.intp], ...], shares: tuple[Floats, ...]) -> None:
        _, lines, columns = self._cells.shape
        cells = self._cells.reshape(-1)
        place = (at[0] * lines + at[1]) * columns + at[2]
        for (up, right), share in zip(_AROUND, shares, strict=True):
            np.add.at(cells, place + (up * columns + right), share)

    def _add_sums(
        self, at: tuple[NDArray[np.intp], ...], shares: tuple[Floats, ...], first: int, width: int
    ) -> None:
        """Many points fall on few columns, those of a short part of a long trace: sum them up there."""
        sheets, lines, _ = self._cells.shape
        place = (at[0] * lines + at[1]) * width + at[2]
        for (up, right), share in zip(_AROUND, shares, strict=True):
            sums = np.bincount(place, share, sheets * lines * width).reshape(sheets, lines, width)
            # No point lies on the last line, which is there for what is one up.
            self._cells[:, up:, first + right : first + right + width] += sums[:, : lines - up]
