"""`bfcviz.sweep`: every trace under every policy and limit.

::

    results = bfcviz.sweep(["a.parquet", "s3://runs/b.parquet"], ["bfc", "torch"], ["8GiB", "12GiB", "110%"])
    print(results)                                                    # in this process
    results = bfcviz.sweep(paths, policies, limits, processes=8)      # on this machine
    results = bfcviz.sweep(paths, policies, limits, client=client)    # on a Dask cluster
"""

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from itertools import product
from pathlib import Path
from secrets import token_hex
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final

from bfcviz.errors import FileError, InvalidRequest
from bfcviz.events.label_table import without_surrogates
from bfcviz.events.origin import MAX_POOLS
from bfcviz.events.storage.files import replacing
from bfcviz.events.trace import Trace
from bfcviz.extras import needed
from bfcviz.importers.remote_file import is_url
from bfcviz.terminal import named_rows, printable, wrapped_lines
from bfcviz.units import format_bytes
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import is_of_table, policy_key, policy_of, uncompared
from bfcviz.whatif.requests import RequestStream, stream_of
from bfcviz.whatif.sweep_points import (
    STREAMS,
    PointKey,
    PointResult,
    SentStream,
    SweepLimit,
    SweepPoint,
    TraceSource,
    processes_pay_off,
    serve_points,
)

with needed("a sweep", "pyarrow", "tables"):
    import pyarrow as pa
    import pyarrow.parquet as pq

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

_TYPES: Final = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
_SCHEMA: Final = pa.schema(
    [
        (each.name, _TYPES[str(getattr(each.type, "__name__", each.type)).split(" ")[0]])
        for each in fields(PointResult)
    ],
    metadata={"bfcviz.sweep": "1", "bfcviz.version": version("bfcviz")},
)
_MOST_ROWS: Final = 60
"""Lines of the text of results."""


class SweepResults:
    """The results of a sweep; those that are known, if it did not reach its end.

    Attributes:
        points: one each, in the order of traces, then policies, then limits.
        asked: the number of points of the sweep.
        seconds: how long it took.
        resumed: the number of points that an earlier sweep had served.
        reason: why it is not complete; empty otherwise.
        made_by: the version of bfcviz that served the points.
        note: why the points were not served on the processes that were asked for; empty: they were.
    """

    def __init__(
        self,
        points: Sequence[PointResult],
        asked: int | None = None,
        seconds: float = 0.0,
        resumed: int = 0,
        reason: str = "",
    ) -> None:
        self.points = tuple(points)
        self.asked = len(self.points) if asked is None else asked
        self.seconds = seconds
        self.resumed = resumed
        self.reason = reason
        self.made_by = version("bfcviz")
        self.note = ""

    @property
    def complete(self) -> bool:
        """Whether every point of the sweep has a result: numbers, or the reason why it has none."""
        return len(self.points) == self.asked

    @property
    def has_numbers(self) -> bool:
        """Whether any point of the sweep has numbers."""
        return any(not point.error for point in self.points)

    @property
    def errors(self) -> dict[PointKey, str]:
        """The messages of the sweep's points without numbers."""
        return {point.key: point.error for point in self.points if point.error}

    def smallest_limits(self) -> dict[tuple[str, str], int | None]:
        """The smallest of the limits that a sweep tried that serves a trace under a policy; None: none of them does.

        Returns:
            Bytes, by (trace, policy). Pairs that were served without a limit only, or not at all, are left out.
        """
        found: dict[tuple[str, str], int | None] = {}
        for point in self.points:
            if point.limit_bytes is not None:
                pair = (point.trace, point.policy)
                known = found.setdefault(pair, None)
                if point.fits and (known is None or point.limit_bytes < known):
                    found[pair] = point.limit_bytes
        return found

    def to_arrow(self) -> pa.Table:
        """The table of a sweep, one row a point; the columns are the fields of `PointResult`."""
        rows = [  # parts of a path may not be Unicode
            {
                name: without_surrogates(value) if isinstance(value, str) else value
                for name, value in vars(point).items()
            }
            for point in self.points
        ]
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    def to_pandas(self) -> "pd.DataFrame":
        """The table of a sweep as a DataFrame; numbers that are not known are missing, integers stay integers.

        Raises:
            MissingExtra: pandas is not installed.
        """
        with needed("to_pandas()", "pandas", "lab"):
            import pandas as pd  # noqa: PLC0415  an extra
        types = {pa.int64(): pd.Int64Dtype()}
        frame: pd.DataFrame = self.to_arrow().to_pandas(types_mapper=types.get)
        return frame

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table of a sweep as Parquet; a file at this path is replaced at once, or not at all.

        Raises:
            FileError: the file cannot be written.
        """
        with replacing(Path(path), overwrite=True) as made:
            pq.write_table(self.to_arrow(), made)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SweepResults":
        """The results of a sweep that `save` wrote.

        Raises:
            FileError: the file cannot be read, or holds no results of a sweep.
        """
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise FileError(path, "", f"cannot be read as results of a sweep: {error}") from error
        if b"bfcviz.sweep" not in (table.schema.metadata or {}) or table.schema.names != _SCHEMA.names:
            raise FileError(path, "", "holds no results of a sweep by this version; choose another name")
        try:
            points = [PointResult(**row) for row in table.cast(_SCHEMA).to_pylist()]
        except (pa.ArrowException, TypeError) as error:
            raise FileError(path, "", f"cannot be read as results of a sweep: {error}") from error
        found = cls(points)
        found.made_by = table.schema.metadata.get(b"bfcviz.version", b"").decode(errors="replace")
        return found

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"<SweepResults: {self._summary()}>"

    def __str__(self) -> str:
        """Of each trace a row for each policy: the smallest limit that fits, or what it needs without a limit."""
        pairs: dict[tuple[str, str], list[PointResult]] = {}
        for point in self.points:
            pairs.setdefault((point.trace, point.policy), []).append(point)
        smallest = self.smallest_limits()
        names = _sweep_trace_names(trace for trace, _ in pairs)
        rows: dict[str, list[tuple[str, ...]]] = {}
        for (trace, policy), points in list(pairs.items())[:_MOST_ROWS]:
            cells = (policy, *_sweep_row(points, smallest))
            rows.setdefault(printable(names[trace]), []).append(tuple(printable(cell) for cell in cells))
        left_out = len(pairs) - _MOST_ROWS
        end = [f"... and {left_out:,} more: see to_pandas()"] if left_out > 0 else []
        end += uncompared(policy for _, policy in pairs)
        return "\n".join([self._summary(), "", *_sweep_results_lines(rows), *end])

    def _summary(self) -> str:
        outcomes = [point.outcome for point in self.points]
        parts = [
            f"{len(self.points):,} of {self.asked:,} points",
            f"{outcomes.count('fits'):,} fit",
            f"{outcomes.count('fails'):,} fail",
            f"{outcomes.count('error'):,} with an error",
        ]
        if self.resumed:
            parts.append(f"{self.resumed:,} from earlier results")
        if self.seconds:
            parts.append(f"{self.seconds:.1f} s" + (f" {self.note}" if self.note else ""))
        return ", ".join(parts) + (f"; not complete: {printable(self.reason)}" if not self.complete else "")


def _sweep_row(
    points: Sequence[PointResult], smallest: Mapping[tuple[str, str], int | None]
) -> tuple[str, ...]:
    served = [point for point in points if not point.error]
    fitting = [point for point in served if point.fits]
    pair = (points[0].trace, points[0].policy)
    least = smallest.get(pair)
    if least is not None:
        limit = format_bytes(least)
    elif pair not in smallest:
        limit = "no limit given"
    else:
        limit = "no limit only" if fitting else "none of them"
    most = max((point.peak_reserved or 0 for point in fitting), default=None)
    unused = max((point.reserved_not_in_use or 0.0 for point in fitting), default=None)
    errors = list(dict.fromkeys(point.error for point in points if point.error))
    message = errors[0] if errors else next((point.notes for point in points if point.notes), "")
    more = f" (and {len(errors) - 1} other messages)" if len(errors) > 1 else ""
    return (
        f"{len(fitting)} of {len(points)}",
        limit if served else "",
        "" if most is None else format_bytes(most),
        "" if unused is None else f"{unused:.1%}",
        message.partition("\n")[0] + more,
    )


def _sweep_trace_names(paths: Iterable[str]) -> dict[str, str]:
    """The names of traces in the text of a sweep: the last part of each path, where no other ends with it."""
    ends = {path: path.rstrip("/").rpartition("/")[2] for path in paths}
    count = Counter(ends.values())
    return {path: end if end and count[end] == 1 else path for path, end in ends.items()}


_WIDTH: Final = 80


def _sweep_results_lines(rows: Mapping[str, list[tuple[str, ...]]]) -> list[str]:
    """The rows of the text of `SweepResults`, in columns, below the name of their trace; each with its message."""
    titles = ("policy", "fits", "least limit", "most reserved", "unused")
    cells = [row[:-1] for each in rows.values() for row in each]
    lines = ([f"  {line}" for line in each] for each in named_rows([titles, *cells], (), _WIDTH - 2))
    found = next(lines)
    for trace, each in rows.items():
        found.append(trace)
        for *_, message in each:
            found += next(lines)
            found += wrapped_lines(f"    {message}", _WIDTH) if message else []
    return found


TraceLike = str | os.PathLike[str] | Trace | RequestStream
"""A path or URL, or the trace, or its requests."""


def sources_of(
    traces: TraceLike | Iterable[TraceLike], pool: int | str | None, *, with_failed: bool = True
) -> tuple[str, list[TraceSource], dict[str, SentStream]]:
    """The traces of a sweep.

    Returns:
        The prefix of all keys, which no other sweep has; the sources; and by key what must be sent. A second trace of
        the same name gets a number.

    Raises:
        InvalidRequest: no trace can have such a heap, or a trace that is sent has none.
        BfcvizError: one of `traces` is no trace.
    """
    if isinstance(pool, int) and not 0 <= pool < MAX_POOLS:
        raise InvalidRequest(f"pool={pool}: heaps are numbered from 0 to {MAX_POOLS - 1}")
    given = [traces] if isinstance(traces, str) or not isinstance(traces, Iterable) else list(traces)
    prefix = f"{token_hex(8)}/"
    sources, sent = [], {}
    names: Counter[str] = Counter()
    for number, trace in enumerate(given):
        key = f"{prefix}{number}"
        if isinstance(trace, str | os.PathLike):
            path = os.fspath(trace)
            name = without_surrogates(path)  # as in saved results
            version = "" if is_url(path) else _sweep_source_version(Path(path))
            if not is_url(path):
                path = os.path.abspath(path)  # noqa: PTH100  workers have other folders; `..` is not resolved
        else:
            stream = stream_of(
                trace, None if isinstance(trace, RequestStream) else pool, with_failed=with_failed
            )
            sent[key] = SentStream.of(stream)
            name, path = stream.source or "trace", ""
            version = stream.digest
        names[name] += 1
        shown = name if names[name] == 1 else f"{name} ({names[name]})"
        sources.append(TraceSource(key, shown, path, pool, version, with_failed))
    return prefix, sources, sent


def _sweep_source_version(path: Path) -> str:
    """The version of a source of a sweep: size and last change of its files; empty if this machine has none."""
    with suppress(OSError):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        states = [found.stat() for found in files]
        return f"{sum(each.st_size for each in states)} bytes, {max(each.st_mtime_ns for each in states)} ns"
    return ""


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
        """The results of the sweep that are known now, also in another thread."""
        return self._collected.results()


def sweep(  # noqa: PLR0913  what, where, and how to run
    traces: TraceLike | Iterable[TraceLike],
    policies: str | Policy | Iterable[str | Policy],
    limits: LimitLike | Iterable[LimitLike] = None,
    *,
    client: "Client | str | None" = None,
    processes: int | None = None,
    pool: int | str | None = None,
    with_failed: bool = True,
    stop_at_failure: bool = False,
    results: str | os.PathLike[str] | None = None,
    resume: bool = True,
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
        processes: the number of processes of this machine; by default the points are served in this one, and also where
            two or more would start later than it is done, under policies of the table (`note` of the result says so).
        pool: the heap in each trace: its index or name; None: the one with a failed request, else the first.
        with_failed: whether requests that failed in a trace are served, too; see `RequestStream.without_failed`.
        stop_at_failure: whether a point ends after its first request that fails.
        results: a Parquet file: points that have numbers in it, made by this version under a policy of the table, are
            not served again; all results are written to it, every few seconds and at the end.
        resume: False: serve all points, and replace an earlier file as soon as the first of them has numbers.
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
    prefix, sources, streams = sources_of(traces, pool, with_failed=with_failed)
    points = _sweep_points(sources, policies, limits, stop_at_failure=stop_at_failure)
    collected = _Collected(points, results, progress, resume=resume)
    missing = [point for point in points if point.index not in collected.found]
    if processes is not None and not processes_pay_off(missing, streams, processes):
        collected.note = "in this process: other processes would start later than it is done"
        processes = None
    try:
        collected.collect(serve_points(missing, streams, stop or Event(), client, processes))
    finally:
        STREAMS.forget(prefix)
        collected.save()
    return collected.results()


def _sweep_points(
    sources: Sequence[TraceSource],
    policies: str | Policy | Iterable[str | Policy],
    limits: LimitLike | Iterable[LimitLike],
    *,
    stop_at_failure: bool,
) -> list[SweepPoint]:
    """All points of a sweep, those of a trace together, without those given twice."""
    given = [policies] if isinstance(policies, str) or not isinstance(policies, Iterable) else list(policies)
    chosen: dict[str, str | Policy] = {}
    for policy in given:
        known = chosen.setdefault(policy_key(policy), policy)  # a wrong name is told at once
        if policy_of(known) != policy_of(policy):
            raise InvalidRequest(
                f"two policies have the name and options {policy_key(policy)}; give one of them another name"
            )
    sizes = list(limits) if isinstance(limits, Iterable) and not isinstance(limits, str) else [limits]
    tried = list(dict.fromkeys(SweepLimit.of(each) for each in sizes))
    asked = product(sources, chosen.values(), tried)
    return [
        SweepPoint(index, source, policy, limit, stop_at_failure)
        for index, (source, policy, limit) in enumerate(asked)
    ]


class _Collected:
    """The results of a sweep that have arrived, by the index of their point; and those of an earlier sweep's file."""

    def __init__(
        self,
        points: Sequence[SweepPoint],
        path: str | os.PathLike[str] | None,
        progress: Callable[[SweepProgress], object] | None,
        *,
        resume: bool,
    ) -> None:
        has_earlier = path is not None and Path(path).exists()
        loaded = SweepResults.load(path) if path is not None and has_earlier and resume else SweepResults(())
        earlier = loaded.points
        is_current = loaded.made_by == version("bfcviz")  # other versions may have other rules
        known = {result.key: result for result in earlier if is_current and not result.error}
        keys = {point.index: point.key for point in points}
        self.found = {
            point.index: known[key]
            for point in points
            if (key := keys[point.index]) in known and is_of_table(policy_of(point.policy))
        }
        self.reason = self.note = ""
        asked = set(keys.values())
        self._others = [result for result in earlier if result.key not in asked]
        self._asked, self._resumed = len(points), len(self.found)
        self._path, self._progress = path, progress
        self._replaces = has_earlier and not resume
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
        """Keep the result of a sweep's point, and report it."""
        self.found[index] = result
        if monotonic() - self._saved > SAVE_S:
            self.save()
        self.report(result)

    def report(self, newest: PointResult | None) -> None:
        """Report how far the sweep is: call `progress`."""
        if self._progress is not None:
            seconds = monotonic() - self._start
            rate = (len(self.found) - self._resumed) / seconds if seconds > 0 else 0.0
            self._progress(SweepProgress(len(self.found), self._asked, newest, rate, self))

    def save(self) -> None:
        """Write the sweep's file, with earlier results of other points; it replaces no earlier file without numbers."""
        if self._path is not None and not (self._replaces and not self.results().has_numbers):
            SweepResults([*self._others, *self._in_order()]).save(self._path)
        self._saved = monotonic()

    def results(self) -> SweepResults:
        """The results of the sweep that are known."""
        seconds = monotonic() - self._start
        found = SweepResults(self._in_order(), self._asked, seconds, self._resumed, self.reason)
        found.note = self.note
        return found

    def _in_order(self) -> list[PointResult]:
        found = self.found.copy()  # the sweep may add to it meanwhile
        return [found[index] for index in sorted(found)]
