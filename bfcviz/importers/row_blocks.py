"""RowBlocks: collects the rows that an importer reads in a tenth of the memory that Python objects need."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_BLOCK: Final = 1 << 13


class RowBlocks:
    """Collects the rows that an importer reads; after each block of them they become an array."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self._blocks: list[NDArray[np.void]] = [np.empty(0, dtype)]
        self._rows: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return sum(map(len, self._blocks)) + len(self._rows)

    def add(self, *row: Any) -> None:
        """Add a row: the fields of the dtype in their order."""
        self._rows.append(row)
        if len(self._rows) == _BLOCK:
            self._flush()

    def table(self) -> NDArray[np.void]:
        """All rows, in the order in which they were added."""
        self._flush()
        self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

    def _flush(self) -> None:
        self._blocks.append(np.array(self._rows, self._blocks[0].dtype))
        self._rows = []
