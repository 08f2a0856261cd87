"""What no allocator is, as policies beside real rules in one table: a lower bound, and a plan.

`live_bytes` is a lower bound: a heap without any fragmentation, which has just the memory of its live blocks. No rules
need less, and only a driver that maps every block alone reaches it. `packed` is a plan and no bound: it knows all
lifetimes before the first request and puts the blocks into one region, by the best plan of `interval_packing`. Rules
without that knowledge seldom need less, but can: they may round less, return regions, or map pages elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import InvalidRequest
from bfcviz.events.trace import Trace
from bfcviz.importers.recorded_history import RecordedHistory
from bfcviz.native import MAX_REGIONS
from bfcviz.whatif.interval_packing import UNIT, PackingPlan, kept_plan, pack
from bfcviz.whatif.outcome import DriverCalls, Outcome, failed_allocations
from bfcviz.whatif.policy import Policy, checked_limit, origin_of
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, RequestStream

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
