"""What no allocator is, as policies beside real rules: a lower bound, and a plan of offsets for known lifetimes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BrokenInvariant, InvalidRequest
from bfcviz.events.trace import Trace
from bfcviz.extras import arrow, arrow_schema
from bfcviz.importers.event_makers import RecordedHistory
from bfcviz.native import MAX_REGIONS
from bfcviz.whatif.outcome import DriverCalls, Outcome, failed_allocations
from bfcviz.whatif.packing import (
    FOUND,
    IMPOSSIBLE,
    CanonicalSearch,
    PackingProblem,
    Skyline,
    fill_gaps,
    first_overlap,
    stack,
)
from bfcviz.whatif.policy import NO_LIMIT, Policy, PoolPolicy, checked_limit, policy_origin
from bfcviz.whatif.pools import FirstFitPool
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, RequestStream

if TYPE_CHECKING:
    from pyarrow import Table

# ------------------------------------------------------------------------------
# Interval packing: offsets for blocks whose lifetimes are all known, as low as possible.
#
# ::
#
#     offset                 a block is a rectangle: its lifetime across, its bytes up
#       |    +--------+
#       |    |   c    |--+   no two rectangles overlap
#       |----+--+-----+b |   the height of the plan is what one region needs
#       |   a   |-----+--+
#       +-----------------> requests
#
# Finding the least height is NP-hard (dynamic storage allocation: Garey and Johnson, Computers and Intractability,
# SR2). No height is below the peak of the live bytes. First come greedy plans, in the orders of published planners: by
# size and by time from Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference (arXiv 2001.03288,
# "greedy by size"); by area, size times duration, as in the offset assignment of TensorFlow Lite's and TVM's planners.
# Where none of them reaches the peak, a search looks for lower plans, as long as it may.

SECONDS: Final = 0.5
"""How long the search takes at most, unless asked otherwise."""

MOST_EXACT: Final = 4096
"""Blocks that are placed in the lowest gap. The time grows with the square; all others are stacked above these."""

SHARE_EXACT: Final = 10
"""Of more blocks, one in so many is placed in the lowest gap."""

LIMIT_EXACT: Final = 30_000
"""But no more than these."""

ENOUGH: Final = 0.0005
"""The search ends at a plan that needs only so much more than the least that is proven, as a share of it."""

MOST_PAIRS: Final = 1_000_000
"""Pairs of blocks that live at one time; with more the search is too slow to find anything."""

UNIT: Final = 256
"""Sizes are rounded up to a multiple of this, in bytes."""

_STEPS: Final = 256
_TELL: Final = 0.2  # seconds between two reports
_FAR: Final = 1 << 62
_MOST_PLANS: Final = 4


@dataclass(frozen=True)
class Lifetimes:
    """The lifetimes of the blocks to plan, as rectangles: int64[blocks].

    Attributes:
        start: index of the request that allocates it.
        stop: index of the request that frees it; the number of requests, if none does.
        size: bytes, after rounding; 0: there is no such block.
        requests: number of requests.
        time: of each request, in ns; int64[requests].
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    size: NDArray[np.int64]
    requests: int
    time: NDArray[np.int64]

    @classmethod
    def of(cls, stream: RequestStream) -> "Lifetimes":
        """The lifetimes of a stream's blocks; sizes are rounded up to 256 bytes, as GPUs want addresses."""
        rows, n = stream.rows, len(stream)
        start, stop = np.zeros(stream.blocks, np.int64), np.full(stream.blocks, n, np.int64)
        for kind, found in ((ALLOCATE, start), (FREE, stop)):
            at = np.flatnonzero(rows["kind"] == kind)
            found[rows["block"][at]] = at
        return cls(start, stop, -(-stream.block_sizes // UNIT) * UNIT, n, rows["time"])

    def columns(
        self, blocks: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Start, stop and size of these blocks of a plan."""
        return self.start[blocks], self.stop[blocks], self.size[blocks]

    @property
    def duration(self) -> NDArray[np.int64]:
        """How long each block to plan lives, in requests."""
        return self.stop - self.start

    @cached_property
    def live(self) -> NDArray[np.int64]:
        """Bytes of all blocks to plan after each request, int64[requests]."""
        change = np.zeros(self.requests + 1, np.int64)
        np.add.at(change, self.start, self.size)
        np.add.at(change, self.stop, -self.size)
        found: NDArray[np.int64] = np.cumsum(change[:-1])
        return found


@dataclass(frozen=True)
class PackingPlan:
    """A plan: the offsets of all blocks in one region.

    Attributes:
        lifetimes: of the blocks.
        offset: bytes from the start of the region, int64[blocks].
        order: how the plan was found.
        least: no plan needs fewer bytes than these; proven.
        not_searched: why no search was made for a lower plan, although one was asked for; empty otherwise.
    """

    lifetimes: Lifetimes
    offset: NDArray[np.int64]
    order: str
    least: int = 0
    not_searched: str = ""

    @cached_property
    def height(self) -> int:
        """Bytes of the region of the plan."""
        return int((self.offset + self.lifetimes.size)[self.lifetimes.size > 0].max(initial=0))

    @property
    def excess(self) -> float:
        """How much more the plan needs than the least that is proven, as a share of that; 0: no plan needs less."""
        return self.height / self.least - 1 if self.least else 0.0


_plans: dict[
    tuple[str, float], PackingPlan
] = {}  # by digest of the stream and seconds, the last used at the end
_plans_lock = Lock()


def kept_plan(stream: RequestStream, seconds: float = SECONDS) -> PackingPlan:
    """As `pack`, but the last few plans are kept: searches ask for many limits of one stream."""
    key = stream.digest, seconds
    with _plans_lock:
        plan = _plans.pop(key, None)
    plan = plan or pack(stream, seconds)
    with _plans_lock:
        _plans[key] = plan
        if len(_plans) > _MOST_PLANS:
            del _plans[next(iter(_plans))]
    return plan


MOST_SECONDS: Final = 1e9
"""31 years: a search cannot take longer."""


def check_plan_seconds(seconds: float) -> None:
    """Refuse a duration that no search for a plan can have.

    Raises:
        InvalidRequest: it is below 0, above `MOST_SECONDS`, or not a number.
    """
    if not 0 <= seconds <= MOST_SECONDS:
        raise InvalidRequest(f"the search takes {seconds:g} seconds; give 0 to {MOST_SECONDS:,.0f}")


def pack(
    stream: RequestStream, seconds: float = SECONDS, report: Callable[[PackingPlan], bool] | None = None
) -> PackingPlan:
    """A plan as low as can be found: the lowest of several greedy ones, or one that a search finds; checked.

    Args:
        stream: the requests.
        seconds: how long the search goes on at most; 0: there is none.
            There is none of more than `MOST_PAIRS` pairs, which the plan says then.
        report: called with the greedy plan, each better one, and some times a second with the same one; where it
            returns False, the search ends.
    """
    lifetimes = Lifetimes.of(stream)
    best = _greedy_plan(stream, lifetimes)
    if report is not None:
        report(best)
    if best.excess > ENOUGH and seconds > 0:
        pairs = _pairs_of_live_blocks(lifetimes)
        if pairs <= MOST_PAIRS:
            best = _searched_plan(best, seconds, report)
        else:
            best = replace(best, not_searched=_too_many_pairs_text(pairs))
    check_plan(best)
    return best


def _greedy_plan(stream: RequestStream, lifetimes: Lifetimes) -> PackingPlan:
    least = int(lifetimes.live.max(initial=0))
    size, duration = lifetimes.size, lifetimes.duration
    most = max(MOST_EXACT, min(len(size) // SHARE_EXACT, LIMIT_EXACT))
    orders = [("size", np.lexsort((-duration, -size)), most), ("duration", np.lexsort((-size, -duration)), 0)]
    if len(size) <= MOST_EXACT:
        orders.append(("area", np.argsort(-(size.astype(np.float64) * duration), kind="stable"), most))
    best = PackingPlan(lifetimes, _offsets_by_start(stream), "start", least)
    for name, order, exact in orders:
        if best.height > least:
            offset = _plan_offsets(lifetimes, order[size[order] > 0], exact)
            best = min(best, PackingPlan(lifetimes, offset, name, least), key=lambda each: each.height)
    return best


def _offsets_by_start(stream: RequestStream) -> NDArray[np.int64]:
    """A plan in the order of time, each block in the lowest gap: first fit."""
    outcome = PoolPolicy("first_fit", FirstFitPool, {"granule": UNIT}).serve(stream)
    if not outcome.fits:
        raise InvalidRequest(f"the blocks need more than {NO_LIMIT} bytes at once; no plan is made")
    made = np.flatnonzero((stream.rows["kind"] == ALLOCATE) & (outcome.address != 0))
    address = outcome.address[made].astype(np.int64)
    offset = np.zeros(stream.blocks, np.int64)
    offset[stream.rows["block"][made]] = address - address.min(initial=_FAR)
    return offset


def _plan_offsets(lifetimes: Lifetimes, order: NDArray[np.intp], exact: int) -> NDArray[np.int64]:
    """Offsets of a plan: the first blocks in the lowest gap, the others stacked on these, the longest first."""
    first, rest = order[:exact], order[exact:]
    offset = np.zeros(len(lifetimes.start), np.int64)
    low = np.zeros(len(first), np.int64)
    fill_gaps(*lifetimes.columns(first), low)
    offset[first] = low
    if len(rest):
        skyline = Skyline(lifetimes.requests)
        for begin, end, top in zip(
            *(each.tolist() for each in lifetimes.columns(first)[:2]),
            (low + lifetimes.size[first]).tolist(),
            strict=True,
        ):
            skyline.lift(begin, end, top)
        rest = rest[np.argsort(-lifetimes.duration[rest], kind="stable")]
        low = np.zeros(len(rest), np.int64)
        stack(skyline, *lifetimes.columns(rest), low)
        offset[rest] = low
    return offset


_TABLE: Final = {
    "allocation": "int64",  # its number, in the order of the requests for memory that are not empty
    "request": "int64",  # index among all requests: allocations, frees and marks
    "freed_at": "int64",  # index of the request that frees it; null: none does
    "event": "int64",  # index of its event in the trace; null: it is older than the trace
    "requested": "int64",  # bytes
    "size": "int64",  # bytes in the plan
    "offset": "int64",  # bytes from the start of the region
    "stream": "int64",
    "label": "string",
}
"""Column of the table -> its type, as pyarrow calls it."""


def plan_table(plan: PackingPlan, stream: RequestStream) -> "Table":
    """The place of each allocation, in the order of the requests; for an allocator that follows the plan.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    pa = arrow("the table of a plan")
    lifetimes, names = plan.lifetimes, stream.label_names
    used = np.flatnonzero(lifetimes.size > 0)
    used = used[np.argsort(lifetimes.start[used])]
    start, stop, size = lifetimes.columns(used)
    rows = stream.rows[start]
    event = pa.array(rows["event"].astype(np.int64), mask=rows["event"] < 0)
    columns = [
        np.arange(len(used)),
        start,
        pa.array(stop, mask=stop == lifetimes.requests),
        event,
        rows["size"].astype(np.int64),
        size,
        plan.offset[used],
        rows["stream"].astype(np.int64),
        [names.get(label, "") for label in rows["label"].tolist()],
    ]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=arrow_schema(_TABLE))


def check_plan(plan: PackingPlan) -> None:
    """Raise BrokenInvariant, if two blocks of a plan overlap (a bug of this module)."""
    lifetimes = plan.lifetimes
    used = np.flatnonzero(lifetimes.size > 0)
    used = used[np.argsort(plan.offset[used], kind="stable")]
    start, stop, size = lifetimes.columns(used)
    offset = plan.offset[used]
    found = first_overlap(Skyline(lifetimes.requests), start, stop, offset, offset + size)
    if found >= 0:
        raise BrokenInvariant(f"block {used[found]} of a packing plan overlaps with another one")


# ------------------------------------------------------------------------------
# The search below a greedy plan: several heights at once, each in several orders, a few steps of each in turn.
#
# The least height has half of all steps, for most jobs have a plan of that height, and it is often found in a second.
# Where it is not, plans between the least and the best so far make the best one lower; and a height that is impossible
# makes the least higher. The time that a search takes differs by orders of magnitude between heights and orders, so
# none waits for another.


class _PlanSearch:
    """A race of searches for a plan below the best height known.

    Args:
        orders: in which they are tried, and whether those with more bytes at their time come before.
        best: the height of a known plan.
        least: no height below is possible.

    Attributes:
        best: the height of the best plan so far.
        least: no height below is possible.
        offset: of the best plan that this found; None: none yet.
    """

    def __init__(
        self, problem: PackingProblem, orders: Sequence[tuple[NDArray[np.int64], bool]], best: int, least: int
    ) -> None:
        self.best = best
        self.least = least
        self.offset: NDArray[np.int64] | None = None
        self._problem = problem
        self._orders = orders
        self._searches: dict[int, list[CanonicalSearch]] = {}

    def turn(self) -> None:
        """Some steps of each search for a plan, until one of them has an answer."""
        below = self.best - 1 - self.least
        heights = [self.least + below * part // 8 for part in (0, 4, 0, 7)]
        self._searches = {height: self._searches.get(height) or self._new(height) for height in heights}
        for height in heights:
            for search in self._searches[height]:
                state = search.run(_STEPS)
                if state == FOUND:
                    self.offset = np.array(search.offset)
                    self.best = int((self.offset + self._problem.size).max())
                    return
                if state == IMPOSSIBLE:
                    self.least = height + 1
                    return

    def _new(self, height: int) -> list[CanonicalSearch]:
        return [CanonicalSearch(self._problem, order, by_total, height) for order, by_total in self._orders]


def _plan_search_orders(
    lifetimes: Lifetimes, used: NDArray[np.intp], problem: PackingProblem
) -> list[tuple[NDArray[np.int64], bool]]:
    """Orders of a search for a plan: MiniMalloc's three, for durations in time and in sections; one by neighbours."""
    start, stop, size = lifetimes.columns(used)
    elapsed = lifetimes.time[np.minimum(stop, lifetimes.requests - 1)] - lifetimes.time[start]
    found = []
    for width in (elapsed if elapsed.any() else stop - start, problem.last - problem.first):
        area = size.astype(np.float64) * width
        by_width, by_area = np.lexsort((-area, -width)), np.lexsort((-width, -area))
        found += [(by_width, True), (by_area, True), (by_width, False)]
    return [*found, (np.lexsort((-size, -np.diff(problem.neighbours_at))), False)]


def _searched_plan(
    plan: PackingPlan, seconds: float, report: Callable[[PackingPlan], bool] | None
) -> PackingPlan:
    until = monotonic() + seconds
    lifetimes = plan.lifetimes
    used = np.flatnonzero(lifetimes.size > 0)
    start, stop, size = lifetimes.columns(used)
    unit = int(np.gcd.reduce(size))
    problem = PackingProblem(start, stop, size // unit)
    search = _PlanSearch(
        problem, _plan_search_orders(lifetimes, used, problem), plan.height // unit, plan.least // unit
    )
    told = monotonic()
    while plan.excess > ENOUGH and monotonic() < until:
        search.turn()
        if search.best * unit < plan.height:
            assert search.offset is not None
            offset = plan.offset.copy()
            offset[used] = search.offset * unit
            plan = PackingPlan(lifetimes, offset, "search", search.least * unit)
        elif search.least * unit > plan.least:
            plan = replace(plan, least=search.least * unit)
        elif monotonic() - told < _TELL:
            continue
        told = monotonic()
        if report is not None and not report(plan):
            break
    return plan


def _pairs_of_live_blocks(lifetimes: Lifetimes) -> int:
    """How many pairs of blocks to plan live at one time."""
    used = np.flatnonzero(lifetimes.size > 0)
    start, stop = np.sort(lifetimes.start[used]), np.sort(lifetimes.stop[used])
    return int((np.arange(len(used)) - np.searchsorted(stop, start, "right")).sum())


def _too_many_pairs_text(pairs: int) -> str:
    return (
        f"{pairs:,} pairs of blocks live at one time, and with more than {MOST_PAIRS:,} a search is too slow to find "
        "a lower plan: this is the lowest of the plans that are made at once, and more seconds change nothing"
    )


# ------------------------------------------------------------------------------
# What no allocator is, as policies beside real rules in one table: a lower bound, and a plan.
#
# `live_bytes` is a lower bound: a heap without any fragmentation, which has just the memory of its live blocks. No
# rules need less, and only a driver that maps every block alone reaches it. `packed` is a plan and no bound: it
# knows all lifetimes before the first request and puts the blocks into one region, by the best plan found. Rules
# without that knowledge seldom need less, but can: they may round less, return regions, or map pages elsewhere.

LIVE_OPTIONS: Final[Mapping[str, Any]] = {"unit": 1}
"""`unit`: sizes are rounded up to a multiple of this, in bytes. Only with 1, without rounding, it is a lower bound."""

PACKED_OPTIONS: Final[Mapping[str, Any]] = {"seconds": SECONDS}
"""`seconds`: how long a search for a lower plan goes on at most."""

BASE: Final = 0x7F0000000000
_ALL_BITS: Final = (1 << 64) - 1


class _PlannedTask(NamedTuple):
    """What a plan or a lower bound is asked to serve."""

    policy: Policy
    stream: RequestStream
    limit: int | None


class _Placement(NamedTuple):
    """Where a plan has blocks, int64[blocks]; `size` 0: none, or fails. `region`: bytes of the one region of all."""

    address: NDArray[np.int64]
    size: NDArray[np.int64]
    region: int | None


@dataclass(frozen=True)
class LiveBytesPolicy:
    """The lower bound as a policy: the memory of the live blocks.

    Attributes:
        options: of `LIVE_OPTIONS`.

    Raises:
        InvalidRequest: the unit is below 1.
    """

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "live_bytes"

    def __post_init__(self) -> None:
        if self.options.get("unit", 1) < 1:
            raise InvalidRequest(f"the unit is {self.options['unit']} bytes; give 1 or more")

    def serve(
        self,
        stream: RequestStream,
        limit: int | None = None,
        *,
        record: bool = False,
        stop_at_failure: bool = False,
    ) -> Outcome:
        """Serve all requests by the lower bound. A trace has one region a block, so at most 65,535 at a time."""
        checked_limit(limit)
        unit = self.options.get("unit", LIVE_OPTIONS["unit"])
        size = -(-stream.block_sizes // unit) * unit
        if limit is not None:
            size = _served_sizes(stream, size, limit)
        total = sum(size.tolist())
        if total >= 1 << 62:
            raise InvalidRequest(f"all blocks together have {total} bytes; at most 2^62 - 1 have addresses")
        placement = _Placement(BASE + np.cumsum(size) - size, size, None)
        return _planned_outcome(
            _PlannedTask(self, stream, limit), placement, record=record, stop_at_failure=stop_at_failure
        )


@dataclass(frozen=True)
class PackedPolicy:
    """The plan as a policy: one region in which every block has its place before the first request.

    Attributes:
        options: of `PACKED_OPTIONS`.

    Raises:
        InvalidRequest: the seconds are below 0, or not finite.
    """

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "packed"

    def __post_init__(self) -> None:
        check_plan_seconds(self.options.get("seconds", SECONDS))

    def serve(
        self,
        stream: RequestStream,
        limit: int | None = None,
        *,
        record: bool = False,
        stop_at_failure: bool = False,
    ) -> Outcome:
        """Serve all requests by a plan, as `Policy.serve`. Blocks that the plan puts above the limit fail."""
        checked_limit(limit)
        plan = _plan_under_limit(stream, limit, self.options.get("seconds", SECONDS))
        size = plan.lifetimes.size.copy()
        if limit is not None:
            size[plan.offset + size > limit] = 0
        region = int((plan.offset + size)[size > 0].max(initial=0))
        placement = _Placement(BASE + plan.offset, size, region)
        outcome = _planned_outcome(
            _PlannedTask(self, stream, limit), placement, record=record, stop_at_failure=stop_at_failure
        )
        asked = "seconds" in self.options and plan.not_searched
        return replace(outcome, note=f"no search was made: {plan.not_searched}") if asked else outcome


def _plan_under_limit(stream: RequestStream, limit: int | None, seconds: float) -> PackingPlan:
    """The plan of all blocks that can fit under a limit: what never fits must not displace other blocks."""
    rows = stream.rows
    too_large = np.zeros(len(rows), bool)
    if limit is not None:
        too_large = (rows["kind"] == ALLOCATE) & (rows["size"] > limit // UNIT * UNIT)
    if not too_large.any():
        return kept_plan(stream, seconds)
    rows = rows.copy()
    rows["size"][too_large] = 0
    return pack(replace(stream, rows=rows), seconds)


def _served_sizes(stream: RequestStream, size: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """The sizes of the blocks to plan that have room under a limit, the first come first served; 0: it fails."""
    rows = stream.rows
    live, found = 0, size.tolist()
    for kind, block in zip(rows["kind"].tolist(), rows["block"].tolist(), strict=True):
        if kind == FREE:
            live -= found[block]
        elif kind == ALLOCATE:
            if live + found[block] > limit:
                found[block] = 0
            live += found[block]
    return np.array(found, np.int64)


def _planned_outcome(
    task: _PlannedTask, placement: _Placement, *, record: bool, stop_at_failure: bool
) -> Outcome:
    rows, region = task.stream.rows, placement.region
    size = np.where(rows["kind"] == MARK, 0, placement.size[rows["block"]])
    address = np.where(size > 0, placement.address[rows["block"]], 0)
    in_use = np.cumsum(np.where(rows["kind"] == FREE, -size, size))
    reserved = in_use if region is None else np.where(np.cumsum(size) > 0, region, 0)
    failed = failed_allocations(rows, address)
    stop = int(failed[0]) + 1 if stop_at_failure and len(failed) else len(rows)
    address, size, in_use, reserved = (
        each[:stop].astype(np.uint64) for each in (address, size, in_use, reserved)
    )
    return Outcome(
        policy=task.policy.name,
        options=task.policy.options,
        limit=task.limit,
        stream=task.stream,
        address=address,
        size=size,
        in_use=in_use,
        reserved=reserved,
        driver_calls=DriverCalls(int(region is not None and reserved.any()), 0, 0),
        trace=_planned_trace(task, address, size, region) if record else None,
    )


def _planned_trace(
    task: _PlannedTask, address: NDArray[np.uint64], size: NDArray[np.uint64], region: int | None
) -> Trace:
    """The events of a plan's outcome: one region of so many bytes, or one a block if that is None."""
    rows = task.stream.rows[: len(address)]
    alive = int(
        np.cumsum(np.select([rows["kind"] == ALLOCATE, rows["kind"] == FREE], [1, -1], 0)).max(initial=0)
    )
    if region is None and alive > MAX_REGIONS:
        raise InvalidRequest(
            f"{alive:,} blocks are live at once; a trace numbers {MAX_REGIONS:,} regions, and here each block is one: "
            "ask for no trace"
        )
    history = RecordedHistory()
    first = int(rows["time"].min(initial=0))
    blocks = zip(address.tolist(), size.tolist(), strict=True)
    requests = rows[["time", "thread", "label", "stream", "size", "kind"]].tolist()
    granted = False
    for (time, thread, label, number, asked, kind), (start, whole) in zip(requests, blocks, strict=True):
        history.at(time - first, thread)
        if kind == MARK:
            history.mark(label, asked & _ALL_BITS)
        elif kind == FREE and start:
            history.ledger.free(start)
            if region is None:
                history.ledger.release(start)
        elif kind == ALLOCATE and start:
            if region is None:
                history.ledger.grant(start, whole)
            elif not granted:
                history.ledger.grant(BASE, region)
                granted = True
            history.ledger.allocate(start, whole, asked, label, number)
        elif kind == ALLOCATE and asked > 0:
            history.ledger.oom(asked, label, number)
    return Trace.from_events(
        history.events(), task.stream.labels, policy_origin(task.policy, task.stream, task.limit)
    )
