"""States of one pool, kept while the model passes over a trace, so that a later seek is short."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.event_source import BLOCK
from bfcviz.model import array_access
from bfcviz.model.row_storage import CHUNK_ROW, REGION_ROW

BUDGET: Final = 256 << 20
"""Bytes that the snapshots of one model may take. Beyond it the model drops every second one."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot: the whole state of a pool at `step`.

    Attributes:
        step: events applied.
        chunk_rows: every chunk, in no order, of CHUNK_ROW.
        region_rows, slots: every region by ascending address, of REGION_ROW, and its slot.
        num_allocs, ooms: counts up to `step`.
        peak_bytes_in_use, peak_pool_bytes, largest_alloc_size: maxima up to `step`.
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
        """The memory that a snapshot takes, approximately."""
        return self.chunk_rows.nbytes + self.region_rows.nbytes + self.slots.nbytes + 512

    @property
    def bytes_in_use(self) -> int:
        """Bytes of all chunks in use in a snapshot."""
        used = self.chunk_rows["state"] == array_access.CHUNK_IN_USE
        return int(self.chunk_rows["size"][used].sum())

    @property
    def pool_bytes(self) -> int:
        """Bytes of all regions in a snapshot."""
        return int(self.region_rows["size"].sum())


EMPTY = Snapshot(0, np.zeros(0, CHUNK_ROW), np.zeros(0, REGION_ROW), np.zeros(0, np.uint64))
"""Step 0 of every trace: no region, no chunk."""


class Snapshots:
    """Snapshots of a pool by step, `spacing` steps apart, within BUDGET. The first one always stays."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.spacing = BLOCK
        self.nbytes = 0
        self._steps = [0]
        self._kept = {0: EMPTY}

    def copy(self) -> "Snapshots":
        """The same snapshots, kept independently; their rows are shared."""
        made = Snapshots(self.budget)
        made.spacing, made.nbytes = self.spacing, self.nbytes
        made._steps, made._kept = list(self._steps), dict(self._kept)
        return made

    @property
    def first(self) -> int:
        """The step of the first snapshot."""
        return self._steps[0]

    def begin(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the first one: earlier states are no longer reachable."""
        later = [step for step in self._steps if step > snapshot.step]
        self._kept = {snapshot.step: snapshot, **{step: self._kept[step] for step in later}}
        self._steps = [snapshot.step, *later]
        self.nbytes = sum(self._kept[step].nbytes for step in later)

    def wants(self, step: int) -> bool:
        """Whether `add` should keep a snapshot at `step`."""
        return step % self.spacing == 0 and step not in self._kept

    def add(self, snapshot: Snapshot) -> None:
        """Keep a snapshot for which `wants` is true; drop every second one where BUDGET is exceeded."""
        self._kept[snapshot.step] = snapshot
        self._steps.insert(bisect_left(self._steps, snapshot.step), snapshot.step)
        self.nbytes += snapshot.nbytes
        while self.nbytes > self.budget and len(self._steps) > 1:
            self.spacing *= 2
            for step in [step for step in self._steps[1:] if step % self.spacing]:
                self._steps.remove(step)
                self.nbytes -= self._kept.pop(step).nbytes

    def before(self, step: int) -> Snapshot:
        """The last snapshot at or before `step`."""
        return self._kept[self._steps[bisect_right(self._steps, step) - 1]]

    def after(self, step: int) -> Snapshot | None:
        """The first snapshot at or after `step`."""
        at = bisect_left(self._steps, step)
        return self._kept[self._steps[at]] if at < len(self._steps) else None
