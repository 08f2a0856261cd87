"""Where the points of a sweep are served: in this process, in others, or on a Dask cluster (`on_dask`).

Dask gives the points of a worker that is lost to another one, and gives up a point after several workers; such a point
is then submitted once more, alone. Requests that are sent lie in the workers' memory; if all workers that have them are
lost, they are sent again with the points that still need them.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from secrets import token_hex
from threading import Event
from typing import TYPE_CHECKING, Final

from bfcviz.errors import InvalidRequest
from bfcviz.extras import needed
from bfcviz.whatif.policy_table import is_of_table, policy_key, policy_of
from bfcviz.whatif.sweep.point import STREAMS, PointResult, SentStream, SweepPoint, serve_point

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as DaskFuture


# ------------------------------------------------------------------------------
# `in_processes`: serve the points of a sweep on processes of this machine.
#
# Each process is an executor of its own with one point at a time: a process that is killed so names the point that
# it served, and the others go on.

MOST_DEATHS: Final = 3
"""Processes that one point may end before it is given up."""

_LOOK_AT_PROCESSES_S: Final = 0.1  # between looks at `stop`

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
    """Index and result of each point as it arrives; see `serve_points`. At its end all processes are ended.

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
            for lane in _finished_process_lanes(lanes):
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
        self._executor = ProcessPoolExecutor(1, context, _prepare_sweep_process, (self._streams,))
        self._pid = self._executor.submit(os.getpid)

    def serve(self, point: SweepPoint) -> None:
        """Let the process serve a point."""
        self.point = point
        try:
            self.future = self._executor.submit(_serve_point_in_process, point)
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


def _finished_process_lanes(lanes: Sequence[_Lane]) -> list[_Lane]:
    """Those whose point is done, after a moment at most."""
    futures = {lane.future: lane for lane in lanes if lane.future is not None}
    done, _ = wait(futures, timeout=_LOOK_AT_PROCESSES_S, return_when=FIRST_COMPLETED)
    return [lane for future, lane in futures.items() if future in done]


_streams: dict[str, SentStream] = {}
"""In a process of a sweep: the requests that were sent to it."""


def _prepare_sweep_process(streams: dict[str, SentStream]) -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches every process of a terminal; the first one decides
    _streams.update(streams)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """In a process of a sweep: end with the process that started it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _serve_point_in_process(point: SweepPoint) -> PointResult:
    return serve_point(point, _streams.get(point.source.key))


# ------------------------------------------------------------------------------
# `on_dask`: serve the points of a sweep on the workers of a Dask cluster.

MOST_ROUNDS: Final = 4
"""How often a point is submitted: again, if its requests were lost."""

_LOOK_S: Final = 0.05  # between looks at the cluster


class _Loss(Enum):
    """Why a point has no result."""

    WORKERS = "each worker that served this point was lost: killed, perhaps for memory, or crashed"
    REQUESTS = "the workers that held the requests of this point were lost, again and again"


@contextmanager
def connected(client: "Client | str") -> Iterator["Client"]:
    """The client itself, or one of the scheduler at this address, which is closed after the block.

    Raises:
        MissingExtra: Dask is not installed.
        InvalidRequest: the client is asynchronous, or no scheduler answers at this address.
    """
    if not isinstance(client, str):
        if client.asynchronous:
            raise InvalidRequest(
                "this client is asynchronous; give one made by Client(...) outside of async code"
            )
        yield client
        return
    with needed("sweep(client=...)", "Dask", "dask"):
        from distributed import Client  # noqa: PLC0415  an extra
    try:
        made = Client(client, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"no scheduler of Dask answers at {client!r}: {error}") from error
    with made:
        yield made


def on_dask(
    points: Sequence[SweepPoint], streams: Mapping[str, SentStream], stop: Event, client: "Client"
) -> Iterator[tuple[int, PointResult]]:
    """Index and result of each point as it arrives; see `serve_points`.

    Raises:
        ConnectionError: the cluster does not answer any more, or has no worker.
    """
    rounds, lost = [list(points)], Counter[int]()
    while rounds and not stop.is_set():
        _check_dask_connection(client)
        again = []
        for point, result in _one_round(rounds.pop(0), streams, stop, client):
            if isinstance(result, PointResult):
                yield point.index, result
                continue
            lost[point.index] += 1
            if lost[point.index] == MOST_ROUNDS or (result is _Loss.WORKERS and lost[point.index] > 1):
                yield point.index, point.failed(result.value)
            elif result is _Loss.WORKERS:  # alone, for another point may have ended the workers
                rounds.append([point])
            else:
                again.append(point)
        if again:
            rounds.insert(0, again)
    with suppress(Exception):  # the cluster may end meanwhile
        client.run(_forget_on_dask_worker, points[0].source.key.partition("/")[0] + "/", on_error="ignore")


def _one_round(
    points: Sequence[SweepPoint], streams: Mapping[str, SentStream], stop: Event, client: "Client"
) -> Iterator[tuple[SweepPoint, "PointResult | _Loss"]]:
    """Submit all points; each with its result as it arrives, or what was lost."""
    from distributed import as_completed  # noqa: PLC0415  an extra

    sent = _scattered_to_dask({point.source.key for point in points} & streams.keys(), streams, client)
    name = f"sweep-{token_hex(8)}"
    submitted = {
        client.submit(
            serve_point, point, sent.get(point.source.key), pure=False, key=f"{name}-{point.index}"
        ): point
        for point in points
    }
    arriving = as_completed(list(submitted))
    try:
        while not arriving.is_empty() and not stop.is_set():
            batch = arriving.next_batch(block=False)
            if not batch:
                _check_dask_connection(client)
                stop.wait(_LOOK_S)
            for future in batch:
                point = submitted.pop(future)
                result = _dask_point_result(future, point)
                future.release()  # the cluster need not keep the result, nor compute it again
                yield point, result
    finally:
        if client.status == "running":
            client.cancel(list(submitted), force=True)


def _scattered_to_dask(
    keys: Iterable[str], streams: Mapping[str, SentStream], client: "Client"
) -> dict[str, "DaskFuture[SentStream]"]:
    try:
        return {key: client.scatter(streams[key], hash=False, broadcast=True) for key in keys}
    except Exception as error:  # there is no worker, or the scheduler is lost meanwhile
        raise ConnectionError(f"the cluster does not take the requests of the traces: {error}") from error


def _check_dask_connection(client: "Client") -> None:
    """Raise ConnectionError, if the scheduler is lost."""
    if client.status != "running":
        raise ConnectionError(f"the connection to the cluster is lost: the client is {client.status}")


def _dask_point_result(future: "DaskFuture[PointResult]", point: SweepPoint) -> "PointResult | _Loss":
    """The result of a future that is done, or what was lost."""
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415  an extra

    try:
        return future.result()
    except KilledWorker:
        return _Loss.WORKERS
    except (CancelledError, OSError):
        return _Loss.REQUESTS
    except Exception as error:  # noqa: BLE001  bfcviz is missing there, for example
        return point.failed(f"{type(error).__name__}: {error}")


def _forget_on_dask_worker(prefix: str) -> None:
    """Run in each worker: drop the requests that it has read for this sweep."""
    STREAMS.forget(prefix)


# ------------------------------------------------------------------------------
# `serve_points`: the points of a sweep where they are asked for; and whether processes are worth their start.


def serve_points(
    points: Sequence[SweepPoint],
    streams: Mapping[str, SentStream],
    stop: Event,
    client: "Client | str | None",
    processes: int | None,
) -> Generator[tuple[int, PointResult], None, None]:
    """Serve points in this process, in others or on Dask: index and result of each, as they arrive.

    Args:
        points: what to serve.
        streams: the requests of sources without a path, by the key of the source.
        stop: set to end before the next point.
        client: of a Dask cluster, or the address of its scheduler.
        processes: number of other processes.
    """
    if not points:
        return
    if client is not None:
        with connected(client) as cluster:
            yield from on_dask(points, streams, stop, cluster)
    elif processes is not None:
        yield from in_processes(points, streams, stop, processes)
    else:
        for point in points:
            if stop.is_set():
                return
            yield point.index, serve_point(point, streams.get(point.source.key))


START_S: Final = 4.0
"""What the start of processes costs, in seconds: each imports bfcviz, all at once."""

_REQUEST_S: Final = 1e-6

_POINT_S: Final = 0.005

_READ_S: Final = 1e-7  # per byte of a file

_BYTES_A_REQUEST: Final = 10  # of a file


def processes_pay_off(
    points: Sequence[SweepPoint], streams: Mapping[str, SentStream], processes: int
) -> bool:
    """Whether processes save more than their start costs; True where that is not known, or where they protect this one.

    One process saves nothing: who asks for it wants points to end it instead of this process. Rules that are not of the
    table can do that, too.
    """
    policies = {policy_key(point.policy): point.policy for point in points}.values()
    if processes == 1 or not all(is_of_table(policy_of(policy)) for policy in policies):
        return True
    paths = {point.source.path for point in points if point.source.path}
    try:
        sizes = {path: Path(path).stat().st_size for path in paths}
    except OSError:  # a URL, or a file that only workers can read
        return True
    if any(Path(path).is_dir() for path in paths):
        return True
    requests = {key: len(sent.rows) for key, sent in streams.items()}
    needed = _READ_S * sum(sizes.values())
    for point in points:
        count = requests.get(point.source.key) or sizes[point.source.path] / _BYTES_A_REQUEST
        needed += _POINT_S + _REQUEST_S * count
    return needed * (1 - 1 / processes) > START_S
