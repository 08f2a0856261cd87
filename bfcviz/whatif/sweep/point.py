"""The points of a sweep: one trace, one policy, one limit; and the numbers that a point results in."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import InvalidRequest
from bfcviz.events.labels import Labels
from bfcviz.units import parse_bytes
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import policy_key
from bfcviz.whatif.requests import RequestStream


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
        source: the trace.
        policy: text of `policy_of`, or the policy.
        limit: the memory limit.
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
