"""Growth: holders that have more memory at the end of every step than at the end of the step before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.row_copy import taken
from bfcviz.model.holders.equal_steps import EqualSteps
from bfcviz.model.holders.grouping import Grouping
from bfcviz.model.holders.holder_paths import Path
from bfcviz.model.lifetimes.lifetimes import LIFETIME, of_chunks
from bfcviz.model.state.model import Model

GROWING: Final = np.dtype(
    [
        ("chunks", "<i8"),  # gained from the first compared end of a step to the last one
        ("bytes", "<i8"),
        ("times", "<u4"),  # from one compared end to the next, so often it had more bytes
        ("label", "<u4"),  # number of the label with most bytes among the chunks that stayed
    ]
)
"""What one holder gained."""


@dataclass(frozen=True)
class Growth:
    """Holders with more bytes at the last compared end of a step than at the first.

    Attributes:
        steps: what was compared; its `reason` says why if nothing was.
        rows: of GROWING, by bytes gained, those that grew every time first.
        names: the path of each holder.
        chunks: chunks in use at each compared end, (holders, ends), int64.
        bytes: their bytes, (holders, ends), int64.
        stayed: of LIFETIME: chunks in use at the last compared end that were allocated after the first one.
        holders: the row of each of them; -1 for holders that are not in `rows`.
    """

    steps: EqualSteps
    rows: NDArray[np.void]
    names: Sequence[str]
    chunks: NDArray[np.int64]
    bytes: NDArray[np.int64]
    stayed: NDArray[np.void]
    holders: NDArray[np.intp]

    @property
    def intervals(self) -> int:
        """From one compared end to the next: how often."""
        return max(len(self.steps.ends) - 1, 0)

    @property
    def growing(self) -> int:
        """The number of holders that grew every time; they are the first rows."""
        return int(np.count_nonzero(self.rows["times"] == self.intervals))

    def a_step(self, row: int) -> tuple[float, float]:
        """Chunks and bytes that a holder gains each step."""
        steps = self.intervals * self.steps.every
        return int(self.rows["chunks"][row]) / steps, int(self.rows["bytes"][row]) / steps

    def to_arrow(self) -> pa.Table:
        """One row a holder: what it gained and each step, and the lists of chunks and bytes at each end."""
        steps = max(self.intervals * self.steps.every, 1)
        return pa.table(
            {
                "holder": pa.array(list(self.names), pa.string()),
                "every_step": self.rows["times"] == self.intervals,
                "chunks_gained": self.rows["chunks"],
                "bytes_gained": self.rows["bytes"],
                "chunks_a_step": self.rows["chunks"] / steps,
                "bytes_a_step": self.rows["bytes"] / steps,
                "chunks": pa.array(self.chunks.tolist(), pa.list_(pa.int64())),
                "bytes": pa.array(self.bytes.tolist(), pa.list_(pa.int64())),
            }
        )


def growth(model: Model, steps: EqualSteps, how: Grouping) -> Growth:
    """Compare the holders at the ends of equal steps; the model returns to its step."""
    ends = steps.ends.tolist()
    counted = _Counted(how, len(ends))
    home = model.step
    last = model.in_use()
    for column, end in enumerate(ends):
        model.seek(end)
        last = model.in_use()
        counted.add(column, last)
    model.seek(home)
    if not ends:
        nothing = np.zeros((0, 0), np.int64)
        return Growth(
            steps, np.zeros(0, GROWING), [], nothing, nothing, np.zeros(0, LIFETIME), np.zeros(0, np.intp)
        )
    return counted.compared(steps, of_chunks(taken(last, last["born"] >= ends[0])))


class _Counted:
    """Chunks and bytes of each holder at each end."""

    def __init__(self, how: Grouping, ends: int) -> None:
        self._how = how
        self._numbers: dict[Path, int] = {}
        self._chunks = np.zeros((64, ends), np.int64)
        self._bytes = np.zeros((64, ends), np.int64)

    def add(self, column: int, records: NDArray[np.void]) -> None:
        """Count the chunks at one end."""
        at = self._rows(records)
        self._chunks[:, column] = np.bincount(at, minlength=len(self._chunks))
        np.add.at(self._bytes[:, column], at, records["size"].astype(np.int64))

    def compared(self, steps: EqualSteps, stayed: NDArray[np.void]) -> Growth:
        """The holders that gained bytes from the first end to the last."""
        times = np.count_nonzero(np.diff(self._bytes, axis=1) > 0, axis=1)
        gained = self._bytes[:, -1] - self._bytes[:, 0]
        most = self._bytes.shape[1] - 1
        order = np.lexsort([-gained, times < most])
        order = order[gained[order] > 0]
        rows = np.zeros(len(order), GROWING)
        rows["bytes"], rows["times"] = gained[order], times[order]
        rows["chunks"] = (self._chunks[:, -1] - self._chunks[:, 0])[order]
        place = np.full(len(self._bytes), -1, np.intp)
        place[order] = np.arange(len(order))
        holders = place[self._rows(stayed)] if len(stayed) else np.zeros(0, np.intp)
        rows["label"] = _largest_labels(stayed, holders, len(rows))
        names = [self._how.text(path) for path in self._numbers]
        chosen = [names[number] for number in order.tolist()]
        return Growth(steps, rows, chosen, self._chunks[order], self._bytes[order], stayed, holders)

    def _rows(self, records: NDArray[np.void]) -> NDArray[np.intp]:
        """The row of the holder of each record; makes room for new holders."""
        numbers, paths = self._how.grouped(records)
        rows = [self._numbers.setdefault(path, len(self._numbers)) for path in paths]
        if len(self._numbers) > len(self._chunks):
            more = max(len(self._numbers), 2 * len(self._chunks)) - len(self._chunks)
            self._chunks, self._bytes = (
                np.pad(table, ((0, more), (0, 0))) for table in (self._chunks, self._bytes)
            )
        found: NDArray[np.intp] = np.array(rows, np.intp)[numbers]
        return found


def _largest_labels(chunks: NDArray[np.void], holders: NDArray[np.intp], count: int) -> NDArray[np.uint32]:
    """For each of `count` holders the label of its chunks that has most bytes."""
    labels, at = np.unique(chunks["label"], return_inverse=True)
    found = np.zeros(count, np.uint32)
    mine = holders >= 0
    if not mine.any():
        return found
    cells, place = np.unique(holders[mine] * len(labels) + at[mine], return_inverse=True)
    sums = np.zeros(len(cells), np.uint64)
    np.add.at(sums, place, chunks["size"][mine])
    order = np.argsort(sums, kind="stable")
    found[cells[order] // len(labels)] = labels[cells[order] % len(labels)]
    return found
