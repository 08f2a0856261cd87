"""Chunks of one row of a map as SVG paths: exactly, or of many chunks the share of each column that they cover."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

HEIGHT: Final = 20
"""Pixels of a row."""

_SHADES: Final = 6  # of the share in use of a column


@dataclass(frozen=True)
class RowChunks:
    """The chunks in use of one row; they do not overlap.

    Attributes:
        left, right: their ends, in units of the drawing.
        kind: of each an index into the names of `kinds`.
        kinds: CSS classes.
    """

    left: NDArray[np.float64]
    right: NDArray[np.float64]
    kind: NDArray[np.integer]
    kinds: Sequence[str]

    def exact(self) -> list[str]:
        """One path of each kind; a hair of free colour stays between two chunks where there is room."""
        wide = self.right - self.left
        wide = np.maximum(wide - np.where(wide > 3, 0.5, 0), 0.2)
        found = []
        for kind in np.flatnonzero(np.bincount(self.kind)).tolist():
            at = self.kind == kind
            found.append(f'<path class="{self.kinds[kind]}" d="{_rectangles(self.left[at], wide[at])}"/>')
        return found

    def shaded(self, width: float, most: int) -> list[str]:
        """Paths of columns, at most `most`: the kind with most of a column, in a shade that is the share in use.

        A column is never empty where something is in use, nor full where something is free.
        """
        columns = min(max(int(np.ceil(width)), 1), most)
        unit = width / columns
        present = np.flatnonzero(np.bincount(self.kind)) if len(self.kind) else np.zeros(1, np.intp)
        shares = np.array([self._covered(self.kind == kind, unit, columns) for kind in present])
        share, kind = np.clip(shares.sum(axis=0), 0, 1), present[shares.argmax(axis=0)]
        shade = np.ceil(share * _SHADES - 1e-6).astype(np.int64)
        shade[(share > 0) & (shade == 0)] = 1
        shade[(share < 1 - 1e-6) & (shade == _SHADES)] = _SHADES - 1  # a little is free
        look = kind * (_SHADES + 1) + shade
        edges = np.flatnonzero(np.concatenate(([True], look[1:] != look[:-1])))
        ends = np.append(edges[1:], columns)
        found = []
        for each in np.unique(look[edges]).tolist():
            number, level = divmod(each, _SHADES + 1)
            at = look[edges] == each
            if level:
                path = _rectangles(edges[at] * unit, (ends - edges)[at] * unit)
                opacity = f'fill-opacity="{level / _SHADES:.2f}"'
                found.append(f'<path class="{self.kinds[number]}" {opacity} d="{path}"/>')
        return found

    def _covered(self, which: NDArray[np.bool_], unit: float, columns: int) -> NDArray[np.float64]:
        return covered(self.left[which] / unit, self.right[which] / unit, columns)


def covered(left: NDArray[np.float64], right: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """The share of each column that ranges cover; they do not overlap."""
    edges = np.arange(columns + 1, dtype=np.float64)
    order = np.argsort(left)
    left, right = left[order], right[order]
    before = np.concatenate(([0.0], np.cumsum(right - left)))
    at = np.searchsorted(left, edges, "right")
    last = np.maximum(at - 1, 0)
    over = np.where(at > 0, np.maximum(right[last] - edges, 0), 0) if len(left) else np.zeros(columns + 1)
    return np.clip(np.diff(before[at] - over), 0, 1)


def _rectangles(left: NDArray[np.float64], wide: NDArray[np.float64]) -> str:
    return "".join(
        f"M{x:.2f} 0h{w:.2f}v{HEIGHT}h-{w:.2f}z" for x, w in zip(left.tolist(), wide.tolist(), strict=True)
    )
