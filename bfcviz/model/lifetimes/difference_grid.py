"""A grid of sums, built from its second differences: cheap additions of large rectangles.

A point with a weight adds that weight to every cell above and to the right of it. A point inside a cell is divided
among the four grid points around it, so that the cell receives its share.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_AROUND: Final = ((0, 0), (0, 1), (1, 0), (1, 1))  # lines up, columns to the right

_SPARSE: Final = 12
"""From this many cells for each point on, points are added one by one (measured)."""


class DifferenceGrid:
    """Sheets of cells; each has one extra line and column for points on the far edges.

    Args:
        sheets: how many grids.
        lines: cells up.
        columns: cells across.
    """

    def __init__(self, sheets: int, lines: int, columns: int) -> None:
        self._cells = np.zeros((sheets, lines + 2, columns + 2))

    def add(self, x: Floats, y: Floats, weights: Floats, sheets: NDArray[np.integer] | None = None) -> None:
        """Add points: `x` in columns and `y` in lines from the lower left, inside the grid or on its edges."""
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
        """The sum of each cell, (sheets, lines, columns + 1). Call it once: it sums in place.

        The last column is that after the grid: it has the sums of all points.
        """
        np.cumsum(self._cells, axis=1, out=self._cells)
        np.cumsum(self._cells, axis=2, out=self._cells)
        return self._cells[:, :-2, :-1]

    def _add_each(self, at: tuple[NDArray[np.intp], ...], shares: tuple[Floats, ...]) -> None:
        _, lines, columns = self._cells.shape
        cells = self._cells.reshape(-1)
        place = (at[0] * lines + at[1]) * columns + at[2]
        for (up, right), share in zip(_AROUND, shares, strict=True):
            np.add.at(cells, place + (up * columns + right), share)

    def _add_sums(
        self, at: tuple[NDArray[np.intp], ...], shares: tuple[Floats, ...], first: int, width: int
    ) -> None:
        """Sum points by cell first: a short part of a long trace puts many points in few columns."""
        sheets, lines, _ = self._cells.shape
        place = (at[0] * lines + at[1]) * width + at[2]
        for (up, right), share in zip(_AROUND, shares, strict=True):
            sums = np.bincount(place, share, sheets * lines * width).reshape(sheets, lines, width)
            # No point lies on the last line: it receives the shares of points one line below.
            self._cells[:, up:, first + right : first + right + width] += sums[:, : lines - up]
