"""Whole states kept while a trace is passed, so that a later seek is short."""

from bisect import bisect_left, bisect_right
from typing import Final

from bfcviz.events.event_source import BLOCK
from bfcviz.model.seeking.snapshot import EMPTY, Snapshot
from bfcviz.model.state.reducer import ChunkTable

BUDGET: Final = 256 << 20
"""Bytes that the snapshots of one model may take; past it every second one goes."""


def snapshot_of(table: ChunkTable) -> Snapshot:
    """The state of `table`, which must know its peaks (`peaks_step` is `step`)."""
    region_rows, slots = table.region_rows()
    return Snapshot(
        table.step,
        table.chunk_rows(),
        region_rows,
        slots,
        table.num_allocs,
        table.ooms,
        table.peak_bytes_in_use,
        table.peak_pool_bytes,
        table.largest_alloc_size,
    )


class Snapshots:
    """Snapshots by step, `spacing` steps apart, within BUDGET; the first, at step 0 unless moved, always stays."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.spacing = BLOCK
        self.nbytes = 0
        self._steps = [0]
        self._kept = {0: EMPTY}

    @property
    def first(self) -> int:
        """The step of the first one."""
        return self._steps[0]

    def begin(self, snapshot: Snapshot) -> None:
        """Let `snapshot` be the first: earlier states can no longer be reached."""
        later = [step for step in self._steps if step > snapshot.step]
        self._kept = {snapshot.step: snapshot, **{step: self._kept[step] for step in later}}
        self._steps = [snapshot.step, *later]
        self.nbytes = sum(self._kept[step].nbytes for step in later)

    def wants(self, step: int) -> bool:
        """Whether a snapshot at `step` is missing here."""
        return step % self.spacing == 0 and step not in self._kept

    def add(self, snapshot: Snapshot) -> None:
        """Keep it, if there is room; `wants` has asked for it."""
        self._kept[snapshot.step] = snapshot
        self._steps.insert(bisect_left(self._steps, snapshot.step), snapshot.step)
        self.nbytes += snapshot.nbytes
        while self.nbytes > self.budget and len(self._steps) > 1:
            self.spacing *= 2
            for step in [step for step in self._steps[1:] if step % self.spacing]:
                self._steps.remove(step)
                self.nbytes -= self._kept.pop(step).nbytes

    def before(self, step: int) -> Snapshot:
        """The last one at or before `step`."""
        return self._kept[self._steps[bisect_right(self._steps, step) - 1]]

    def after(self, step: int) -> Snapshot | None:
        """The first one at or after `step`."""
        at = bisect_left(self._steps, step)
        return self._kept[self._steps[at]] if at < len(self._steps) else None
