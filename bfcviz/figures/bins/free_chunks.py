"""The free chunks of a heap by size, and the request that they are compared with: the data of the ladder."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.style.view_options import Look
from bfcviz.model import Model
from bfcviz.model.explain.fit import Request, fit_of, request_at

STEPS: Final = 600
"""Steps of the ladder, at most: pixels of its width."""


@dataclass(frozen=True)
class Ladder:
    """The free chunks of a heap by size, and the request.

    Attributes:
        chunks: the free chunks, of CHUNK: the largest first, of equal ones the lowest address.
        request: the request; None: none.
        rounded: its bytes as the heap rounds them; 0 without a request.
    """

    chunks: NDArray[np.void]
    request: Request | None
    rounded: int

    @property
    def ends(self) -> NDArray[np.uint64]:
        """Bytes of each chunk and all larger ones, shape (n,)."""
        return np.cumsum(self.chunks["size"], dtype=np.uint64)

    @property
    def total(self) -> int:
        """All free bytes."""
        return int(self.chunks["size"].sum())

    @property
    def takers(self) -> int:
        """How many chunks would take the request: the first ones."""
        return int(np.count_nonzero(self.chunks["size"] >= self.rounded)) if self.request else 0


def ladder_of(model: Model, look: Look) -> Ladder:
    """The free chunks of the model's step, and the request of `look` or of the failure just before the step."""
    chunks = model.chunks()
    free = chunks[np.flatnonzero(~chunks["in_use"])]
    free = free[np.lexsort((free["address"], ~free["size"]))]
    request = request_at(model, look.wanted)
    return Ladder(free, request, fit_of(model, request.size).found.rounded if request else 0)


_STEP: Final = np.dtype(
    [
        ("first", "<i8"),  # index of its first chunk
        ("count", "<i8"),
        ("left", "<u8"),
        ("bytes", "<u8"),
        ("size", "<u8"),  # of its largest chunk
        ("takes", "?"),
    ]
)


def steps_of(found: Ladder) -> NDArray[np.void]:
    """The chunks as at most about `STEPS` steps: a chunk narrower than a pixel shares its step with those beside it."""
    count = len(found.chunks)
    ends = found.ends
    lefts = ends - found.chunks["size"]
    firsts = np.arange(count)
    if count > STEPS:
        pixel = lefts // np.uint64(max(found.total // STEPS, 1))
        takes = firsts < found.takers
        firsts = np.flatnonzero(np.append(True, (np.diff(pixel) > 0) | (np.diff(takes))))
    steps = np.zeros(len(firsts), _STEP)
    steps["first"], steps["count"] = firsts, np.diff(np.append(firsts, count))
    steps["left"], steps["size"] = lefts[firsts], found.chunks["size"][firsts]
    steps["bytes"] = np.diff(np.append(lefts[firsts], np.uint64(found.total)))
    steps["takes"] = firsts < found.takers
    return steps
