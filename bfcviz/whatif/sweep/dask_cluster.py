"""`on_dask`: serve the points of a sweep on the workers of a Dask cluster.

Dask gives the points of a worker that is lost to another one, and gives up a point after several workers; such a point
is then submitted once more, alone. Requests that are sent lie in the workers' memory; if all workers that have them are
lost, they are sent again with the points that still need them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from secrets import token_hex
from threading import Event
from typing import TYPE_CHECKING, Final

from bfcviz.errors import InvalidRequest, MissingExtra
from bfcviz.whatif.sweep.point import STREAMS, PointResult, SentStream, SweepPoint, serve_point

if TYPE_CHECKING:
    from distributed import Client, Future

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
    try:
        from distributed import Client  # noqa: PLC0415  an extra
    except ImportError as error:
        raise MissingExtra("sweep(client=...)", "Dask", "dask") from error
    try:
        made = Client(client, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"no scheduler of Dask answers at {client!r}: {error}") from error
    with made:
        yield made


def on_dask(
    points: Sequence[SweepPoint], streams: Mapping[str, SentStream], stop: Event, client: "Client"
) -> Iterator[tuple[int, PointResult]]:
    """Index and result of each point as it arrives; see `in_process`.

    Raises:
        ConnectionError: the cluster does not answer any more, or has no worker.
    """
    rounds, lost = [list(points)], Counter[int]()
    while rounds and not stop.is_set():
        _check(client)
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
        client.run(_forget, points[0].source.key.partition("/")[0] + "/", on_error="ignore")


def _one_round(
    points: Sequence[SweepPoint], streams: Mapping[str, SentStream], stop: Event, client: "Client"
) -> Iterator[tuple[SweepPoint, "PointResult | _Loss"]]:
    """Submit all points; each with its result as it arrives, or what was lost."""
    from distributed import as_completed  # noqa: PLC0415  an extra

    sent = _scattered({point.source.key for point in points} & streams.keys(), streams, client)
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
                _check(client)
                stop.wait(_LOOK_S)
            for future in batch:
                point = submitted.pop(future)
                result = _result(future, point)
                future.release()  # the cluster need not keep the result, nor compute it again
                yield point, result
    finally:
        if client.status == "running":
            client.cancel(list(submitted), force=True)


def _scattered(
    keys: Iterable[str], streams: Mapping[str, SentStream], client: "Client"
) -> dict[str, "Future[SentStream]"]:
    """Send requests to all workers."""
    try:
        return {key: client.scatter(streams[key], hash=False, broadcast=True) for key in keys}
    except Exception as error:  # there is no worker, or the scheduler is lost meanwhile
        raise ConnectionError(f"the cluster does not take the requests of the traces: {error}") from error


def _check(client: "Client") -> None:
    """Raise ConnectionError, if the scheduler is lost."""
    if client.status != "running":
        raise ConnectionError(f"the connection to the cluster is lost: the client is {client.status}")


def _result(future: "Future[PointResult]", point: SweepPoint) -> "PointResult | _Loss":
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


def _forget(prefix: str) -> None:
    """Run in each worker: drop the requests that it has read for this sweep."""
    STREAMS.forget(prefix)
