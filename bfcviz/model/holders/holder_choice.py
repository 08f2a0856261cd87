"""HolderChoice: the chunks of one holder, such as the one that the user points at or filters by."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.holders.grouping import Grouping
from bfcviz.model.holders.holder_paths import Path


@dataclass(frozen=True)
class HolderChoice:
    """A holder and all holders below it.

    Attributes:
        by: what holders are found by, one of `grouping.UNNAMED`.
        path: the names from the outermost holder to this one; None: memory without a name. Empty: all memory in use.
    """

    by: str
    path: Path

    def holds(self, path: Path) -> bool:
        """Whether the memory of `path` belongs to this holder."""
        return path[: len(self.path)] == self.path


def members(how: Grouping, choice: HolderChoice) -> Callable[[NDArray[np.void]], NDArray[np.bool_]]:
    """A function that says for each record whether it belongs to `choice`; `how` groups by `choice.by`.

    The records have the fields label, thread, stream and born; free chunks have to be left out by the caller. Keep the
    function for more records: it looks at each path once.
    """
    held = np.zeros(0, np.int8)  # code -> 1: it belongs, 0: it does not, -1: not looked at yet

    def belongs(records: NDArray[np.void]) -> NDArray[np.bool_]:
        nonlocal held
        codes = how.codes(records).astype(np.intp)
        highest = int(codes.max(initial=-1))
        if highest >= len(held):
            held = np.concatenate([held, np.full(highest + 1 - len(held), -1, np.int8)])
        for code in np.unique(codes[held[codes] < 0]).tolist():
            held[code] = choice.holds(how.path(code))
        found: NDArray[np.bool_] = held[codes] == 1
        return found

    return belongs
