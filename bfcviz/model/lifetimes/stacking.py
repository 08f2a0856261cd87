"""Stack lifetimes in the order they began; when one ends, those above it move down.

::

    bytes |        [=== c ===
          |   [== b ==]  [=== c ======     c moves down when b ends
          |[===== a =====================
          +------------------------------ step
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Stack:
    """Heights over time.

    Attributes:
        moments: each `seq` at which a lifetime begins or ends, ascending, uint64.
        below: bytes below each lifetime after each moment, (lifetimes, moments), float64.
        first, last: for each lifetime the indices of the moments at which it begins and ends.
    """

    moments: NDArray[np.uint64]
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
    moments = np.unique(np.concatenate([lifetimes["born"], lifetimes["died"]]))
    first = np.searchsorted(moments, lifetimes["born"])
    last = np.searchsorted(moments, lifetimes["died"])
    at = np.arange(len(moments))
    alive = (first[:, None] <= at) & (at < last[:, None])
    held = np.cumsum(alive * lifetimes["size"].astype(np.float64)[:, None], axis=0)
    below = np.vstack([np.zeros((1, len(moments))), held[:-1]]) if len(lifetimes) else held
    return Stack(moments, below, first, last)
