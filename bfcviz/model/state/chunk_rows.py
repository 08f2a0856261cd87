"""The chunks of one pool, one row a handle, and the size of the largest free chunk."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.row_copy import taken
from bfcviz.model.state import array_access, row_storage
from bfcviz.model.state.max_tree import MaxTree


class ChunkRows:
    """Rows of CHUNK_ROW. Methods that can find a contradiction return a code of `array_access`.

    Attributes:
        chunks: the rows, for `array_access.chunk`; `reserve` replaces them.
        free_sizes: the size of each free chunk, by handle.
        free: number of free chunks.
    """

    def __init__(self) -> None:
        self.capacity = 0
        self.free = 0
        self.free_sizes = MaxTree()
        self._store: Any = None

    def by_handle(self) -> NDArray[np.void]:
        """The row of each handle; not a copy where the rows are in an array."""
        if self.capacity == 0:
            return np.zeros(0, row_storage.CHUNK_ROW)
        return row_storage.exported(self._store, row_storage.CHUNK_ROW)

    def exported(self) -> NDArray[np.void]:
        """A copy of every chunk, in no order."""
        table = self.by_handle()
        return taken(table, table["state"] != array_access.NOTHING)

    def load(self, chunk_rows: NDArray[np.void]) -> None:
        """Fill empty rows with what another `ChunkRows` exported."""
        if len(chunk_rows) > 0:
            self.reserve(int(chunk_rows["handle"].max()))
            row_storage.put(self._store, chunk_rows["handle"], chunk_rows)
        free = chunk_rows[chunk_rows["state"] == array_access.CHUNK_FREE]
        self.free = len(free)
        for handle, size in zip(free["handle"].tolist(), free["size"].tolist(), strict=True):
            self.free_sizes.set(handle, size)

    def row(self, handle: int) -> np.void | None:
        """A copy of one row; None where no such row exists."""
        if handle >= self.capacity:
            return None
        row: np.void = row_storage.exported(self._store[handle : handle + 1], row_storage.CHUNK_ROW).copy()[0]
        return row

    def look(self, handle: int, region: int, state: int) -> int:
        """FINE where the chunk exists, is in the region and has the state."""
        if handle >= self.capacity:
            return array_access.ABSENT
        c = array_access.chunk(self.chunks, handle)
        if c.state != state:
            if c.state == array_access.NOTHING:
                return array_access.ABSENT
            return array_access.NOT_FREE if state == array_access.CHUNK_FREE else array_access.NOT_IN_USE
        return array_access.FINE if c.region == region else array_access.OTHER_REGION

    def vacant(self, handle: int, seq: int) -> int:
        """FINE where a new chunk can have this handle. An event makes at most one chunk, which bounds handles."""
        if handle > seq + 1:
            return array_access.HANDLE_TOO_HIGH
        if handle < self.capacity and array_access.chunk(self.chunks, handle).state != array_access.NOTHING:
            return array_access.HANDLE_TAKEN
        return array_access.FINE

    def reserve(self, handle: int) -> None:
        """Make room for this handle."""
        if handle < self.capacity:
            return
        capacity = max(64, self.capacity)
        while capacity <= handle:
            capacity *= 2
        self._store = row_storage.grown(
            self._store, row_storage.CHUNK_ROW, capacity, compiled=bool(array_access.COMPILED)
        )
        self.chunks = array_access.chunks(self._store)
        self.capacity = capacity
        self.free_sizes.reserve(capacity)

    def add(self, handle: int, address: int, size: int, region: int) -> None:
        """Add a free chunk at a handle that is vacant and reserved."""
        c = array_access.chunk(self.chunks, handle)
        c.address = address
        c.size = size
        c.handle = handle
        c.region = region
        c.state = array_access.CHUNK_FREE
        self.free_sizes.set(handle, size)
        self.free += 1

    def drop(self, handle: int) -> None:
        """Remove a free chunk."""
        c = array_access.chunk(self.chunks, handle)
        c.address = c.size = c.handle = c.region = c.state = 0
        self.free_sizes.set(handle, 0)
        self.free -= 1
