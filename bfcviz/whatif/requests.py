"""RequestStream: what a job asked of one heap, without any placement; `stream_of` any source."""

import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.heap_settings import heap_settings_of
from bfcviz.errors import InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin, Status, holds_only_states, recorded_failures, requested_bytes_known
from bfcviz.events.schema import EVENT, Events, Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_source
from bfcviz.model import Model
from bfcviz.model.find_steps import failing_pool
from bfcviz.model.lifetimes import born_of
from bfcviz.model.model import model_chunks_in_use
from bfcviz.model.trace_from_source import trace_of
from bfcviz.units import format_bytes
from bfcviz.unwatched import unwatched

REGION_ROW: Final = np.dtype(
    [
        ("request", "<i8"),  # index of the request during which it happened
        ("address", "<u8"),
        ("size", "<u8"),  # bytes granted; 0: the region that begins there was released
        ("joined", "?"),  # the grant extended the region that ends there
        ("needed", "<u8"),  # bytes that the request needed, after rounding; 0 for a release
    ]
)
"""One region that the heap was granted in the trace, or released."""


def request_regions(changes: Events, event: NDArray[np.int64]) -> NDArray[np.void]:
    """The `regions` of a request stream, of the events of grants and releases; `event` is that of each request."""
    regions = np.zeros(len(changes), REGION_ROW)
    regions["request"] = np.searchsorted(event, changes["seq"].astype(np.int64))
    regions["address"] = changes["address"]
    granted = changes["kind"] == Kind.EXTEND
    regions["size"] = np.where(granted, changes["size"], 0)
    regions["needed"] = np.where(granted, changes["requested"], 0)
    regions["joined"] = granted & (changes["flags"] & Flag.GREW != 0)
    return regions


ALLOCATE: Final = 0
FREE: Final = 1
MARK: Final = 2
"""A mark of the user: `size` has the 64 bits of its value; it changes nothing."""

LARGEST_REQUEST: Final = 1 << 61
"""A request of more bytes, which no memory can serve, counts as one of so many."""

STREAM_ROW: Final = np.dtype(
    [
        ("kind", "u1"),
        ("block", "<i8"),  # a free names the allocation with the same number, from 0; 0 for a mark
        ("size", "<i8"),  # bytes requested; 0 for a free
        ("time", "<i8"),  # ns
        ("label", "<u4"),
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("event", "<i8"),  # index of the event in the trace; -1: not an event of the trace
    ]
)
"""One request."""


@dataclass(frozen=True)
class RequestStream:
    """The requests of one heap, in order.

    Attributes:
        rows: of `STREAM_ROW`, shape (n,). A request that failed in the trace is freed at once, where it now succeeds.
        labels: the names of labels.
        source: name of the trace.
        limit: memory limit of the heap in bytes; None: not known.
        options: of the heap, as the trace's origin has them.
        family: whose allocator the heap is, as `heap_settings_of` says; empty: not known.
        regions: of `REGION_ROW`, in order; those before the first step of the trace are missing.
        notes: what is missing or assumed, as sentences.
        left_out: how many requests that failed in the trace are not among these.
        has_history: whether the trace has the requests in their order, and not only the chunks of moments.
    """

    rows: NDArray[np.void]
    labels: Labels
    source: str = ""
    limit: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""
    regions: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, REGION_ROW), repr=False)
    notes: tuple[str, ...] = ()
    left_out: int = 0
    has_history: bool = True

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        limit = "no limit" if self.limit is None else f"limit {format_bytes(self.limit)}"
        return f"<RequestStream of {self.source or 'a trace'}: {len(self):,} requests, {limit}>"

    @property
    def allocations(self) -> int:
        """Number of allocations among the requests."""
        return int(np.count_nonzero(self.rows["kind"] == ALLOCATE))

    @property
    def live_bytes(self) -> NDArray[np.int64]:
        """Requested bytes in use after each request, int64[n], if none fails: the least memory that a heap can need."""
        return self.requested_bytes(np.ones(len(self), bool))

    def requested_bytes(self, done: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Requested bytes in use after each of the first requests, int64[n], if only those happen that are `done`."""
        rows = self.rows[: len(done)]
        change: NDArray[np.int64] = np.where((rows["kind"] == ALLOCATE) & done, rows["size"], 0)
        frees = np.flatnonzero((rows["kind"] == FREE) & done)
        blocks: NDArray[np.int64] = rows["block"][frees]
        change[frees] = -self.block_sizes[blocks]
        return np.cumsum(change)

    def without_failed(self) -> "RequestStream":
        """The stream of requests without those that failed in the trace, for a job that went on without them."""
        failed = are_failed(self.rows)
        if not failed.any():
            return self
        rows = self.rows[~failed]
        made: NDArray[np.int64] = self.rows["block"][(self.rows["kind"] == ALLOCATE) & ~failed]
        number = np.zeros(self.blocks, np.int64)
        number[made] = np.arange(len(made))
        blocks: NDArray[np.int64] = rows["block"]
        rows["block"] = number[blocks]
        regions = self.regions.copy()
        place = np.maximum(np.cumsum(~failed) - 1, 0)
        at: NDArray[np.int64] = np.minimum(regions["request"], len(place) - 1)
        regions["request"] = place[at]
        left_out = _count_failed_in_trace(failed)
        said = f"requests that failed in the trace, left out: {left_out:,}"
        note = failed_note(self)
        notes = (*(each for each in self.notes if each != note), said)
        return replace(self, rows=rows, regions=regions, notes=notes, left_out=left_out)

    @cached_property
    def digest(self) -> str:
        """A digest of all that a policy can see; equal for equal requests of different traces."""
        state = blake2b(self.regions.tobytes(), digest_size=16)
        for name in STREAM_ROW.names or ():
            if name != "event":
                state.update(self.rows[name].tobytes())
        for number, name in self.label_names.items():
            state.update(f"{number} {name}\n".encode(errors="surrogatepass"))
        return state.hexdigest()

    @cached_property
    def label_names(self) -> dict[int, str]:
        """The names of the labels of requests, by number; a number that is not in the table has none."""
        names = self.labels.names
        return {
            number: names[number] for number in np.unique(self.rows["label"]).tolist() if number < len(names)
        }

    @cached_property
    def block_sizes(self) -> NDArray[np.int64]:
        """The requested bytes of each block of the stream, int64[blocks]."""
        made = self.rows[self.rows["kind"] == ALLOCATE]
        found = np.zeros(self.blocks, np.int64)
        found[made["block"]] = made["size"]
        return found

    @cached_property
    def blocks(self) -> int:
        """Number of blocks of the requests; at least 1."""
        return int(self.rows["block"].max(initial=0)) + 1


def requests_of(trace: Trace, pool: int = 0, *, check: bool = False) -> RequestStream:
    """The requests of one heap of a trace.

    Args:
        trace: the events. Where its beginning is missing, the chunks in use at its first step are requested first.
        pool: index of the heap.
        check: refuse events that contradict each other, as all questions about a trace do. Without it, only frees of
            unknown allocations are left out.

    Raises:
        TraceError: the events contradict each other: those before the first step, or with `check` any.
    """
    carried = _carried_over_requests(trace, pool)
    found, changes, failed = [carried], [np.zeros(0, EVENT)], -1
    model = Model(trace, pool)
    model.seek(trace.first)
    for block in trace.blocks():
        if check:
            model.measure(block)
        found.append(_rows_of(block, pool))
        if failed < 0:
            failed = _first_failed_request(block, pool)
        changes.append(block[(block["pool"] == pool) & np.isin(block["kind"], (Kind.EXTEND, Kind.RELEASE))])
    rows, unknown = _numbered_request_blocks(_joined_request_pieces(np.concatenate(found)))
    origin = trace.origin
    mine = origin.pools[pool]
    limit, of_failure = (mine.limit, "") if mine.limit else _request_stream_limit(trace, pool, failed)
    return RequestStream(
        rows=rows,
        labels=trace.labels,
        source=origin.source,
        limit=limit,
        options=mine.options,
        family=str(heap_settings_of(origin, pool).family),
        regions=request_regions(np.concatenate(changes), rows["event"]),
        notes=(
            *_request_stream_notes(origin, pool, rows, len(carried), unknown),
            *filter(None, [of_failure, _request_stream_end_note(trace, rows)]),
        ),
        has_history=not holds_only_states(origin.details),
    )


def _first_failed_request(events: Events, pool: int) -> int:
    """The index of the first event of a request that failed, among these events; -1: there is none."""
    failed = np.flatnonzero((events["kind"] == Kind.OOM) & (events["pool"] == pool))
    return int(events["seq"][failed[0]]) if len(failed) else -1


def _request_stream_limit(trace: Trace, pool: int, event: int) -> tuple[int | None, str]:
    """The limit of a stream where the trace has none: what its heap had at this failure; and a note on it."""
    if event < 0 or holds_only_states(trace.origin.details):
        return None, ""
    with Model(trace, pool).visiting(event) as model:
        had = int(model.stats().pool_bytes)
    told = [each.device_free or 0 for each in recorded_failures(trace.origin.details) if each.event == event]
    limit = had + sum(told[:1])
    if not limit:
        return None, ""
    beside = ", with what the device had free" if told and told[0] else ""
    return (
        limit,
        f"the trace has no limit: {format_bytes(limit)} is what the heap had when its request failed{beside}",
    )


def _request_stream_end_note(trace: Trace, rows: NDArray[np.void]) -> str:
    """What is missing where the last request for memory failed; empty where it did not."""
    made = rows["event"][rows["kind"] == ALLOCATE]
    if not len(made) or made[-1] < 0:
        return ""
    (last,) = trace.read(int(made[-1]), int(made[-1]) + 1)
    if last["kind"] != Kind.OOM:
        return ""
    return "the trace ends with a request that failed: what the job would ask for after it is not known"


PIECE: Final = 3
"""While a stream is made: a further chunk of the allocation before, which lies across regions."""


def _joined_request_pieces(rows: NDArray[np.void]) -> NDArray[np.void]:
    """The requests with one row for each allocation: the first, with the bytes of all its chunks."""
    pieces = rows["kind"] == PIECE
    if not pieces.any():
        return rows
    heads = np.maximum.accumulate(np.where(pieces, 0, np.arange(len(rows))))
    np.add.at(rows["size"], heads[pieces], rows["size"][pieces])
    frees = (rows["kind"] == FREE) & np.isin(rows["block"], rows["block"][pieces])
    found: NDArray[np.void] = rows[~(pieces | frees)]
    return found


def are_request_pieces(found: Events) -> NDArray[np.bool_]:
    """Whether each event only adds a further chunk to the request before (`Ledger.allocate`)."""
    pieces: NDArray[np.bool_] = (found["kind"] == Kind.ALLOCATE) & ((found["flags"] & Flag.PIECE) != 0)
    return pieces


def _numbered_request_blocks(rows: NDArray[np.void]) -> tuple[NDArray[np.void], int]:
    """The requests with blocks numbered from 0 on, without frees of unknown blocks; and the number of these."""
    made = rows["block"][
        rows["kind"] == ALLOCATE
    ]  # ascending: indices of events, after those that are carried
    frees = np.flatnonzero(rows["kind"] == FREE)
    places = np.searchsorted(made, rows["block"][frees])
    known = (
        made[np.minimum(places, len(made) - 1)] == rows["block"][frees]
        if len(made)
        else np.zeros(len(frees), bool)
    )
    rows["block"][rows["kind"] == ALLOCATE] = np.arange(len(made))
    rows["block"][frees] = places
    rows["block"][rows["kind"] == MARK] = 0
    return np.delete(rows, frees[~known]), int(np.count_nonzero(~known))


def _carried_over_requests(trace: Trace, pool: int) -> NDArray[np.void]:
    """Requests for the chunks in use at the first step, in the order of their allocation."""
    if not trace.first:
        return np.zeros(0, STREAM_ROW)
    chunks = np.sort(model_chunks_in_use(trace, pool, trace.first), order="born")
    rows = np.zeros(len(chunks), STREAM_ROW)
    rows["block"], rows["event"] = chunks["born"], -1
    rows["size"] = chunks["requested"]
    for name in ("label", "thread", "stream"):
        rows[name] = chunks[name]
    return rows


def _rows_of(events: Events, pool: int) -> NDArray[np.void]:
    """The requests of a stream among these events."""
    kinds = np.where(events["pool"] == pool, events["kind"], 0)
    at = np.flatnonzero(np.isin(kinds, (Kind.ALLOCATE, Kind.FREE, Kind.OOM, Kind.MARK)))
    found = events[at]
    rows = np.zeros(len(at), STREAM_ROW)
    rows["kind"] = np.select([found["kind"] == Kind.FREE, found["kind"] == Kind.MARK], [FREE, MARK], ALLOCATE)
    rows["size"] = np.where(found["kind"] == Kind.MARK, found["size"], found["requested"])
    rows["size"][found["kind"] == Kind.FREE] = 0
    made = rows["kind"] == ALLOCATE
    requested: NDArray[np.uint64] = found["requested"][made]
    rows["size"][made] = np.minimum(requested, np.uint64(LARGEST_REQUEST))
    rows["kind"][are_request_pieces(found)] = PIECE
    rows["event"] = rows["block"] = found["seq"]
    frees = found["kind"] == Kind.FREE
    rows["block"][frees] = born_of(found, np.flatnonzero(frees))
    for name in ("time", "label", "thread", "stream"):
        rows[name] = found[name]
    return _with_frees_of_failures(rows, found["kind"] == Kind.OOM)


def _with_frees_of_failures(rows: NDArray[np.void], failed: NDArray[np.bool_]) -> NDArray[np.void]:
    """A free after each request that failed in the trace."""
    if not failed.any():
        return rows
    frees = rows[failed]
    frees["kind"], frees["size"] = FREE, 0
    return np.insert(rows, np.flatnonzero(failed) + 1, frees)


def _request_stream_notes(
    origin: Origin, pool: int, rows: NDArray[np.void], carried: int, unknown: int
) -> list[str]:
    notes = []
    if origin.truncated:
        notes.append(origin.truncated)
    elif origin.status is not Status.COMPLETE and origin.reasons:
        notes.append(f"the trace is {origin.status.value}: {'; '.join(origin.reasons)}")
    if holds_only_states(origin.details):
        notes.append(
            "the file holds the chunks of moments and no history: their order is that of their addresses"
        )
    if carried:
        notes.append(
            f"the beginning is missing: {carried:,} chunks in use at the first step are requested first"
        )
    if unknown:
        notes.append(f"{unknown:,} frees of unknown allocations are left out")
    if not requested_bytes_known(origin.details, pool):
        notes.append("the trace has no requested bytes: sizes are those of chunks, after rounding")
    if len(origin.pools) > 1:
        notes.append(
            f"the trace has {len(origin.pools)} heaps; these are the requests of {origin.pools[pool].name!r}"
        )
    made = int(np.count_nonzero(rows["kind"] == ALLOCATE))
    if made and not (rows["kind"] == FREE).any():
        notes.append(f"none of the {made:,} allocations is freed")
    return notes


# ------------------------------------------------------------------------------
# Requests that failed in the trace itself: which they are, what they change, and the stream without them.
#
# A job that fails dies, or goes on without the memory: it tries a smaller workspace, or catches the error. A trace
# does not say which. So these requests are served like all others, and a note says what the job needs without them.


def are_failed(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Whether each row is a request that failed in the trace, or its free, which comes at once; bool[n].

    Args:
        rows: of `STREAM_ROW`, shape (n,).
    """
    event: NDArray[np.int64] = rows["event"]
    freed_at_once = np.zeros(len(rows), bool)
    freed_at_once[:-1] = (
        (rows["kind"][:-1] == ALLOCATE)
        & (rows["kind"][1:] == FREE)
        & (event[:-1] == event[1:])
        & (event[:-1] >= 0)
    )
    failed = freed_at_once.copy()
    failed[1:] |= freed_at_once[:-1]
    return failed


def failed_note(stream: RequestStream) -> str:
    """What requests that failed in the trace change; empty without any."""
    failed = are_failed(stream.rows)
    if not failed.any():
        return ""
    most = int(replace(stream, rows=stream.rows[~failed]).live_bytes.max(initial=0))
    return (
        f"requests that failed in the trace: {_count_failed_in_trace(failed):,}; served like all others, and freed at "
        f"once. Without them at most {format_bytes(most)} are requested at once (`with_failed=False`, "
        "`--without-failed`)"
    )


def _count_failed_in_trace(failed: NDArray[np.bool_]) -> int:
    """How many requests failed in the trace itself; each has two rows, for it is freed at once."""
    return int(np.count_nonzero(failed)) // 2


@unwatched()
def stream_of(source: Any, pool: int | str | None = None, *, with_failed: bool = True) -> RequestStream:
    """The requests of one heap of a source; those of a RequestStream itself.

    Args:
        source: as in `replay`.
        pool: the heap: its index among `trace.origin.pools`, or its name; None: the one with a failed request, else
            the first.
        with_failed: whether requests that failed in the trace are among them.

    Raises:
        InvalidRequest: the source has no such heap; a RequestStream has one only.
        BfcvizError: `source` is none of those of `replay`, or cannot be read; or its events contradict each other.
    """
    if isinstance(source, RequestStream):
        if pool not in {None, 0, "0"}:
            raise InvalidRequest(
                f"pool={pool!r} was given with a stream of requests, which is of one heap; give the pool to "
                "`requests_of`, or leave it out"
            )
        return source if with_failed else source.without_failed()
    trace = _trace_of_requests(source)
    stream = requests_of(trace, failing_pool(trace) if pool is None else _number_of(pool, trace), check=True)
    if not with_failed:
        return stream.without_failed()
    note = failed_note(stream)
    return replace(stream, notes=(*stream.notes, note)) if note else stream


def _number_of(pool: int | str, trace: Trace) -> int:
    """The index of the heap whose requests are asked for.

    Raises:
        InvalidRequest: there is none of this index or name.
    """
    names = [each.name for each in trace.origin.pools]
    if pool in names:
        return names.index(str(pool))
    try:
        number = int(pool) if isinstance(pool, str) else operator.index(pool)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number < len(names):
        raise InvalidRequest(
            f"the trace has no heap {pool!r}; it has {len(names)}, numbered from 0: {', '.join(names[:20])}"
        )
    return number


def _trace_of_requests(source: Any) -> Trace:
    if isinstance(source, str | os.PathLike):
        return open_source(source)
    if isinstance(found := getattr(source, "trace", None), Trace):  # a Watch, an Outcome, a Model
        return found
    return trace_of(source)
