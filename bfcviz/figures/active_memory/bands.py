"""The bands of the active-memory timeline: stacked lifetimes, their outlines, names and hover texts.

Lifetimes are stacked in the order they began; when one ends, those above it move down::

    bytes |        [=== c ===
          |   [== b ==]  [=== c ======     c moves down when b ends
          |[===== a =====================
          +------------------------------ step
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.address_time.hover import life_text
from bfcviz.figures.style.colour_math import contrasting
from bfcviz.figures.style.text import fitted, harmless
from bfcviz.figures.timelines.axis import StepAxis


@dataclass(frozen=True)
class Stack:
    """Heights over time.

    Attributes:
        moments: each `seq` at which a lifetime begins or ends, ascending, uint64.
        times: when, in nanoseconds; undefined for the moment NEVER.
        below: bytes below each lifetime after each moment, (lifetimes, moments), float64.
        first, last: for each lifetime the indices of the moments at which it begins and ends.
    """

    moments: NDArray[np.uint64]
    times: NDArray[np.int64]
    below: NDArray[np.float64]
    first: NDArray[np.intp]
    last: NDArray[np.intp]

    def turns(self, life: int) -> NDArray[np.intp]:
        """The indices of the moments at which a lifetime begins or changes its height."""
        heights = self.below[life, self.first[life] : self.last[life]]
        changed = np.flatnonzero(np.diff(heights)) + 1
        found: NDArray[np.intp] = self.first[life] + np.append(0, changed)
        return found


def stack(lifetimes: NDArray[np.void]) -> Stack:
    """Stack an array of LIFETIME, ordered by `born`; memory grows with the square of its length."""
    moments, at = np.unique(np.concatenate([lifetimes["born"], lifetimes["died"]]), return_index=True)
    times = np.concatenate([lifetimes["born_time"], lifetimes["died_time"]])[at]
    first = np.searchsorted(moments, lifetimes["born"])
    last = np.searchsorted(moments, lifetimes["died"])
    order = np.arange(len(moments))
    alive = (first[:, None] <= order) & (order < last[:, None])
    held = np.cumsum(alive * lifetimes["size"].astype(np.float64)[:, None], axis=0)
    below = np.vstack([np.zeros((1, len(moments))), held[:-1]]) if len(lifetimes) else held
    return Stack(moments, times, below, first, last)


_COLUMNS: Final = 60  # of the grid of hover points
_POINTS: Final = 1500
_PIXELS: Final = 400  # about half of a plot's width: band outlines keep one corner per such pixel
_NAMED: Final = 12  # bands that carry their name, at most
_SHORTEST: Final = 0.07  # of the window's width: a shorter band carries no name
_LOWEST: Final = 0.05  # of the plot's height: a thinner band carries no name
_LETTER: Final = 1 / 130  # of the window's width, on a page 880 pixels wide

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bands:
    """Stacked lifetimes on an x axis.

    Attributes:
        lifetimes: LIFETIME records, ordered by `born`.
        stack: the height of each band over time, in bytes.
        x: the positions of the stack's moments, in axis units, clipped to the window.
        sides: the ends of the window, in axis units.
    """

    lifetimes: NDArray[np.void]
    stack: Stack
    x: Floats
    sides: tuple[float, float]

    @property
    def highest(self) -> float:
        """The height of the whole stack at its peak, in bytes."""
        if not len(self.lifetimes):
            return 0.0
        return float((self.stack.below[-1] + self._alive(len(self.lifetimes) - 1)).max())

    def outlines(self, lives: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Closed outlines, x in axis units and y in bytes, NaN after each; one NaN if there are none."""
        if not len(lives):
            return np.full(1, np.nan), np.full(1, np.nan)
        outlines = [self._outlines[life] for life in lives.tolist()]
        return np.concatenate([x for x, _ in outlines]), np.concatenate([y for _, y in outlines])

    @cached_property
    def _outlines(self) -> list[tuple[Floats, Floats]]:
        """The outline of each band: other colours need no new ones."""
        return [self._outline(life) for life in range(len(self.lifetimes))]

    def at(self, x: float, num_bytes: float) -> int | None:
        """The index of the band at `x` (axis units) and `num_bytes`; None if there is none."""
        moment = int(np.searchsorted(self.x, x, side="right")) - 1
        if moment < 0 or not self.sides[0] <= x <= self.sides[1]:
            return None
        low = self.stack.below[:, moment]
        alive = (self.stack.first <= moment) & (moment < self.stack.last)
        hits = np.flatnonzero(alive & (low <= num_bytes) & (num_bytes < low + self.lifetimes["size"]))
        return int(hits[0]) if len(hits) else None

    def middle(self, life: int, x: float) -> float:
        """The middle of a band at `x`, in bytes; at the nearest end of its life if `x` is outside of it."""
        moment = int(np.searchsorted(self.x, x, side="right")) - 1
        moment = min(max(moment, int(self.stack.first[life])), int(self.stack.last[life]) - 1)
        return float(self.stack.below[life, moment]) + float(self.lifetimes["size"][life]) / 2

    def ends(self) -> tuple[Floats, Floats]:
        """Where each band begins and ends, in axis units."""
        return self.x[self.stack.first], self.x[self.stack.last]

    def _alive(self, life: int) -> Floats:
        at = np.arange(len(self.x))
        alive = (self.stack.first[life] <= at) & (at < self.stack.last[life])
        held: Floats = alive * float(self.lifetimes["size"][life])
        return held

    def _visible(self, turns: NDArray[np.intp]) -> NDArray[np.intp]:
        """The turns of a band that a picture can show: the first, and the last in each of `_PIXELS` columns."""
        left, right = self.sides
        pixel = np.floor((self.x[turns] - left) * (_PIXELS / max(right - left, 1e-9)))
        keep = np.append(pixel[1:] != pixel[:-1], True)
        keep[0] = True
        visible: NDArray[np.intp] = turns[keep]
        return visible

    def _outline(self, life: int) -> tuple[Floats, Floats]:
        turns = self._visible(self.stack.turns(life))
        edges = np.append(self.x[turns], self.x[self.stack.last[life]])
        across = np.repeat(edges, 2)[1:-1]
        low = np.repeat(self.stack.below[life, turns], 2)
        high = low + float(self.lifetimes["size"][life])
        x = np.concatenate([across, across[::-1], across[:1], [np.nan]])
        y = np.concatenate([low, high[::-1], low[:1], [np.nan]])
        return x, y


def bands_of(lifetimes: NDArray[np.void], step_axis: StepAxis, steps: tuple[int, int]) -> Bands:
    """The bands of these lifetimes, clipped to the window of steps."""
    stacked = stack(lifetimes)
    left, right = step_axis.position(steps[0]), step_axis.position(steps[1])
    x = step_axis.positions(stacked.moments + np.uint64(1), stacked.times)
    x = np.where(stacked.moments < steps[1], x, right)
    return Bands(lifetimes, stacked, np.clip(x, left, right), (left, right))


def names_on_bands(
    bands: Bands, trace: Trace, divisor: int, reach: float, fills: Sequence[str]
) -> dict[str, Any]:
    """A text trace: names on the bands that have room for one, the largest first.

    Args:
        bands: the bands.
        trace: has the labels.
        divisor: bytes per unit of the y axis.
        reach: the end of the y axis, in its units.
        fills: the colour of each band; empty for one that carries no name.
    """
    left, right = bands.ends()
    wide = (right - left) >= _SHORTEST * max(bands.sides[1] - bands.sides[0], 1e-9)
    high = bands.lifetimes["size"] >= _LOWEST * reach * divisor
    drawn = np.array([bool(fill) for fill in fills], bool)
    room = np.flatnonzero(wide & high & drawn & (bands.lifetimes["label"] > 0))
    room = room[np.argsort(-(bands.lifetimes["size"][room] * (right - left)[room]), kind="stable")][:_NAMED]
    x = (left[room] + right[room]) / 2
    names = [trace.labels.name(number) for number in bands.lifetimes["label"][room].tolist()]
    letters = (right - left)[room] / (max(bands.sides[1] - bands.sides[0], 1e-9) * _LETTER)
    below = [fills[band] for band in room.tolist()]
    return {
        "type": "scatter",
        "mode": "text",
        "x": x,
        "y": np.array([bands.middle(*at) for at in zip(room.tolist(), x.tolist(), strict=True)]) / divisor,
        "text": [harmless(fitted(*each)) for each in zip(names, letters.astype(int).tolist(), strict=True)],
        "textfont": {
            "color": [contrasting(fill) for fill in below],
            "size": 10,
            "shadow": [_rim(fill) for fill in below],
        },
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _rim(colour: str) -> str:
    """A CSS outline around letters: a name may reach over the edges of its band."""
    sides = [f"{x}px {y}px 1px {colour}" for x in (-1, 0, 1) for y in (-1, 0, 1)]
    return ", ".join(sides)


def hover_points(bands: Bands, trace: Trace, divisor: int) -> dict[str, Any]:
    """Invisible points with hover texts: at least one in each band, more along the long ones."""
    left, right = bands.ends()
    width = max(bands.sides[1] - bands.sides[0], 1e-9)
    along = np.maximum(np.ceil((right - left) / width * _COLUMNS), 1.0)
    along = np.maximum(along * min(1.0, _POINTS / max(along.sum(), 1.0)), 1.0).astype(np.intp)
    band = np.repeat(np.arange(len(along)), along)
    nth = np.arange(len(band)) - np.repeat(np.cumsum(along) - along, along)
    x = left[band] + (nth + 0.5) * ((right - left) / along)[band]
    y = [bands.middle(*at) for at in zip(band.tolist(), x.tolist(), strict=True)]
    texts = [life_text(life, trace) for life in bands.lifetimes]
    return {
        "type": "scatter",
        "mode": "none",
        "x": x,
        "y": np.array(y) / divisor,
        "hovertext": [texts[number] for number in band.tolist()],
        "hoverinfo": "text",
        "showlegend": False,
    }
