"""HolderPalette: the colouring by holder of one heap, kept from step to step."""

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.style.byte_steps import byte_steps
from bfcviz.figures.style.holder_classes import HolderChooser, HolderClasses
from bfcviz.figures.style.holder_groups import HolderGroups
from bfcviz.figures.style.label_tree import label_tree

if TYPE_CHECKING:
    from bfcviz.figures.style.colouring import Colouring

_GROWN: Final = 1.5
"""A trace that is so many times as long has other usual holders."""

_MOST_UNKNOWN: Final = 0.1
"""Of the bytes in use: with more in labels that are not in the tree, the tree is made again."""

_MOST_KEPT: Final = 64


class HolderPalette:
    """Which holders of a heap get the colours.

    Attributes:
        made: the colouring of each theme and choice of holders.
        groups: the memory that an image counts apart.
    """

    def __init__(self, trace: Trace, pool: int) -> None:
        self.made: dict[tuple[str, HolderClasses], Colouring] = {}
        self.steps = len(trace)
        held = byte_steps(trace, pool, "label")
        tree = label_tree(trace.labels, np.flatnonzero(held).tolist())
        self._size = tree.size
        self._chooser = HolderChooser(tree, held[: self._size])
        self.groups = HolderGroups(tree, held[: self._size])
        self._known: dict[frozenset[tuple[int, int]], HolderClasses] = {}

    def classes(self, chunks: NDArray[np.void] | None) -> HolderClasses:
        """The classes for these chunks (None: for the whole trace); the same object while they are the same."""
        found = self._chooser.at(None if chunks is None else self._bytes(chunks)[: self._size])
        if len(self._known) > _MOST_KEPT:
            self._known, self.made = {}, {}
        return self._known.setdefault(frozenset(found.nodes.items()), found)

    def knows(self, chunks: NDArray[np.void]) -> bool:
        """Whether most of these bytes have a label that the trace had when this was made."""
        held = self._bytes(chunks)
        return float(held[self._size :].sum()) <= _MOST_UNKNOWN * max(float(held.sum()), 1.0)

    def _bytes(self, chunks: NDArray[np.void]) -> NDArray[np.float64]:
        """Bytes in use by label number."""
        sizes = chunks["size"].astype(np.float64)
        if "in_use" in (chunks.dtype.names or ()):
            sizes *= chunks["in_use"]
        return np.bincount(chunks["label"], sizes, minlength=self._size).astype(np.float64)


_palettes: WeakKeyDictionary[Trace, dict[int, HolderPalette]] = WeakKeyDictionary()


def palette_of(trace: Trace, pool: int, chunks: NDArray[np.void] | None = None) -> HolderPalette:
    """The palette of a heap; made again when the trace has grown much, or has many new labels among `chunks`."""
    known = _palettes.setdefault(trace, {})
    found = known.get(pool)
    if found is not None and len(trace) != found.steps:
        grown = len(trace) > _GROWN * found.steps
        if grown or (chunks is not None and not found.knows(chunks)):
            found = None
    if found is None:
        found = known[pool] = HolderPalette(trace, pool)
    return found
