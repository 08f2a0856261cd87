"""The points of a sweep (one trace, one policy, one limit): how the requests are read and a point is served."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BfcvizError, InvalidRequest
from bfcviz.events.labels import Labels
from bfcviz.units import parse_bytes
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policy_serving import Policy
from bfcviz.whatif.policy_table import policy_key, policy_of
from bfcviz.whatif.requests import RequestStream, stream_of


class TraceSource(NamedTuple):
    """Where a worker gets the requests of one trace from.

    Attributes:
        key: identifies the source in the caches of workers; no other sweep uses it.
        name: of the trace, in results.
        path: a path or URL that the worker reads; empty: the requests are sent to it.
        pool: index or name of the heap; None: the one with a failed request, else the first.
        version: what changes with the content, as text; empty: not known.
    """

    key: str
    name: str
    path: str
    pool: int | str | None
    version: str


@dataclass(frozen=True)
class SentStream:
    """What is sent to workers of a request stream: all that a policy can see; `names`: of its labels, by number.

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
        """What to send of a stream."""
        return cls(stream.rows, stream.regions, stream.label_names, stream.source, stream.limit, stream.notes)

    def stream(self) -> RequestStream:
        """The stream, after sending."""
        labels = Labels()
        for number in range(1, max(self.names, default=0) + 1):
            labels.intern(
                self.names.get(number, ""), number=str(number)
            )  # equal names may have several numbers
        return RequestStream(
            self.rows, labels, self.source, self.limit, regions=self.regions, notes=self.notes
        )


class SweepLimit(NamedTuple):
    """A memory limit, or a part of what each trace needs at least.

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
        """The limit of an argument: bytes, a text such as `8GiB` or `125%`, or None for no limit.

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
        """The limit in bytes for a trace whose most requested bytes are these; None: no limit."""
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
        """What its result depends on."""
        return PointKey(
            self.source.name,
            self.source.version,
            "" if self.source.pool is None else str(self.source.pool),
            policy_key(self.policy),
            self.limit.text,
            self.stop_at_failure,
        )

    def failed(self, error: str) -> "PointResult":
        """The result of a point that could not be served, with the reason."""
        return PointResult(*self.key, error=error)


class PointKey(NamedTuple):
    """What a result depends on: equal keys mean equal numbers. See `PointResult`."""

    trace: str
    version: str
    pool: str
    policy: str
    limit: str
    stop_at_failure: bool


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
        limit_bytes: the limit; None: no limit.
        requests: allocations, frees and marks of the trace.
        served: how many of these were tried.
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
    limit_bytes: int | None = None
    requests: int | None = None
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
        """What it depends on."""
        return PointKey(self.trace, self.version, self.pool, self.policy, self.limit, self.stop_at_failure)

    @property
    def fits(self) -> bool:
        """Whether every request was served."""
        return self.failures == 0 and self.served == self.requests

    @property
    def outcome(self) -> str:
        """`fits`, `fails`, or `error`."""
        return "error" if self.error else "fits" if self.fits else "fails"


MOST_BYTES: Final = 1 << 30
"""Of the streams in memory; the one that was not used for longest is dropped."""


class CachedStream(NamedTuple):
    """What `StreamCache` keeps: a stream, and the most bytes that it requests at once."""

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
    """Streams by key, and the errors of traces that cannot be read. It is thread-safe.

    Args:
        most_bytes: of all streams together; the newest is always kept.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, _StreamCacheEntry] = {}  # the one used last is the last
        self._most_bytes = most_bytes

    def get(self, key: str, read: Callable[[], RequestStream]) -> CachedStream:
        """The stream of this key, which `read` returns the first time.

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
        """Drop all streams whose key begins with this."""
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
        return sent.stream() if sent is not None else stream_of(point.source.path, point.source.pool)

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
        served=outcome.served,
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
    """At the first failure, else where most is in use; 0 if nothing is free there, None if it is not known."""
    if not outcome.served:
        return None
    at = int(outcome.failures[0]) if len(outcome.failures) else int(outcome.in_use.argmax())
    free = outcome.free_memory(at)
    return None if free is None else free.scattered_share
