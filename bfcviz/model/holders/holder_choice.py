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

    The records have the fields label, thread, stream and born; free chunks have to be left out by the caller.
    """

    def belongs(records: NDArray[np.void]) -> NDArray[np.bool_]:
        numbers, paths = how.grouped(records)
        held = np.array([choice.holds(path) for path in paths], bool)
        return held[numbers] if len(paths) else np.zeros(len(records), bool)

    return belongs
