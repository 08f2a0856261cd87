"""ReportRows: collects the allocations and frees of a file in little memory, before they are replayed."""

import numpy as np
from numpy.typing import NDArray

REPORT = np.dtype(
    [
        ("time", "<i8"),  # nanoseconds
        ("kind", "u1"),  # a `Kind`, or a number of the importer's
        ("address", "<u8"),
        ("size", "<u8"),
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("label", "<u4"),
        ("in_use", "<i8"),  # what the file itself says after the report: bytes in use; -1: it says nothing
        ("pool_bytes", "<i8"),  # bytes of the pool; -1: it says nothing
    ]
)
"""One allocation, free or failed request in a file."""

Reports = NDArray[np.void]
"""An array of `REPORT`."""

_BLOCK = 1 << 14


class ReportRows:
    """Grows by one row at a time; a row takes the bytes of a `REPORT`, not those of Python objects."""

    def __init__(self) -> None:
        self._blocks: list[Reports] = []
        self._rows: list[tuple[int, ...]] = []

    def add(self, *row: int) -> None:
        """Add a row: the fields of REPORT in their order."""
        self._rows.append(row)
        if len(self._rows) == _BLOCK:
            self._flush()

    def table(self) -> Reports:
        """All rows, in the order in which they were added."""
        self._flush()
        if len(self._blocks) != 1:
            self._blocks = [np.concatenate([np.empty(0, REPORT), *self._blocks])]
        return self._blocks[0]

    def _flush(self) -> None:
        if self._rows:
            self._blocks.append(np.array(self._rows, REPORT))
            self._rows.clear()


def numbers_of(names: dict[str, int], name: str, most: int = 0xFFFF) -> int:
    """The number of a name, in order of first use from 1; 0 once `most` names have numbers."""
    known = names.get(name)
    if known is None:
        known = names[name] = len(names) + 1 if len(names) < most else 0
    return known
