"""Outcome: what happened when a policy served a request stream, and the measures of fragmentation."""

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.answers import Answer, data_frame
from bfcviz.errors import InvalidRequest
from bfcviz.events.schema import Events, Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.lifetimes import born_of
from bfcviz.model.model import Model
from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, RequestStream, are_request_pieces

if TYPE_CHECKING:
    import pandas as pd


def failed_allocations(rows: NDArray[np.void], address: NDArray[np.integer]) -> NDArray[np.intp]:
    """Of an outcome: indices of the requests for memory that got none.

    Args:
        rows: of `STREAM_ROW`, shape (n,).
        address: of the block of each; 0 without one, shape (n,).
    """
    return np.flatnonzero((rows["kind"] == ALLOCATE) & (rows["size"] > 0) & (address == 0))


class DriverCalls(NamedTuple):
    """The outcome's calls for memory of the device: segments granted, refused and released."""

    grants: int
    refusals: int
    releases: int


class FreeMemory(NamedTuple):
    """The free memory of an outcome after a request: bytes of all free chunks, and of the largest one."""

    total: int
    largest: int

    @property
    def scattered_share(self) -> float:
        """1 - largest / total: TensorFlow's external fragmentation; 0 if nothing is free."""
        return 1 - self.largest / self.total if self.total else 0.0


@dataclass(frozen=True, repr=False)
class Outcome(Answer):
    """The outcome of each request: arrays uint64[n], sizes in bytes; n is less than the stream's length if it stopped.

    Attributes:
        policy: name of the rules.
        options: of the policy.
        limit: memory limit in bytes; None: none.
        stream: the requests.
        address: of the block allocated or freed; 0 without one.
        size: of that block, after rounding.
        in_use: bytes of all blocks in use after each request.
        reserved: bytes that the driver granted, after each request.
        driver_calls: number of calls.
        largest_free: bytes of the largest free chunk after each request; None: not known.
        trace: the events, if they were recorded.
        ranges: the first address of each range of addresses that the driver reserved, ascending: a segment, or the
            addresses that it grows in. None: the regions of the trace.
        note: what the rules were asked for and did not do, as a sentence; empty: nothing.
    """

    policy: str
    options: Mapping[str, Any]
    limit: int | None
    stream: RequestStream
    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    in_use: NDArray[np.uint64]
    reserved: NDArray[np.uint64]
    driver_calls: DriverCalls
    largest_free: NDArray[np.uint64] | None = None
    trace: Trace | None = None
    ranges: NDArray[np.uint64] | None = None
    note: str = ""

    @property
    def drawn_trace(self) -> Trace | None:
        """The trace of the outcome, if it was recorded: `replay(..., record=True)`."""
        return self.trace

    def to_pandas(self) -> "pd.DataFrame":
        """The outcome with one row a request: the block that it got or freed, and the bytes after it."""
        names = ("address", "size", "in_use", "reserved")
        return data_frame({name: getattr(self, name) for name in names})

    def __str__(self) -> str:
        failed = len(self.failures)
        result = (
            "every request was served"
            if self.fits
            else f"{failed:,} of {self.stream.allocations:,} allocations failed"
            if self.served == len(self.stream)
            else f"stopped after {self.served:,} of {len(self.stream):,} requests"
        )
        limit = "without a limit" if self.limit is None else f"under {format_bytes(self.limit)}"
        return (
            f"{self.policy} {limit}: {result}\n"
            f"peak: {format_bytes(self.peak_in_use)} in use, {format_bytes(self.peak_reserved)} reserved, "
            f"{self.reserved_not_in_use:.1%} reserved-not-in-use; internal fragmentation "
            f"{self.internal_fragmentation:.1%}"
        )

    @property
    def served(self) -> int:
        """Number of requests of the outcome that were tried, frees and marks included."""
        return len(self.address)

    def free_memory(self, request: int) -> FreeMemory | None:
        """The free memory of the outcome after a request, as the allocator counts it; None: it does not."""
        if self.largest_free is None:
            return None
        free = int(self.reserved[request]) - int(self.in_use[request])
        return FreeMemory(free, int(self.largest_free[request]))

    @cached_property
    def failures(self) -> NDArray[np.intp]:
        """Indices of the allocations that failed in the outcome."""
        return failed_allocations(self.stream.rows[: self.served], self.address)

    @property
    def fits(self) -> bool:
        """Whether every request of the outcome was served."""
        return self.served == len(self.stream) and not len(self.failures)

    @property
    def peak_reserved(self) -> int:
        """The most bytes that the driver had granted in the outcome."""
        return int(self.reserved.max(initial=0))

    @property
    def peak_in_use(self) -> int:
        """The most bytes of blocks in use in the outcome."""
        return int(self.in_use.max(initial=0))

    @cached_property
    def requested(self) -> NDArray[np.int64]:
        """Requested bytes of the outcome's blocks in use after each request, int64[n]."""
        return self.stream.requested_bytes(self.address != 0)

    @property
    def reserved_not_in_use(self) -> float:
        """1 - peak in use / peak reserved: the fragmentation of GMLake and STAlloc; 0 for an empty heap."""
        return 1 - self.peak_in_use / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def internal_fragmentation(self) -> float:
        """(in use - requested) / in use, where most is in use: what rounding wastes; 0 for an empty heap."""
        if not self.peak_in_use:
            return 0.0
        at = int(self.in_use.argmax())
        return 1 - int(self.requested[at]) / self.peak_in_use


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
        """The step of an outcome's trace after a request, with its merges and releases; -1: before all.

        Segments that the next request returns before it is served are still there.
        """
        heads = int(self._ends_before[min(request + 1, self.outcome.served)])
        if not heads:
            return 0
        # With all pieces of a block.
        last = self._heads[heads] if heads < len(self._heads) else len(self._ends)
        step, events = int(self._ends[last - 1]) + 1, self._events
        reserved = int(self.outcome.reserved[min(request, self.outcome.served - 1)])
        released = int(self._granted[step]) - reserved
        while step < len(events):
            kind = events["kind"][step]
            if kind == Kind.RELEASE and released >= int(events["size"][step]):
                released -= int(events["size"][step])
            elif kind != Kind.MERGE:
                break
            step += 1
        return step

    @cached_property
    def _granted(self) -> NDArray[np.int64]:
        """The bytes of all regions after so many events, int64[events + 1]."""
        kind, size = self._events["kind"], self._events["size"].astype(np.int64)
        change = np.select([kind == Kind.EXTEND, kind == Kind.RELEASE], [size, -size], 0)
        return np.concatenate([[0], np.cumsum(change)])

    def free_memory(self, request: int) -> FreeMemory:
        """The free memory of a recorded outcome after a request, as its allocator counts it; else by the trace."""
        counted = self.outcome.free_memory(request)
        if counted is not None:
            return counted
        model = Model(self.trace)
        model.seek(self.step_after(request))
        return FreeMemory(int(model.table.free_bytes), int(model.table.largest_free_chunk))

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of the outcome's events of each kind, by its name in lower case.

        Calls to the driver are "extend" and "release".

        A driver that takes back a part of what it granted has more regions in the trace than calls (`region_pieces`).
        Then "split" and "merge" count those within the trace's regions.
        """
        found = np.bincount(self._events["kind"], minlength=len(Kind) + 1)
        calls = self.outcome.driver_calls
        events = {kind.name.lower(): int(found[kind]) for kind in Kind}
        return events | {"extend": calls.grants, "release": calls.releases}

    @cached_property
    def regions(self) -> NDArray[np.int64]:
        """Where an outcome placed each request: the region, counted from 0 in the order of grants; -1 without one.

        A segment that grows in reserved addresses is one region, in the order of its reservation.
        """
        return self._places[0]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where an outcome placed each request: the offset in its region, in bytes; -1 without one."""
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
        pieces = are_request_pieces(found)
        frees = np.flatnonzero(found["kind"] == Kind.FREE)
        pieces[frees] = np.isin(born_of(found, frees), found["seq"][pieces])
        return np.flatnonzero(~pieces)

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Region and offset where the outcome placed each request."""
        if self.outcome.ranges is not None:
            return _outcome_places(self.outcome.ranges, self.outcome.address)
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


def _outcome_places(
    ranges: NDArray[np.uint64], address: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number of the range of an outcome, and offset in it, of each address; -1 where the address is 0."""
    at = np.searchsorted(ranges, address, "right") - 1
    base = ranges[at] if len(ranges) else address
    offsets = (address - base).astype(np.int64)
    return np.where(address != 0, at, -1), np.where(address != 0, offsets, -1)


# ------------------------------------------------------------------------------
# The first request that two outcomes of one stream place differently.
#
# Addresses of two allocators cannot be compared, nor can offsets: each rounds sizes in its own way. What can be
# compared is the order: the block in use that lies next below in the same region. Two outcomes are the same as long
# as each request gets the same neighbour below, or is the lowest in a region of the same number in the order of
# grants.
#
# Offsets can be compared as long as all blocks had the same sizes in both: until then, another offset is a
# difference, too, such as the other end of an empty region.

_WIDTH: Final = 110  # characters of a line in a notebook
_LONGEST: Final = 72  # characters of a label


@dataclass(frozen=True)
class PlacedRequest:
    """Where one outcome placed a request.

    Attributes:
        region: number of the region in the order of grants, from 0; a segment that grows is one region. -1: the request
            failed.
        offset: in the region, in bytes.
        size: of the block, after rounding.
        below: number of the block in use that lies next below in the same region; -1: none.
        granted: bytes that the driver granted for this request; below 0: it returned more.
    """

    region: int
    offset: int
    size: int
    below: int
    granted: int

    @property
    def order(self) -> tuple[int, int]:
        """What is compared of a placed request: the neighbour below, or the region."""
        return (0, self.below) if self.below >= 0 else (1, self.region)


@dataclass(frozen=True)
class FirstDifference:
    """The first request that two outcomes place differently.

    Attributes:
        request: its index in the stream.
        event: index of its event in the trace of the stream; -1: it is no event there.
        size: bytes requested.
        label: its name; may be empty.
        names: of the two policies.
        places: where each placed it.
        neighbours: for each, size and name of the block below; empty: none.
    """

    request: int
    event: int
    size: int
    label: str
    names: tuple[str, str]
    places: tuple[PlacedRequest, PlacedRequest]
    neighbours: tuple[str, str]

    def __str__(self) -> str:
        event = f" (event {self.event:,})" if self.event >= 0 else ""
        what = _outcome_request_text(self.size, self.label)
        head = f"The first request placed differently is request {self.request:,}{event}: {what}."
        parts = (
            f"{name}: {_outcome_place_text(place, below)}."
            for name, place, below in zip(self.names, self.places, self.neighbours, strict=True)
        )
        return "\n".join(
            line for text in (head, *parts) for line in wrap(text, _WIDTH, subsequent_indent="  ")
        )


def first_difference(
    one: RecordedOutcome, other: RecordedOutcome, names: tuple[str, str] | None = None
) -> FirstDifference | None:
    """The first allocation that two recorded outcomes place differently, or only one serves; None: there is none.

    A place is different if another block lies next below it, or if it is in another region. As long as all blocks had
    the same sizes in both outcomes, another offset in the region is different, too; after that, sizes and offsets are
    not compared.

    Args:
        one: an outcome.
        other: an outcome of the same stream.
        names: of the two, for the sentence; None: those of their policies.

    Raises:
        InvalidRequest: they are of different streams.
    """
    stream = one.outcome.stream
    if stream is not other.outcome.stream:
        raise InvalidRequest(
            "the two outcomes are of different streams; serve the same one under both policies"
        )
    orders = (_OutcomeBlocks(one), _OutcomeBlocks(other))
    served = min(one.outcome.served, other.outcome.served)
    rows, same_sizes = stream.rows[:served], True
    for i, (kind, block, size) in enumerate(rows[["kind", "block", "size"]].tolist()):
        if kind == FREE:
            for order in orders:
                order.free(i)
        elif kind == ALLOCATE and size > 0:
            places = (orders[0].place(i, block), orders[1].place(i, block))
            same_sizes = same_sizes and places[0].size == places[1].size
            moved = same_sizes and places[0].offset != places[1].offset
            if moved or places[0].order != places[1].order:
                return FirstDifference(
                    request=i,
                    event=int(rows["event"][i]),
                    size=size,
                    label=stream.labels.name(int(rows["label"][i])),
                    names=names or (one.outcome.policy, other.outcome.policy),
                    places=places,
                    neighbours=(
                        _outcome_block_text(stream, places[0].below),
                        _outcome_block_text(stream, places[1].below),
                    ),
                )
    return None


class _OutcomeBlocks:
    """The blocks in use of one outcome, by region and offset."""

    def __init__(self, recorded: RecordedOutcome) -> None:
        outcome = recorded.outcome
        self._regions, self._offsets = recorded.regions.tolist(), recorded.offsets.tolist()
        self._sizes, self._reserved = outcome.size.tolist(), outcome.reserved.tolist()
        self._live: list[tuple[int, int, int]] = []  # region, offset, block

    def place(self, request: int, block: int) -> PlacedRequest:
        """Add the outcome's block of a request, and say where it lies."""
        region, offset = self._regions[request], self._offsets[request]
        below = -1
        if region >= 0:
            key = (region, offset, block)
            at = bisect_left(self._live, key)
            if at and self._live[at - 1][0] == region:
                below = self._live[at - 1][2]
            insort(self._live, key)
        before = self._reserved[request - 1] if request else 0
        granted = self._reserved[request] - before
        return PlacedRequest(region, offset, self._sizes[request], below, granted)

    def free(self, request: int) -> None:
        """Remove the outcome's block that a request frees."""
        region, offset = self._regions[request], self._offsets[request]
        if region >= 0:
            at = bisect_left(self._live, (region, offset, -1))
            del self._live[at]


def _outcome_block_text(stream: RequestStream, block: int) -> str:
    """Size and name of a block of an outcome, as text."""
    if block < 0:
        return ""
    rows = stream.rows
    made = rows[(rows["kind"] == ALLOCATE) & (rows["block"] == block)][0]
    return _outcome_request_text(int(made["size"]), stream.labels.name(int(made["label"])))


def _outcome_request_text(num_bytes: int, label: str) -> str:
    name = printable(label) or "an allocation without label"
    short = name if len(name) <= _LONGEST else f"...{name[3 - _LONGEST :]}"
    return f"{format_bytes(num_bytes)} for {short}"


def _outcome_place_text(place: PlacedRequest, below: str) -> str:
    if place.region < 0:
        return "it fails"
    new = f", for which the driver grants {format_bytes(place.granted)}" if place.granted > 0 else ""
    size = f"{format_bytes(place.size)} in region {place.region}{new}"
    at = f"at offset {format_bytes(place.offset)}"
    return f"{size}, {at}, next above {below}" if below else f"{size}, {at}, with nothing in use below it"
