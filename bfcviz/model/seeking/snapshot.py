"""One state of a chunk table, whole."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.state import array_access
from bfcviz.model.state.row_storage import CHUNK_ROW, REGION_ROW


@dataclass(frozen=True)
class Snapshot:
    """All of a chunk table at `step`.

    Attributes:
        step: events applied.
        chunk_rows: every chunk, in no order, of CHUNK_ROW.
        region_rows, slots: every region by ascending address, of REGION_ROW, and its slot.
        num_allocs, ooms: counts up to `step`.
        peak_bytes_in_use, peak_pool_bytes, largest_alloc_size: the largest up to `step`.
    """

    step: int
    chunk_rows: NDArray[np.void]
    region_rows: NDArray[np.void]
    slots: NDArray[np.uint64]
    num_allocs: int = 0
    ooms: int = 0
    peak_bytes_in_use: int = 0
    peak_pool_bytes: int = 0
    largest_alloc_size: int = 0

    @property
    def nbytes(self) -> int:
        """Memory it takes, nearly."""
        return self.chunk_rows.nbytes + self.region_rows.nbytes + self.slots.nbytes + 512

    @property
    def bytes_in_use(self) -> int:
        """Bytes of all chunks in use."""
        used = self.chunk_rows["state"] == array_access.CHUNK_IN_USE
        return int(self.chunk_rows["size"][used].sum())

    @property
    def pool_bytes(self) -> int:
        """Bytes of all regions."""
        return int(self.region_rows["size"].sum())


EMPTY = Snapshot(0, np.zeros(0, CHUNK_ROW), np.zeros(0, REGION_ROW), np.zeros(0, np.uint64))
"""Step 0 of every trace: no region, no chunk."""
