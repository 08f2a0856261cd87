"""The points of a sweep (one trace, one policy, one limit), and where they are served.

A worker reads each trace once. `serve_points` serves them in this process, on processes of this machine or on a Dask
cluster; a worker imports this module, and neither Dask nor pyarrow with it.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from math import isfinite
from pathlib import Path
from secrets import token_hex
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BfcvizError, InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.extras import needed
from bfcviz.units import parse_bytes
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import is_of_table, policy_key, policy_of
from bfcviz.whatif.requests import RequestStream, stream_of

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as DaskFuture

# ------------------------------------------------------------------------------
# The points of a sweep (one trace, one policy, one limit): how the requests are read and a point is served.


class TraceSource(NamedTuple):
    """Where a worker of a sweep gets the requests of one trace from.

    Attributes:
        key: identifies the source in the caches of workers; no other sweep uses it.
        name: of the trace, in results.
        path: a path or URL that the worker reads; empty: the requests are sent to it.
        pool: index or name of the heap; None: the one with a failed request, else the first.
        version: what changes with the content, as text; empty: not known.
        with_failed: whether requests that failed in the trace are served, too.
    """

    key: str
    name: str
    path: str
    pool: int | str | None
    version: str
    with_failed: bool = True


@dataclass(frozen=True)
class SentStream:
    """What a sweep sends its workers of a request stream: all that a policy can see; `names`: of labels, by number.

    No tuple: Dask would send each item on its own.
    """

    rows: NDArray[np.void]
    regions: NDArray[np.void]
    names: Mapping[int, str]
    source: str
    limit: int | None
    notes: tuple[str, ...]

    @classmethod
    def of(cls, stream: RequestStream) -> "SentStream":
        """What a sweep sends its workers of a stream."""
        return cls(stream.rows, stream.regions, stream.label_names, stream.source, stream.limit, stream.notes)

    def stream(self) -> RequestStream:
        """The request stream, after a sweep's worker received it."""
        labels = Labels()
        for number in range(1, max(self.names, default=0) + 1):
            labels.intern(
                self.names.get(number, ""), number=str(number)
            )  # equal names may have several numbers
        return RequestStream(
            self.rows, labels, self.source, self.limit, regions=self.regions, notes=self.notes
        )


class SweepLimit(NamedTuple):
    """The memory limit of a sweep's points, or a part of what each trace needs at least.

    Attributes:
        text: in results: `none`, bytes as digits, or as `125%`.
        num_bytes: the limit; None: no limit, or a percentage.
        percent: of the most bytes requested at once by the trace; None: not so given.
    """

    text: str
    num_bytes: int | None = None
    percent: float | None = None

    @classmethod
    def of(cls, given: int | str | None) -> "SweepLimit":
        """The limit of points, of a sweep's argument: bytes, a text such as `8GiB` or `125%`, or None for no limit.

        Raises:
            InvalidRequest: it is neither. A size that is no limit, such as 0, gives points with a message.
        """
        if given is None:
            return cls("none")
        try:
            if isinstance(given, str) and given.strip().endswith("%"):
                percent = float(given.strip()[:-1])
                if not isfinite(percent):
                    raise ValueError  # noqa: TRY301  as another text
                return cls(f"{percent:g}%", percent=percent)
            num_bytes = parse_bytes(given, "limit")
        except (TypeError, ValueError):
            raise InvalidRequest(
                f"limit={given!r} is not a size; give bytes, a text such as '8GiB', or '125%' of the most bytes "
                "that the trace requests at once"
            ) from None
        return cls(str(num_bytes), num_bytes)

    def bytes_for(self, peak_requested: int) -> int | None:
        """The limit of a point in bytes, for a trace whose most requested bytes are these; None: no limit."""
        return self.num_bytes if self.percent is None else round(self.percent / 100 * peak_requested)


@dataclass(frozen=True)
class SweepPoint:
    """One point of a sweep, as it is sent to a worker.

    Attributes:
        index: its place in the results.
        policy: text of `policy_of`, or the policy.
        stop_at_failure: whether to end after the first request that fails.
    """

    index: int
    source: TraceSource
    policy: str | Policy
    limit: SweepLimit
    stop_at_failure: bool = False

    @property
    def key(self) -> "PointKey":
        """What the result of the point depends on."""
        return PointKey(
            self.source.name,
            self.source.version,
            "" if self.source.pool is None else str(self.source.pool),
            policy_key(self.policy),
            self.limit.text,
            self.stop_at_failure,
            self.source.with_failed,
        )

    def failed(self, error: str) -> "PointResult":
        """The result of a point that could not be served, with the reason."""
        return PointResult(*self.key, error=error)


class PointKey(NamedTuple):
    """What the result of a point depends on: equal keys mean equal numbers. See `PointResult`."""

    trace: str
    version: str
    pool: str
    policy: str
    limit: str
    stop_at_failure: bool
    with_failed: bool


@dataclass(frozen=True)
class PointResult:
    """The numbers of one point; sizes are bytes, None where a point has an error or the policy does not know.

    Attributes:
        trace: name of the trace: its path, or its source.
        version: what changes with the content of the trace; empty: not known.
        pool: the heap, as it was given; empty: the one with a failed request, else the first.
        policy: name and options.
        limit: as it was given: `none`, bytes, or a percentage.
        stop_at_failure: whether it ended after the first failure.
        with_failed: whether requests that failed in the trace are among these.
        limit_bytes: the limit; None: no limit.
        requests: allocations, frees and marks of the trace.
        tried: how many of these were tried: all, unless it ended after the first failure.
        served: how many of those tried did not fail.
        failures: allocations that failed; 0: the trace fits.
        first_failure: index of the event of the first one; -1: the request is no event of the trace. None: it fits.
        first_failure_bytes: what it asked for.
        peak_requested: the most bytes requested at once: no rules need less.
        peak_in_use: the most bytes of blocks in use.
        peak_reserved: the most bytes that the driver granted.
        reserved_not_in_use: 1 - peak in use / peak reserved.
        internal_fragmentation: part of the bytes in use that was not requested, where most is in use.
        external_fragmentation: 1 - largest free chunk / free bytes, at the first failure, else where most is in use.
        grants: calls to the driver that it granted.
        refusals: calls that it refused.
        releases: calls that returned memory.
        seconds: of serving, without reading.
        notes: what is missing or assumed in the trace, as sentences.
        error: why there are no numbers; empty: there are.
    """

    trace: str
    version: str
    pool: str
    policy: str
    limit: str
    stop_at_failure: bool
    with_failed: bool = True
    limit_bytes: int | None = None
    requests: int | None = None
    tried: int | None = None
    served: int | None = None
    failures: int | None = None
    first_failure: int | None = None
    first_failure_bytes: int | None = None
    peak_requested: int | None = None
    peak_in_use: int | None = None
    peak_reserved: int | None = None
    reserved_not_in_use: float | None = None
    internal_fragmentation: float | None = None
    external_fragmentation: float | None = None
    grants: int | None = None
    refusals: int | None = None
    releases: int | None = None
    seconds: float | None = None
    notes: str = ""
    error: str = ""

    @property
    def key(self) -> PointKey:
        """What the result of the point depends on."""
        return PointKey(*(getattr(self, name) for name in PointKey._fields))

    @property
    def fits(self) -> bool:
        """Whether every request of the point was served."""
        return self.failures == 0 and self.served == self.requests

    @property
    def outcome(self) -> str:
        """What the point came to: `fits`, `fails`, or `error`."""
        return "error" if self.error else "fits" if self.fits else "fails"


MOST_BYTES: Final = 1 << 30
"""Of the streams in memory; the one that was not used for longest is dropped."""


class CachedStream(NamedTuple):
    """What `StreamCache` keeps for points: a stream, and the most bytes that it requests at once."""

    stream: RequestStream
    peak_requested: int


class _StreamCacheEntry:
    """An entry of `StreamCache`: what reading a trace gave."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held while it is read: other threads wait, and do not read it again
        self.found: CachedStream | None = None
        self.error: BfcvizError | None = None

    def num_bytes(self) -> int:
        return self.found.stream.rows.nbytes if self.found is not None else 0


class StreamCache:
    """Request streams by key, for a sweep's points, and the errors of traces that cannot be read. It is thread-safe.

    Args:
        most_bytes: of all streams together; the newest is always kept.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, _StreamCacheEntry] = {}  # the one used last is the last
        self._most_bytes = most_bytes

    def get(self, key: str, read: Callable[[], RequestStream]) -> CachedStream:
        """The request stream of this key, which `read` returns the first time.

        Raises:
            BfcvizError: what `read` raised the first time.
        """
        with self._lock:
            entry = self._entries.pop(key, None) or _StreamCacheEntry()
            self._entries[key] = entry
        with entry.lock:
            if entry.found is None and entry.error is None:
                try:
                    stream = read()
                    entry.found = CachedStream(stream, int(stream.live_bytes.max(initial=0)))
                except BfcvizError as error:
                    entry.error = error
        if entry.found is None:
            assert entry.error is not None
            raise entry.error.with_traceback(None)
        self._drop()
        return entry.found

    def forget(self, prefix: str) -> None:
        """Drop all request streams whose key begins with this."""
        with self._lock:
            self._entries = {key: entry for key, entry in self._entries.items() if not key.startswith(prefix)}

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self) -> None:
        with self._lock:
            total = sum(entry.num_bytes() for entry in self._entries.values())
            for key in list(self._entries)[:-1]:
                if total <= self._most_bytes:
                    break
                total -= self._entries.pop(key).num_bytes()


STREAMS: Final = StreamCache()
"""Of this process."""


def serve_point(point: SweepPoint, sent: SentStream | None = None) -> PointResult:
    """Serve the requests of a point; an error becomes the message of the result.

    Args:
        point: what to serve.
        sent: the requests, if its source has no path.
    """
    try:
        return _served_sweep_point(point, sent)
    except BfcvizError as error:
        return point.failed(str(error))
    except MemoryError:
        return point.failed("this machine has not enough memory to serve this trace; use fewer processes")
    except Exception as error:  # noqa: BLE001  policies of users may raise anything
        return point.failed(f"{type(error).__name__}: {error}")


def _served_sweep_point(point: SweepPoint, sent: SentStream | None) -> PointResult:
    def read() -> RequestStream:
        if sent is not None:
            return sent.stream()
        return stream_of(point.source.path, point.source.pool, with_failed=point.source.with_failed)

    stream, peak_requested = STREAMS.get(point.source.key, read)
    if not stream.allocations:
        return point.failed("the trace has no allocation: there is nothing to serve")
    limit = point.limit.bytes_for(peak_requested)
    policy = policy_of(point.policy)
    start = perf_counter()
    outcome = policy.serve(stream, limit, stop_at_failure=point.stop_at_failure)
    seconds = perf_counter() - start
    return replace(
        point.failed(""),
        limit_bytes=limit,
        requests=len(stream),
        tried=outcome.served,
        served=outcome.served - len(outcome.failures),
        **_first_failure_of_point(outcome),
        peak_requested=peak_requested,
        peak_in_use=outcome.peak_in_use,
        peak_reserved=outcome.peak_reserved,
        reserved_not_in_use=float(outcome.reserved_not_in_use),
        internal_fragmentation=float(outcome.internal_fragmentation),
        external_fragmentation=_external_fragmentation(outcome),
        **outcome.driver_calls._asdict(),
        seconds=seconds,
        notes="; ".join(stream.notes),
    )


def _first_failure_of_point(outcome: Outcome) -> dict[str, Any]:
    failures = outcome.failures
    if not len(failures):
        return {"failures": 0}
    first = outcome.stream.rows[int(failures[0])]
    return {
        "failures": len(failures),
        "first_failure": int(first["event"]),
        "first_failure_bytes": int(first["size"]),
    }


def _external_fragmentation(outcome: Outcome) -> float | None:
    """The point's external fragmentation at the first failure, else where most is in use; None: not known."""
    if not outcome.served:
        return None
    at = int(outcome.failures[0]) if len(outcome.failures) else int(outcome.in_use.argmax())
    free = outcome.free_memory(at)
    return None if free is None else free.scattered_share


# ------------------------------------------------------------------------------
# Where the points of a sweep are served: in this process, in others, or on a Dask cluster (`on_dask`).
#
# Dask gives the points of a worker that is lost to another one, and gives up a point after several workers; such a
# point is then submitted once more, alone. Requests that are sent lie in the workers' memory; if all workers that have
# them are lost, they are sent again with the points that still need them.


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
    """Serve points in processes, which end with it: index and result of each as it arrives; see `serve_points`.

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
    """Raise InvalidRequest, if the policy of a point is of a class that only this process knows."""
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
    """A process of a sweep, and the point that it serves."""

    def __init__(self, streams: Mapping[str, SentStream]) -> None:
        self._streams = dict(streams)
        self.point: SweepPoint | None = None
        self.future: Future[PointResult] | None = None
        self.restart()

    @property
    def started(self) -> bool:
        """Whether the process that serves points has started."""
        return self._pid.done() and self._pid.exception() is None

    def restart(self) -> None:
        """Start a process that serves points."""
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
    """The Dask client itself, or one of the scheduler at this address, which is closed after the block.

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
    """Serve points on a Dask cluster: index and result of each as it arrives; see `serve_points`.

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
    """Submit all points to the Dask cluster; each with its result as it arrives, or what was lost."""
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
    """The result of a point on Dask that is done, or what was lost."""
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
    """Whether processes for a sweep's points save more than their start costs, or protect this one.

    True where that is not known.

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
