"""What no allocator is, as policies beside real rules: a lower bound, and a plan of offsets for known lifetimes."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.errors import BrokenInvariant, InvalidRequest
from bfcviz.events.trace import Trace
from bfcviz.importers.recorded_history import RecordedHistory
from bfcviz.native import MAX_REGIONS
from bfcviz.whatif.outcome import DriverCalls, Outcome, failed_allocations
from bfcviz.whatif.policies.first_fit import FirstFitPool
from bfcviz.whatif.policy import NO_LIMIT, Policy, PoolPolicy, checked_limit, origin_of
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, RequestStream

# ------------------------------------------------------------------------------
# Interval packing: offsets for blocks whose lifetimes are all known, as low as greedy orders get them.
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
# SR2). The orders are those of published planners: by size and by time from Pisarchyk and Lee, Efficient Memory
# Management for Deep Neural Net Inference (arXiv 2001.03288, "greedy by size"); by area, size times duration, as in
# the offset assignment of TensorFlow Lite's and TVM's planners. No height is below the peak of the live bytes.

MOST_EXACT: Final = 4096
"""Blocks that are placed in the lowest gap. The time grows with the square; all others are stacked above these."""

SHARE_EXACT: Final = 10
"""Of more blocks, one in so many is placed in the lowest gap."""

LIMIT_EXACT: Final = 10_000
"""But no more than these."""

UNIT: Final = 256
"""Sizes are rounded up to a multiple of this, in bytes."""

_BATCH: Final = 1024
_FAR: Final = 1 << 62
_MOST_PLANS: Final = 4


@dataclass(frozen=True)
class Lifetimes:
    """Rectangles to pack, one a block: int64[blocks].

    Attributes:
        start: index of the request that allocates it.
        stop: index of the request that frees it; the number of requests, if none does.
        size: bytes, after rounding; 0: there is no such block.
        requests: number of requests.
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    size: NDArray[np.int64]
    requests: int

    @classmethod
    def of(cls, stream: RequestStream) -> "Lifetimes":
        """The lifetimes of a stream; sizes are rounded up to a multiple of 256 bytes, as GPUs want addresses."""
        rows, n = stream.rows, len(stream)
        start, stop = np.zeros(stream.blocks, np.int64), np.full(stream.blocks, n, np.int64)
        for kind, found in ((ALLOCATE, start), (FREE, stop)):
            at = np.flatnonzero(rows["kind"] == kind)
            found[rows["block"][at]] = at
        return cls(start, stop, -(-stream.block_sizes // UNIT) * UNIT, n)

    @property
    def duration(self) -> NDArray[np.int64]:
        """Requests from the first one on while each block lives."""
        return self.stop - self.start

    @cached_property
    def live(self) -> NDArray[np.int64]:
        """Bytes of all blocks after each request, int64[requests]."""
        change = np.zeros(self.requests + 1, np.int64)
        np.add.at(change, self.start, self.size)
        np.add.at(change, self.stop, -self.size)
        found: NDArray[np.int64] = np.cumsum(change[:-1])
        return found


@dataclass(frozen=True)
class PackingPlan:
    """Offsets of all blocks in one region.

    Attributes:
        lifetimes: of the blocks.
        offset: bytes from the start of the region, int64[blocks].
        order: how the plan was found.
    """

    lifetimes: Lifetimes
    offset: NDArray[np.int64]
    order: str

    @cached_property
    def height(self) -> int:
        """Bytes of the region."""
        return int((self.offset + self.lifetimes.size)[self.lifetimes.size > 0].max(initial=0))


_plans: dict[str, PackingPlan] = {}  # by digest of the stream, the last used at the end
_plans_lock = Lock()


def kept_plan(stream: RequestStream) -> PackingPlan:
    """As `pack`, but the last few plans are kept: searches ask for many limits of one stream."""
    with _plans_lock:
        plan = _plans.pop(stream.digest, None)
    plan = plan or pack(stream)
    with _plans_lock:
        _plans[stream.digest] = plan
        if len(_plans) > _MOST_PLANS:
            del _plans[next(iter(_plans))]
    return plan


def pack(stream: RequestStream) -> PackingPlan:
    """The lowest of several greedy plans, checked; takes some seconds for 100,000 blocks."""
    lifetimes = Lifetimes.of(stream)
    least = int(lifetimes.live.max(initial=0))
    size, duration = lifetimes.size, lifetimes.duration
    most = max(MOST_EXACT, min(len(size) // SHARE_EXACT, LIMIT_EXACT))
    orders = [("size", np.lexsort((-duration, -size)), most), ("duration", np.lexsort((-size, -duration)), 0)]
    if len(size) <= MOST_EXACT:
        orders.append(("area", np.argsort(-(size.astype(np.float64) * duration), kind="stable"), most))
    best = _by_start(stream, lifetimes)
    for name, order, exact in orders:
        if best.height > least:
            plan = PackingPlan(lifetimes, _placed(lifetimes, order[size[order] > 0], exact), name)
            best = min(best, plan, key=lambda each: each.height)
    check_plan(best)
    return best


def _by_start(stream: RequestStream, lifetimes: Lifetimes) -> PackingPlan:
    """In the order of time, each block in the lowest gap: first fit."""
    outcome = PoolPolicy("first_fit", FirstFitPool, {"granule": UNIT}).serve(stream)
    if not outcome.fits:
        raise InvalidRequest(f"the blocks need more than {NO_LIMIT} bytes at once; no plan is made")
    made = np.flatnonzero((stream.rows["kind"] == ALLOCATE) & (outcome.address != 0))
    address = outcome.address[made].astype(np.int64)
    offset = np.zeros(stream.blocks, np.int64)
    offset[stream.rows["block"][made]] = address - address.min(initial=_FAR)
    return PackingPlan(lifetimes, offset, "start")


def _placed(lifetimes: Lifetimes, order: NDArray[np.intp], exact: int) -> NDArray[np.int64]:
    """Offsets: the first blocks of the order in the lowest gap, the others stacked on these, the longest first."""
    first, rest = order[:exact], order[exact:]
    offset = np.zeros(len(lifetimes.start), np.int64)
    _fill_gaps(lifetimes, first, offset)
    _stack(lifetimes, first, rest[np.argsort(-lifetimes.duration[rest], kind="stable")], offset)
    return offset


def _fill_gaps(lifetimes: Lifetimes, order: NDArray[np.intp], offset: NDArray[np.int64]) -> None:
    """Place each block in the lowest gap between those placed before it that live at some time with it."""
    start, stop, size = (each[order] for each in (lifetimes.start, lifetimes.stop, lifetimes.size))
    low, high = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    for at in range(len(order)):
        lives = np.flatnonzero((start[:at] < stop[at]) & (stop[:at] > start[at]))
        lives = lives[np.argsort(low[lives])]
        ends = np.concatenate(([0], np.maximum.accumulate(high[lives])))
        gaps = np.concatenate((low[lives], [_FAR])) - ends
        low[at] = ends[np.argmax(gaps >= size[at])]
        high[at] = low[at] + size[at]
        if not at % _BATCH:
            native.check_signals()
    offset[order] = low


def _stack(
    lifetimes: Lifetimes, below: NDArray[np.intp], order: NDArray[np.intp], offset: NDArray[np.int64]
) -> None:
    """Place each block above all placed ones that live at some time with it."""
    if not len(order):
        return
    top = np.zeros(lifetimes.requests, np.int64)
    start, stop, size = (each.tolist() for each in (lifetimes.start, lifetimes.stop, lifetimes.size))
    for block in below.tolist():
        part = top[start[block] : stop[block]]
        np.maximum(part, offset[block] + size[block], out=part)
    for number, block in enumerate(order.tolist()):
        part = top[start[block] : stop[block]]
        offset[block] = low = int(part.max())
        part[:] = low + size[block]
        if not number % _BATCH:
            native.check_signals()


def check_plan(plan: PackingPlan) -> None:
    """Raise BrokenInvariant, if two blocks overlap (a bug of this module)."""
    lifetimes = plan.lifetimes
    low, high = plan.offset.tolist(), (plan.offset + lifetimes.size).tolist()
    used = np.flatnonzero(lifetimes.size > 0)
    at = np.concatenate((lifetimes.start[used], lifetimes.stop[used]))
    order = np.argsort(at, kind="stable")
    block, begins = np.tile(used, 2)[order].tolist(), (order < len(used)).tolist()
    live: list[int] = []  # offsets, ascending
    ends: list[int] = []
    for number, begin in zip(block, begins, strict=True):
        place = bisect_left(live, low[number])
        if not begin:
            del live[place], ends[place]
            continue
        if (place and ends[place - 1] > low[number]) or (place < len(live) and live[place] < high[number]):
            raise BrokenInvariant(f"block {number} of a packing plan overlaps with another one")
        live.insert(place, low[number])
        ends.insert(place, high[number])


# ------------------------------------------------------------------------------
# What no allocator is, as policies beside real rules in one table: a lower bound, and a plan.
#
# `live_bytes` is a lower bound: a heap without any fragmentation, which has just the memory of its live blocks. No
# rules need less, and only a driver that maps every block alone reaches it. `packed` is a plan and no bound: it
# knows all lifetimes before the first request and puts the blocks into one region, by the best plan of
# `interval_packing`. Rules without that knowledge seldom need less, but can: they may round less, return regions, or
# map pages elsewhere.

LIVE_OPTIONS: Final[Mapping[str, Any]] = {"unit": 1}
"""`unit`: sizes are rounded up to a multiple of this, in bytes. Only with 1, without rounding, it is a lower bound."""

BASE: Final = 0x7F0000000000
_ALL_BITS: Final = (1 << 64) - 1


class _Task(NamedTuple):
    """What a policy is asked to serve."""

    policy: Policy
    stream: RequestStream
    limit: int | None


class _Placement(NamedTuple):
    """Where blocks are, int64[blocks]; `size` 0: it has none, or fails. `region`: bytes of the one region of all."""

    address: NDArray[np.int64]
    size: NDArray[np.int64]
    region: int | None


@dataclass(frozen=True)
class LiveBytesPolicy:
    """The least memory: that of the live blocks.

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
        """Serve all requests; as `Policy.serve`. A trace has one region a block, so at most 65,535 at a time."""
        checked_limit(limit)
        unit = self.options.get("unit", LIVE_OPTIONS["unit"])
        size = -(-stream.block_sizes // unit) * unit
        if limit is not None:
            size = _served_sizes(stream, size, limit)
        total = sum(size.tolist())
        if total >= 1 << 62:
            raise InvalidRequest(f"all blocks together have {total} bytes; at most 2^62 - 1 have addresses")
        placement = _Placement(BASE + np.cumsum(size) - size, size, None)
        return _outcome(_Task(self, stream, limit), placement, record=record, stop_at_failure=stop_at_failure)


@dataclass(frozen=True)
class PackedPolicy:
    """One region in which every block has its place before the first request."""

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "packed"

    def serve(
        self,
        stream: RequestStream,
        limit: int | None = None,
        *,
        record: bool = False,
        stop_at_failure: bool = False,
    ) -> Outcome:
        """Serve all requests; as `Policy.serve`. Blocks that the plan puts above the limit fail."""
        checked_limit(limit)
        plan = _plan(stream, limit)
        size = plan.lifetimes.size.copy()
        if limit is not None:
            size[plan.offset + size > limit] = 0
        region = int((plan.offset + size)[size > 0].max(initial=0))
        placement = _Placement(BASE + plan.offset, size, region)
        return _outcome(_Task(self, stream, limit), placement, record=record, stop_at_failure=stop_at_failure)


def _plan(stream: RequestStream, limit: int | None) -> PackingPlan:
    """The plan of all blocks that can fit under a limit: what never fits must not displace other blocks."""
    rows = stream.rows
    too_large = np.zeros(len(rows), bool)
    if limit is not None:
        too_large = (rows["kind"] == ALLOCATE) & (rows["size"] > limit // UNIT * UNIT)
    if not too_large.any():
        return kept_plan(stream)
    rows = rows.copy()
    rows["size"][too_large] = 0
    return pack(replace(stream, rows=rows))


def _served_sizes(stream: RequestStream, size: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """The sizes of the blocks that have room under a limit, the first come first served; 0: it fails."""
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


def _outcome(task: _Task, placement: _Placement, *, record: bool, stop_at_failure: bool) -> Outcome:
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
        trace=_trace(task, address, size, region) if record else None,
    )


def _trace(task: _Task, address: NDArray[np.uint64], size: NDArray[np.uint64], region: int | None) -> Trace:
    """The events of an outcome: one region of so many bytes, or one a block if that is None."""
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
        history.events(), task.stream.labels, origin_of(task.policy, task.stream, task.limit)
    )
