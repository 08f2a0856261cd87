"""WorkerTraces: the workers that record, or recorded, into a folder, and the numbers of each over time."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BfcvizError
from bfcviz.events.origin import Status
from bfcviz.events.storage.recording_set import recordings_in
from bfcviz.events.trace import Trace
from bfcviz.figures.comparison.workers import WorkerRow, WorkerState
from bfcviz.model.timelines.by_time import TimeTimeline


class WorkerTrace:
    """One worker that is followed: the trace of its recording, and its totals over time.

    Attributes:
        name: of its folder.
        path: of its folder.
        trace: what it has recorded.
        timeline: its totals by time, as far as they were read.
        problem: why no more of them can be read.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.trace = Trace.open(path)
        self.timeline = TimeTimeline()
        self.problem = ""

    @property
    def state(self) -> WorkerState:
        """Whether it records, has ended, or was lost before it could end."""
        origin = self.trace.origin
        if origin.status == Status.RECORDING:
            return WorkerState.LIVE
        return WorkerState.ENDED if origin.has_ended_whole else WorkerState.LOST

    def update(self) -> bool:
        """Read new events, a limited number; returns whether more wait, or may come."""
        if self.problem:
            return False
        try:
            self.trace.refresh()
            waiting = self.timeline.extend(self.trace)
        except BfcvizError as error:
            self.problem = str(error)
            return False
        return waiting or self.trace.following

    def row(self) -> WorkerRow:
        """Its numbers now and over time, for the figure."""
        series = self.timeline.series
        last = series[-1] if len(series) else None
        started = self.trace.origin.details.get("started_ns")
        begin = 0 if isinstance(started, int) else self.timeline.begin_ns or 0
        times: NDArray[np.float64] = (series["time"] - begin) / 1e9
        return WorkerRow(
            name=self.name,
            state=self.state,
            in_use=0 if last is None else int(last["bytes_in_use_last"]),
            pool=0 if last is None else int(last["pool_bytes_last"]),
            free=0 if last is None else int(last["free_bytes_last"]),
            largest_free=0 if last is None else int(last["largest_free_chunk_last"]),
            limit=self.trace.origin.pools[0].limit,
            failed=self.timeline.failed,
            started_s=started / 1e9 if isinstance(started, int) else None,
            times=times,
            in_use_most=series["bytes_in_use_max"],
            pool_most=series["pool_bytes_max"],
            problem=self.problem,
        )


class WorkerTraces:
    """The workers of a folder; `refresh` finds new ones.

    Attributes:
        folder: has a recording in each subfolder.
        workers: in the order of their names; none is ever removed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[WorkerTrace] = []

    def refresh(self) -> int:
        """Add the recordings that have begun since the last call; returns how many."""
        known = {each.path for each in self.workers}
        new = [
            self._opened(name, path) for name, path in recordings_in(self.folder).items() if path not in known
        ]
        added = [each for each in new if each is not None]
        self.workers += added
        return len(added)

    @staticmethod
    def _opened(name: str, path: Path) -> WorkerTrace | None:
        try:
            return WorkerTrace(name, path)
        except BfcvizError:  # it is being made, or removed: the next call looks again
            return None
