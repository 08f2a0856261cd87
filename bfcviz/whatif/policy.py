"""Policy: the rules by which a request stream is served; and the policies of simulated pools."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.errors import InvalidRequest
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import RecordedHistory
from bfcviz.whatif.driver_memory import DriverCall, DriverMemory
from bfcviz.whatif.outcome import DriverCalls, Outcome
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, RequestStream
from bfcviz.whatif.simulated_pool import SimulatedPool, serve_requests


class PolicyRegionPiece(NamedTuple):
    """Memory [start, stop) that the driver of a policy takes back at once, by the call with index `end`."""

    start: int
    stop: int
    end: int


def policy_region_pieces(calls: Sequence[DriverCall]) -> list[list[DriverCall]]:
    """What each call to a policy's driver is in its trace: calls such that each release is of a whole region.

    A region of a trace is released as a whole. So memory that is granted at once and released at different times
    becomes several regions::

        map [0, 100), release [40, 60), map [40, 60)     regions: [0, 40)  [40, 60)  [60, 100)  and [40, 60) again

    So the regions of a moment depend on what is released later, and one free block of the pool can be two chunks of
    the trace, also in a map. Measures of a moment come from the pool (`Outcome.largest_free`), never from these
    regions.
    """
    found: list[list[DriverCall]] = []
    regions: dict[int, PolicyRegionPiece] = {}  # by their end
    starts: defaultdict[int, list[int]] = defaultdict(list)  # of the regions that a call releases
    for at, (call, pieces) in enumerate(zip(calls, _policy_grant_pieces(calls), strict=True)):
        if call.size < 0:
            found.append([DriverCall(start, -1, False) for start in starts.pop(at, [])])
            continue
        granted = []
        for piece in pieces:
            before = regions.get(piece.start)
            join = call.join and before is not None and before.end == piece.end
            if not join:
                starts[piece.end].append(piece.start)
            regions[piece.stop] = piece
            granted.append(DriverCall(piece.start, piece.stop - piece.start, join))
        found.append(granted)
    return found


def _policy_grant_pieces(calls: Sequence[DriverCall]) -> list[list[PolicyRegionPiece]]:
    """The pieces of each grant: looking back from the last call, the end of each piece is known."""
    later: list[PolicyRegionPiece] = []  # memory that is released, disjoint and ascending
    found: list[list[PolicyRegionPiece]] = []
    for at in range(len(calls) - 1, -1, -1):
        address, size, _ = calls[at]
        if size < 0:
            insort(later, PolicyRegionPiece(address, address - size, at))
            found.append([])
        else:
            found.append(_take_policy_pieces(later, address, address + size, len(calls)))
    return found[::-1]


def _take_policy_pieces(
    later: list[PolicyRegionPiece], start: int, stop: int, never: int
) -> list[PolicyRegionPiece]:
    """Remove [start, stop) from a policy's memory that is released; its pieces, with those that are never released."""
    low = bisect_left(later, (start,))
    low -= low > 0 and later[low - 1].stop > start
    high = bisect_left(later, (stop,))
    found, at, rest = [], start, []
    for piece in later[low:high]:
        if at < piece.start:
            found.append(PolicyRegionPiece(at, piece.start, never))
        found.append(PolicyRegionPiece(max(piece.start, start), min(piece.stop, stop), piece.end))
        at = min(piece.stop, stop)
        if piece.start < start:
            rest.append(PolicyRegionPiece(piece.start, start, piece.end))
        if piece.stop > stop:
            rest.append(PolicyRegionPiece(stop, piece.stop, piece.end))
    if at < stop:
        found.append(PolicyRegionPiece(at, stop, never))
    later[low:high] = rest
    return found


BATCH: Final = 65_536
"""Requests between two chances to interrupt."""

NO_LIMIT: Final = 1 << 46
"""The limit where none is given: 64 TiB."""

_ALL_BITS: Final = (1 << 64) - 1


class Policy(Protocol):
    """A policy: the rules of an allocator with their options."""

    @property
    def name(self) -> str:
        """The name of the policy, as in the table of policies."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the policy that were given, by name."""

    def serve(
        self,
        stream: RequestStream,
        limit: int | None = None,
        *,
        record: bool = False,
        stop_at_failure: bool = False,
    ) -> Outcome:
        """Serve all requests under the rules of the policy, from an empty heap.

        Args:
            stream: the requests.
            limit: bytes that the driver grants at most; None: no limit.
            record: whether the outcome has a trace.
            stop_at_failure: whether to end after the first request that fails.

        Raises:
            InvalidRequest: these rules cannot serve such a stream or have such a limit; says why.
        """


@dataclass(frozen=True)
class PoolPolicy:
    """The policy of a simulated pool: its rules serve a request stream.

    Attributes:
        name: as in the table of policies.
        make: makes an empty pool; takes the options as keywords.
        options: those that were given, by name.
    """

    name: str
    make: Callable[..., SimulatedPool] = field(repr=False, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def serve(
        self,
        stream: RequestStream,
        limit: int | None = None,
        *,
        record: bool = False,
        stop_at_failure: bool = False,
    ) -> Outcome:
        """Serve all requests by the policy's pool, empty at first; as `Policy.serve`."""
        checked_limit(limit)
        granted = NO_LIMIT if limit is None else limit
        driver = DriverMemory(granted)
        driver.keeps_calls = record
        pool, columns = self.make(driver, **self.options), _ServedColumns.of(stream)
        stop = _policy_requests_served(pool, columns, stop_at_failure=stop_at_failure)
        trace = None
        if record:
            again = self.make(DriverMemory(granted), **self.options)
            history = _recorded_policy_history(
                again, stream, columns, stop, policy_region_pieces(driver.calls)
            )
            trace = Trace.from_events(history.events(), stream.labels, policy_origin(self, stream, limit))
        return Outcome(
            policy=self.name,
            options=self.options,
            limit=limit,
            stream=stream,
            address=columns.address[:stop].view(np.uint64),
            size=columns.block_size[:stop].view(np.uint64),
            in_use=columns.in_use[:stop].view(np.uint64),
            reserved=columns.reserved[:stop].view(np.uint64),
            driver_calls=DriverCalls(driver.grants, driver.refusals, driver.releases),
            largest_free=columns.largest_free[:stop].view(np.uint64),
            ranges=np.sort(np.array(driver.ranges, np.uint64)),
            trace=trace,
        )


def checked_limit(limit: int | None) -> None:
    """Raise InvalidRequest, if this is no limit of memory for a policy."""
    if limit is not None and not 0 < limit < native.MAX_REQUEST:
        raise InvalidRequest(
            f"the limit is {limit} bytes; give a number from 1 to 2^62 - 1, or None for no limit"
        )


@dataclass(frozen=True)
class _ServedColumns:
    """The requests that a pool policy serves, and what `serve_requests` says of each: int64[n].

    Attributes:
        rows: of the stream.
        live: int64[blocks], the address of each block in use.
    """

    rows: NDArray[np.void]
    live: NDArray[np.int64]
    address: NDArray[np.int64]
    block_size: NDArray[np.int64]
    in_use: NDArray[np.int64]
    reserved: NDArray[np.int64]
    largest_free: NDArray[np.int64]

    @classmethod
    def of(cls, stream: RequestStream) -> "_ServedColumns":
        results = (np.zeros(len(stream), np.int64) for _ in range(5))
        return cls(stream.rows, np.zeros(stream.blocks, np.int64), *results)

    def views(self, start: int, stop: int) -> tuple[memoryview, ...]:
        """A policy's requests [start, stop) as `serve_requests` takes them; their items are ints, also uncompiled.

        Only these are copied: the requests of a long stream are most of the memory that a replay needs.
        """
        part = self.rows[start:stop]
        arguments = (part["kind"].copy(), part["block"].copy(), part["size"].copy(), part["stream"].copy())
        results = (self.address, self.block_size, self.in_use, self.reserved, self.largest_free)
        columns: tuple[Any, ...] = (*arguments, self.live, *(result[start:stop] for result in results))
        return tuple(map(memoryview, columns))


def _policy_requests_served(pool: SimulatedPool, columns: _ServedColumns, *, stop_at_failure: bool) -> int:
    """Serve all requests of a policy's pool; returns the index after the last one that was served."""
    start, n = 0, len(columns.rows)
    while start < n:
        stop = min(start + BATCH, n)
        served = start + serve_requests(pool, 0, stop - start, stop_at_failure, *columns.views(start, stop))
        start = served
        if served < stop or (stop_at_failure and _policy_request_failed(columns, served - 1)):
            break
        native.check_signals()
    return start


def _policy_request_failed(columns: _ServedColumns, at: int) -> bool:
    row = columns.rows[at]
    return bool(row["kind"] == ALLOCATE and row["size"] > 0 and columns.address[at] == 0)


def _recorded_policy_history(
    pool: SimulatedPool,
    stream: RequestStream,
    columns: _ServedColumns,
    stop: int,
    pieces: Sequence[Sequence[DriverCall]],
) -> RecordedHistory:
    """Serve the policy's requests before `stop` again, and write the events; `pieces`: the regions of each call."""
    history, known = RecordedHistory(), iter(pieces)
    time = stream.rows["time"]
    first = int(time.min(initial=0))
    requests = stream.rows[["time", "thread", "label", "stream", "size", "kind"]][:stop].tolist()
    columns.live[:] = 0
    for i, (when, thread, label, number, size, kind) in enumerate(requests):
        if not i % BATCH:
            views = columns.views(i, min(i + BATCH, stop))
            native.check_signals()
        history.at(when - first, thread)
        row = (i % BATCH, i % BATCH + 1, False)
        serve_requests(pool, *row, *views)
        address = int(columns.address[i])
        if kind == MARK:
            history.mark(label, size & _ALL_BITS)
        elif kind == FREE and address:
            history.ledger.free(address)
        for _ in pool.driver.calls:
            _report_policy_regions(next(known), history)
        pool.driver.calls.clear()
        if kind == ALLOCATE and address:
            history.ledger.allocate(address, int(columns.block_size[i]), size, label, number)
        elif kind == ALLOCATE and size > 0:
            history.ledger.oom(size, label, number)
    return history


def _report_policy_regions(pieces: Sequence[DriverCall], history: RecordedHistory) -> None:
    """Report the regions of a policy's call for memory."""
    for address, size, join in pieces:
        if size < 0:
            history.ledger.release(address)
        else:
            history.ledger.grant(address, size, join=join)


def policy_origin(policy: Policy, stream: RequestStream, limit: int | None) -> Origin:
    """The origin of the trace of what a policy served."""
    name = f"{stream.source or 'requests'} under {policy.name}"
    pool = Pool(policy.name, limit, dict(policy.options))
    return Origin(source=name, pools=(pool,), details={"whatif": policy.name})
