"""RecordedOutcome: an outcome with its trace: the state after any request, and where each block was placed."""

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import InvalidRequest
from bfcviz.events.schema import Events, Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.lifetimes.lifetimes import born_of
from bfcviz.model.state.model import Model
from bfcviz.whatif.outcome import FreeMemory, Outcome
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, are_pieces

_ENDS: Final = (Kind.ALLOCATE, Kind.FREE, Kind.OOM, Kind.MARK)
"""Each request that changes or asks anything writes one of these, in order."""


class RecordedOutcome:
    """The trace of an outcome, found by request.

    Args:
        outcome: must have a trace.

    Raises:
        InvalidRequest: it has none, or its trace does not follow its requests.
    """

    def __init__(self, outcome: Outcome) -> None:
        if outcome.trace is None:
            raise InvalidRequest(
                f"the outcome of policy {outcome.policy!r} has no trace; serve with record=True"
            )
        self.outcome = outcome
        self.trace: Trace = outcome.trace
        rows, placed = outcome.stream.rows[: outcome.served], outcome.address != 0
        kind = rows["kind"]
        wrote = ((kind == ALLOCATE) & (rows["size"] > 0)) | ((kind == FREE) & placed) | (kind == MARK)
        self._ends_before = np.concatenate([[0], np.cumsum(wrote)])
        if len(self._heads) != self._ends_before[-1]:
            raise InvalidRequest(
                f"the trace of policy {outcome.policy!r} has {len(self._heads):,} allocations, frees, failures and "
                f"marks for {self._ends_before[-1]:,} requests; serve them again with record=True"
            )

    def step_after(self, request: int) -> int:
        """The step of the trace after a request, with the merges and releases that belong to it; -1: before all.

        Segments that the next request returns before it is served are still there.
        """
        heads = int(self._ends_before[min(request + 1, self.outcome.served)])
        if not heads:
            return 0
        # With all pieces of a block.
        last = self._heads[heads] if heads < len(self._heads) else len(self._ends)
        step, events = int(self._ends[last - 1]) + 1, self._events
        released = self._pool_bytes(step) - int(self.outcome.reserved[min(request, self.outcome.served - 1)])
        while step < len(events):
            kind = events["kind"][step]
            if kind == Kind.RELEASE and released >= int(events["size"][step]):
                released -= int(events["size"][step])
            elif kind != Kind.MERGE:
                break
            step += 1
        return step

    def _pool_bytes(self, step: int) -> int:
        """The bytes of all regions after so many events."""
        return int(self._granted[step])

    @cached_property
    def _granted(self) -> NDArray[np.int64]:
        """The bytes of all regions before each event, and after the last, int64[events + 1]."""
        kind, size = self._events["kind"], self._events["size"].astype(np.int64)
        change = np.select([kind == Kind.EXTEND, kind == Kind.RELEASE], [size, -size], 0)
        return np.concatenate([[0], np.cumsum(change)])

    def free_memory(self, request: int) -> FreeMemory:
        """The free memory after a request, as its allocator counts it; else as the trace has it."""
        counted = self.outcome.free_memory(request)
        if counted is not None:
            return counted
        model = Model(self.trace)
        model.seek(self.step_after(request))
        return FreeMemory(int(model.table.free_bytes), int(model.table.largest_free_chunk))

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of events of each kind, by its name in lower case; "extend" and "release" are calls to the driver.

        A driver that takes back a part of what it granted has more regions in the trace than calls (`region_pieces`).
        Then "split" and "merge" count those within the trace's regions.
        """
        found = np.bincount(self._events["kind"], minlength=len(Kind) + 1)
        calls = self.outcome.driver_calls
        events = {kind.name.lower(): int(found[kind]) for kind in Kind}
        return events | {"extend": calls.grants, "release": calls.releases}

    @cached_property
    def regions(self) -> NDArray[np.int64]:
        """The region of the block of each request, counted from 0 in the order of grants; -1 without one.

        A segment that grows in reserved addresses is one region, in the order of its reservation.
        """
        return self._places[0]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The offset of the block of each request in its region, in bytes; -1 without one."""
        return self._places[1]

    @cached_property
    def _events(self) -> Events:
        return self.trace.read(self.trace.first, len(self.trace))

    @cached_property
    def _ends(self) -> NDArray[np.intp]:
        return np.flatnonzero(np.isin(self._events["kind"], _ENDS))

    @cached_property
    def _heads(self) -> NDArray[np.intp]:
        """Of `_ends`, without the further pieces of blocks that lie across regions."""
        found = self._events[self._ends]
        pieces = are_pieces(found)
        frees = np.flatnonzero(found["kind"] == Kind.FREE)
        pieces[frees] = np.isin(born_of(found, frees), found["seq"][pieces])
        return np.flatnonzero(~pieces)

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Region and offset of each request."""
        if self.outcome.ranges is not None:
            return _places_in(self.outcome.ranges, self.outcome.address)
        events, served = self._events, self.outcome.served
        granted = np.flatnonzero((events["kind"] == Kind.EXTEND) & (events["flags"] & Flag.GREW == 0))
        keys = events["region"][granted].astype(np.int64) * (len(events) + 1) + granted
        by_slot = np.argsort(keys)
        wrote = np.flatnonzero(np.diff(self._ends_before))
        ends = self._ends[self._heads]
        mine = np.isin(events["kind"][ends], (Kind.ALLOCATE, Kind.FREE))
        at, requests = ends[mine], wrote[mine]
        wanted = events["region"][at].astype(np.int64) * (len(events) + 1) + at
        order = by_slot[np.searchsorted(keys[by_slot], wanted) - 1] if len(granted) else np.zeros(0, np.intp)
        regions, offsets = np.full(served, -1, np.int64), np.full(served, -1, np.int64)
        regions[requests] = order
        base = events["address"][granted[order]] if len(order) else np.zeros(0, np.uint64)
        offsets[requests] = (events["address"][at] - base).astype(np.int64)
        return regions, offsets


def _places_in(
    ranges: NDArray[np.uint64], address: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number of the range, and offset in it, of each address; -1 where the address is 0."""
    at = np.searchsorted(ranges, address, "right") - 1
    base = ranges[at] if len(ranges) else address
    offsets = (address - base).astype(np.int64)
    return np.where(address != 0, at, -1), np.where(address != 0, offsets, -1)
