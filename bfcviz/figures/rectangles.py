"""Axis-parallel rectangles anywhere on a plot: one plotly trace, however many there are."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bfcviz.figures.panel import LINES, Floats
from bfcviz.figures.theme import Paint, Theme, translucent
from bfcviz.figures.view_options import FADE


@dataclass(frozen=True)
class Boxes:
    """Rectangles on a plot by their edges, in axis units; four arrays of one length."""

    left: Floats
    right: Floats
    bottom: Floats
    top: Floats

    @classmethod
    def none(cls) -> "Boxes":
        """No rectangles."""
        return cls(*np.zeros((4, 0)))

    def __len__(self) -> int:
        return len(self.left)

    def with_area(self) -> "Boxes":
        """The rectangles that have an area."""
        mask = (self.right > self.left) & (self.top > self.bottom)
        return Boxes(self.left[mask], self.right[mask], self.bottom[mask], self.top[mask])

    def corners(self) -> tuple[Floats, Floats]:
        """Closed outlines of rectangles for plotly's fill `toself`, NaN after each; one NaN if there are none.

        (Plotly drops a trace without points from the legend.)
        """
        if not len(self):
            return np.full(1, np.nan), np.full(1, np.nan)
        gap = np.full(len(self), np.nan)
        x = np.column_stack([self.left, self.right, self.right, self.left, self.left, gap]).ravel()
        y = np.column_stack([self.bottom, self.bottom, self.top, self.top, self.bottom, gap]).ravel()
        return x, y


def box_trace(name: str, boxes: Boxes, paint: Paint, border: float) -> dict[str, Any]:
    """A trace of filled rectangles; `border` is the width of their lines in pixels."""
    filled = {"fill": "toself", "fillcolor": paint.fill}
    return box_outlines(name, boxes, paint.line, border) | filled


def box_outlines(name: str, boxes: Boxes, colour: str, width: float) -> dict[str, Any]:
    """A trace of unfilled rectangles, their lines `width` pixels wide."""
    x, y = boxes.corners()
    return {**LINES, "name": name, "x": x, "y": y, "line": {"color": colour, "width": width}}


def fade_trace(x: Any, y: Any, theme: Theme) -> dict[str, Any]:
    """A trace that fades what lies under closed outlines, such as those of rectangles."""
    paint = {"fill": "toself", "fillcolor": translucent(theme.paper, FADE)}
    return {**LINES, "mode": "none", "x": x, "y": y, **paint, "showlegend": False}
