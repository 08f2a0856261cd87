"""`bfcviz.sweep`: every trace under every policy and limit.

::

    results = bfcviz.sweep(["a.parquet", "s3://runs/b.parquet"], ["bfc", "torch"], ["8GiB", "12GiB", "110%"])
    print(results)                                                    # in this process
    results = bfcviz.sweep(paths, policies, limits, processes=8)      # on this machine
    results = bfcviz.sweep(paths, policies, limits, client=client)    # on a Dask cluster
"""

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import product
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final, SupportsIndex

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import is_of_table, policy_key, policy_of
from bfcviz.whatif.sweep.dask_cluster import connected, on_dask
from bfcviz.whatif.sweep.in_process import in_process
from bfcviz.whatif.sweep.local_processes import in_processes
from bfcviz.whatif.sweep.point import (
    PointResult,
    SentStream,
    SweepLimit,
    SweepPoint,
    TraceSource,
)
from bfcviz.whatif.sweep.results import SweepResults
from bfcviz.whatif.sweep.stream_cache import STREAMS
from bfcviz.whatif.sweep.trace_sources import TraceLike, sources_of

if TYPE_CHECKING:
    from distributed import Client

LimitLike = int | str | None

SAVE_S: Final = 5.0
"""Seconds between two writes of the results' file."""


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        done: points with a result, those of an earlier sweep included.
        asked: all points.
        newest: the result that arrived last; None: at the start.
        points_per_s: points served per second since the start.
    """

    done: int
    asked: int
    newest: PointResult | None
    points_per_s: float
    _collected: "_Collected" = field(repr=False)

    @property
    def results(self) -> SweepResults:
        """What is known now, also in another thread."""
        return self._collected.results()


def sweep(  # noqa: PLR0913  what, where, and how to run
    traces: TraceLike | Iterable[TraceLike],
    policies: str | Policy | Iterable[str | Policy],
    limits: LimitLike | Iterable[LimitLike] = None,
    *,
    client: "Client | str | None" = None,
    processes: int | None = None,
    pool: int | str | None = None,
    stop_at_failure: bool = False,
    results: str | os.PathLike[str] | None = None,
    progress: Callable[[SweepProgress], object] | None = None,
    stop: Event | None = None,
) -> SweepResults:
    """Serve the requests of every trace under every policy and limit.

    A point that cannot be served has a message instead of numbers, and the sweep goes on. Ctrl-C, `stop` and the loss
    of the cluster end it; it then returns what is known, and `complete` is false.

    Args:
        traces: paths or URLs, which the workers read, each once; or traces and request streams, which are sent to them.
        policies: as `policy_of` takes them: `"bfc:allow_growth=true"`.
        limits: bytes, `"8GiB"`, `"110%"` of the most bytes that a trace requests at once, or None for no limit.
        client: of a Dask cluster, or the address of its scheduler; bfcviz must be installed in its workers.
        processes: the number of processes of this machine; by default the points are served in this one.
        pool: the heap in each trace: its index or name; None: the one with a failed request, else the first.
        stop_at_failure: whether a point ends after its first request that fails.
        results: a Parquet file: points that have numbers in it, made by this version under a policy of the table, are
            not served again; all results are written to it, every few seconds and at the end.
        progress: called at the start and after each point, in the thread of the sweep.
        stop: set it, from any thread, to end the sweep.

    Raises:
        InvalidRequest: there is no such policy or option, two policies have one name, an argument is no limit, a policy
            cannot be sent to a process, or no scheduler answers.
        MissingExtra: `client` is an address, and Dask is not installed.
        FileError: the file of results cannot be read or written.
    """
    if processes is not None and (client is not None or processes < 1):
        raise InvalidRequest(f"processes={processes}; give at least 1, or None, and not a client with it")
    prefix, sources, streams = sources_of(traces, pool)
    points = _points(sources, policies, limits, stop_at_failure=stop_at_failure)
    collected = _Collected(points, results, progress)
    missing = [point for point in points if point.index not in collected.found]
    try:
        collected.collect(_serve(missing, streams, stop or Event(), client, processes))
    finally:
        STREAMS.forget(prefix)
        collected.save()
    return collected.results()


def _serve(
    points: Sequence[SweepPoint],
    streams: Mapping[str, SentStream],
    stop: Event,
    client: "Client | str | None",
    processes: int | None,
) -> Generator[tuple[int, PointResult], None, None]:
    """Index and result of each point, in the order in which they arrive."""
    if not points:
        return
    if client is not None:
        with connected(client) as cluster:
            yield from on_dask(points, streams, stop, cluster)
    elif processes is not None:
        yield from in_processes(points, streams, stop, processes)
    else:
        yield from in_process(points, streams, stop)


def _points(
    sources: Sequence[TraceSource],
    policies: str | Policy | Iterable[str | Policy],
    limits: LimitLike | Iterable[LimitLike],
    *,
    stop_at_failure: bool,
) -> list[SweepPoint]:
    """All points, those of a trace together, without those given twice."""
    given = [policies] if isinstance(policies, str) or not isinstance(policies, Iterable) else list(policies)
    chosen: dict[str, str | Policy] = {}
    for policy in given:
        known = chosen.setdefault(policy_key(policy), policy)  # a wrong name is told at once
        if policy_of(known) != policy_of(policy):
            raise InvalidRequest(
                f"two policies have the name and options {policy_key(policy)}; give one of them another name"
            )
    sizes = [limits] if limits is None or isinstance(limits, str | SupportsIndex) else list(limits)
    tried = list(dict.fromkeys(SweepLimit.of(each) for each in sizes))
    asked = product(sources, chosen.values(), tried)
    return [
        SweepPoint(index, source, policy, limit, stop_at_failure)
        for index, (source, policy, limit) in enumerate(asked)
    ]


class _Collected:
    """The results that have arrived, by the index of their point; and those of the file of an earlier sweep."""

    def __init__(
        self,
        points: Sequence[SweepPoint],
        path: str | os.PathLike[str] | None,
        progress: Callable[[SweepProgress], object] | None,
    ) -> None:
        loaded = SweepResults.load(path) if path is not None and Path(path).exists() else SweepResults(())
        earlier = loaded.points
        is_current = loaded.made_by == version("bfcviz")  # other versions may have other rules
        known = {result.key: result for result in earlier if is_current and not result.error}
        keys = {point.index: point.key for point in points}
        self.found = {
            point.index: known[key]
            for point in points
            if (key := keys[point.index]) in known and is_of_table(policy_of(point.policy))
        }
        self.reason = ""
        asked = set(keys.values())
        self._others = [result for result in earlier if result.key not in asked]
        self._asked, self._resumed = len(points), len(self.found)
        self._path, self._progress = path, progress
        self._start = self._saved = monotonic()

    def collect(self, served: Generator[tuple[int, PointResult], None, None]) -> None:
        """Keep all results that arrive, until the sweep ends, is stopped or interrupted, or loses its cluster."""
        try:
            self.report(None)
            for index, result in served:
                self.add(index, result)
            if len(self.found) < self._asked:
                self.reason = "it was stopped"
        except KeyboardInterrupt:
            self.reason = "it was interrupted"
        except ConnectionError as error:
            self.reason = str(error)
        finally:
            served.close()

    def add(self, index: int, result: PointResult) -> None:
        """Keep the result of a point, and report it."""
        self.found[index] = result
        if monotonic() - self._saved > SAVE_S:
            self.save()
        self.report(result)

    def report(self, newest: PointResult | None) -> None:
        """Call `progress`."""
        if self._progress is not None:
            seconds = monotonic() - self._start
            rate = (len(self.found) - self._resumed) / seconds if seconds > 0 else 0.0
            self._progress(SweepProgress(len(self.found), self._asked, newest, rate, self))

    def save(self) -> None:
        """Write the file, with the earlier results of other points."""
        if self._path is not None:
            SweepResults([*self._others, *self._in_order()]).save(self._path)
        self._saved = monotonic()

    def results(self) -> SweepResults:
        """What is known."""
        seconds = monotonic() - self._start
        return SweepResults(self._in_order(), self._asked, seconds, self._resumed, self.reason)

    def _in_order(self) -> list[PointResult]:
        found = self.found.copy()  # the sweep may add to it meanwhile
        return [found[index] for index in sorted(found)]
