"""`in_processes`: serve the points of a sweep on processes of this machine.

Each process is an executor of its own with one point at a time: a process that is killed so names the point that it
served, and the others go on.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Final

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.sweep.point import PointResult, SentStream, SweepPoint, serve_point

MOST_DEATHS: Final = 3
"""Processes that one point may end before it is given up."""

_LOOK_S: Final = 0.1  # between looks at `stop`

_KILLED: Final = (
    "{deaths} processes ended while they served this point: they were killed, perhaps for memory, or crashed"
)
_NOT_STARTED: Final = (
    "the processes ended while they started; a script calls bfcviz.sweep(processes=...) below "
    "`if __name__ == '__main__':`"
)


def in_processes(
    points: Sequence[SweepPoint], streams: Mapping[str, SentStream], stop: threading.Event, processes: int
) -> Iterator[tuple[int, PointResult]]:
    """Index and result of each point as it arrives; see `in_process`. At its end all processes are ended.

    Raises:
        InvalidRequest: a policy is a class of a notebook, which other processes cannot import.
    """
    _check_can_be_sent(points)
    waiting, deaths, failed_starts = deque(points), Counter[int](), 0
    lanes = [_Lane(streams) for _ in range(min(processes, len(points)))]
    try:
        while not stop.is_set() and (waiting or any(lane.point for lane in lanes)):
            for lane in lanes:
                if lane.point is None and waiting:
                    lane.serve(waiting.popleft())
            for lane in _finished(lanes):
                point, result = lane.take()
                if result is None:
                    failed_starts += not lane.started
                    lane.restart()
                    deaths[point.index] += 1
                    if failed_starts >= MOST_DEATHS:
                        result = point.failed(_NOT_STARTED)
                        yield from ((each.index, each.failed(_NOT_STARTED)) for each in waiting)
                        waiting.clear()
                    elif deaths[point.index] >= MOST_DEATHS:
                        result = point.failed(_KILLED.format(deaths=MOST_DEATHS))
                if result is None:
                    waiting.append(point)
                else:
                    yield point.index, result
    finally:
        for lane in lanes:
            lane.end()


def _check_can_be_sent(points: Sequence[SweepPoint]) -> None:
    """Raise InvalidRequest, if a policy is of a class that only this process knows."""
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) is not None:  # a script: the processes import it
        return
    for policy in {id(point.policy): point.policy for point in points}.values():
        if type(policy).__module__ == "__main__":
            name = type(policy).__qualname__
            raise InvalidRequest(
                f"the policy {name} is defined in a notebook or in code without a file, which other processes cannot "
                f"import: put {name} into a .py file and import it, or leave out `processes`"
            )


class _Lane:
    """A process, and the point that it serves."""

    def __init__(self, streams: Mapping[str, SentStream]) -> None:
        self._streams = dict(streams)
        self.point: SweepPoint | None = None
        self.future: Future[PointResult] | None = None
        self.restart()

    @property
    def started(self) -> bool:
        """Whether the process has started."""
        return self._pid.done() and self._pid.exception() is None

    def restart(self) -> None:
        """Start a process."""
        # Not a fork: other threads of this process may hold locks.
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(1, context, _prepare, (self._streams,))
        self._pid = self._executor.submit(os.getpid)

    def serve(self, point: SweepPoint) -> None:
        """Let the process serve a point."""
        self.point = point
        try:
            self.future = self._executor.submit(_serve, point)
        except BrokenProcessPool as error:  # it was killed while it had nothing to do
            self.future = Future()
            self.future.set_exception(error)

    def take(self) -> tuple[SweepPoint, PointResult | None]:
        """The point that was served, and its result; None: the process ended."""
        assert self.point is not None
        assert self.future is not None
        point, future = self.point, self.future
        self.point = self.future = None
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            return point, None
        if error is not None:  # it cannot be sent
            return point, point.failed(f"{type(error).__name__}: {error}")
        return point, future.result()

    def end(self) -> None:
        """End the process, also in the middle of a point."""
        if self.point is not None and self.started:
            with suppress(ProcessLookupError):
                os.kill(self._pid.result(), signal.SIGTERM)
        self._executor.shutdown(wait=True, cancel_futures=True)


def _finished(lanes: Sequence[_Lane]) -> list[_Lane]:
    """Those whose point is done, after a moment at most."""
    futures = {lane.future: lane for lane in lanes if lane.future is not None}
    done, _ = wait(futures, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
    return [lane for future, lane in futures.items() if future in done]


_streams: dict[str, SentStream] = {}
"""In a process of a sweep: the requests that were sent to it."""


def _prepare(streams: dict[str, SentStream]) -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches every process of a terminal; the first one decides
    _streams.update(streams)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _serve(point: SweepPoint) -> PointResult:
    return serve_point(point, _streams.get(point.source.key))
