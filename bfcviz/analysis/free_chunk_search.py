"""The search for a free chunk behind an event: the bins it searched, the chunk it took, and why that was split.

No event records a search: it is repeated, by the heap's rule, among the chunks that were free just before:

::

    request -> rounded up -> its bin, and upwards -> the smallest chunk that fits, of equal ones the lowest address
    nothing fits in any bin -> release wholly free regions, extend the pool -> search again
    the chunk taken:  | padding | allocated | rest |       padding and rest stay free where they are split off

The chunk taken is always the one in the events; chunks that the rule takes earlier are counted in `passed_over`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.diagnosis import model_to_diagnose
from bfcviz.analysis.heap_settings import Family, heap_settings_of
from bfcviz.events.origin import holds_only_states, recorded_failures
from bfcviz.events.schema import NUM_BINS, Events, Flag, Kind, bin_numbers, bin_of
from bfcviz.events.structured_arrays import taken as picked
from bfcviz.events.trace import Trace
from bfcviz.formats import tensorflow
from bfcviz.model import array_access
from bfcviz.model.model import Model
from bfcviz.units import format_bytes, short_address

# ------------------------------------------------------------------------------
# The events that one request wrote, from the first release or extension to its ALLOCATE or OOM.
#
# ::
#
#     | RELEASE*  (EXTEND [MERGE])*  [SPLIT padding]  [SPLIT]  ALLOCATE
#     | RELEASE*  (EXTEND [MERGE])*                            OOM

_REACH: Final = 64
"""Events read on either side: those of one operation are consecutive but for events of other pools."""

_ON_THE_WAY: Final = (Kind.SPLIT, Kind.EXTEND, Kind.MERGE, Kind.RELEASE)


@dataclass(frozen=True)
class Operation:
    """The events of one request, which a search for a free chunk belongs to; each sequence in the order of writing.

    Attributes:
        end: its ALLOCATE or OOM.
        splits: the SPLITs of the chunk that it took.
        extends: the EXTENDs made for it.
        releases: the RELEASEs that made room for those.
    """

    end: np.void
    splits: Sequence[np.void]
    extends: Sequence[np.void]
    releases: Sequence[np.void]

    @property
    def pool(self) -> int:
        """Index of the pool of an operation."""
        return int(self.end["pool"])

    @property
    def taken(self) -> int:
        """Handle of the free chunk that an operation took, before the split."""
        return int((*self.splits, self.end)[0]["chunk"])

    @property
    def taken_at(self) -> int:
        """The step just before the chunk that an operation took was split or allocated."""
        return int((*self.splits, self.end)[0]["seq"])

    @property
    def begin(self) -> int:
        """The step just before the first event of an operation."""
        return int((*self.releases, *self.extends, *self.splits, self.end)[0]["seq"])


def operation_of_event(trace: Trace, event: int) -> Operation | None:
    """The operation, all events of one request, to which an event belongs; None where it belongs to none.

    Raises:
        TraceError: the trace has no such event.
    """
    end = _event_operation_end(trace, trace.read(event, event + 1)[0])
    if end is None:
        return None
    stop = int(end["seq"])
    before = _events_of_same_pool(trace.read(max(trace.first, stop - _REACH), stop), end)[::-1]
    splits = _splits_of_operation(before, end)
    extends, releases = _room_made(before[len(splits) :], end)
    found = Operation(end, splits[::-1], extends[::-1], releases[::-1])
    return found if found.begin <= event else None


def _event_operation_end(trace: Trace, event: np.void) -> np.void | None:
    """The ALLOCATE or OOM that ends the operation of an event; None where it belongs to none."""
    if event["kind"] in (Kind.ALLOCATE, Kind.OOM):
        return event
    if event["kind"] not in _ON_THE_WAY:
        return None
    for later in events_after(trace, event):
        if later["kind"] in (Kind.ALLOCATE, Kind.OOM):
            found: np.void = later
            return found
        if later["kind"] not in _ON_THE_WAY:
            return None
    return None


def events_after(trace: Trace, event: np.void) -> Events:
    """The next events of the same pool as an event, without marks: those of its operation are among them."""
    first = int(event["seq"]) + 1
    return _events_of_same_pool(trace.read(first, min(len(trace), first + _REACH)), event)


def _events_of_same_pool(events: Events, event: np.void) -> Events:
    mine: Events = events[(events["pool"] == event["pool"]) & (events["kind"] != Kind.MARK)]
    return mine


def _splits_of_operation(before: Events, end: np.void) -> list[np.void]:
    """The SPLITs that led to the ALLOCATE of an operation, the last one first."""
    found: list[np.void] = []
    if end["kind"] == Kind.OOM:
        return found
    for event in before:
        padding = bool(int(event["flags"]) & Flag.PADDING)
        if event["kind"] != Kind.SPLIT or event["other" if padding else "chunk"] != end["chunk"]:
            break
        found.append(event)
        if padding:
            break
    return found


def _room_made(before: Events, end: np.void) -> tuple[list[np.void], list[np.void]]:
    """The EXTENDs for the request of an operation and the RELEASEs before them, the last one first."""
    rounded = tensorflow.round_up(max(int(end["requested"]), 1))
    extends: list[np.void] = []
    releases: list[np.void] = []
    merged = None  # handle of the chunk that the later MERGE merged away
    for event in before:
        kind = event["kind"]
        if kind == Kind.EXTEND and event["requested"] == rounded and merged in (None, int(event["chunk"])):
            extends.append(event)
            merged = None
        elif kind == Kind.RELEASE and merged is None and (extends or end["kind"] == Kind.OOM):
            releases.append(event)
        elif kind == Kind.MERGE and merged is None:
            merged = int(event["other"])
        else:
            break
    return extends, releases


# ------------------------------------------------------------------------------
# The search of an allocation: the bins it searched, the chunk it took, and whether that chunk was split.

_OTHER_RULES = {Family.TORCH, Family.RMM, Family.CUPY, Family.VULKAN}


class Cut(StrEnum):
    """Why the chunk that a search took was split or not."""

    EXACT = "exact"  # not split: nothing is left over
    HALVES = "halves"  # split: it is at least twice the rounded request
    WASTE = "waste"  # split: the rest reaches the waste limit
    WHOLE = "whole"  # not split: the rest is less than both
    NOT_SHOWN = "not shown"  # the rule says otherwise, or needs options that the trace does not have


@dataclass(frozen=True)
class Taken:
    """The free chunk that a search took, in bytes.

    Attributes:
        address, size, bin: before any split.
        padding: split off its start for alignment.
        rest: left over after the rounded request; a chunk of its own where `split`.
        split: whether the rest was split off.
        cut: why the chunk was split or not.
    """

    address: int
    size: int
    bin: int
    padding: int
    rest: int
    split: bool
    cut: Cut


@dataclass(frozen=True)
class EventSearch:
    """The search for a free chunk behind an event: what one request searched, and what it took.

    Attributes:
        event: index of the event that ended it, an ALLOCATE or OOM.
        requested, rounded: requested bytes, and those rounded up to a multiple of 256.
        first_bin, last_bin: the bins searched before any extension of the pool.
        free_chunks: number of free chunks in each of these bins.
        too_small: number of chunks in the first bin that do not fit.
        passed_over: number of chunks that fit and come before the one taken by the rule. An alignment or a timestamp
            excludes them; no event says which.
        extended: bytes by which the pool was extended because nothing fitted.
        released: number of free regions released to make room for that.
        max_waste: a chunk with at least this rest in bytes is always split; None where the trace does not have it.
        taken: None where the request failed.
    """

    event: int
    requested: int
    rounded: int
    first_bin: int
    last_bin: int
    free_chunks: tuple[int, ...]
    too_small: int
    passed_over: int
    extended: int
    released: int
    max_waste: int | None
    taken: Taken | None


def search_of(trace: Trace, event: int, model: Model | None = None) -> EventSearch | None:
    """Repeat the search for a free chunk of the operation to which this event belongs.

    Args:
        trace: the events.
        event: index of an ALLOCATE or OOM, or of a SPLIT, EXTEND or RELEASE of the same operation.
        model: a model of this trace and pool to use; it returns to its step.

    Returns:
        None for events without a request; for heaps rebuilt from addresses alone, whose free chunks are not known; for
        allocations that only build a state; and for the heaps of other frameworks, which search by other rules.

    Raises:
        TraceError: the trace has no such event, or those before it contradict each other.
    """
    operation = operation_of_event(trace, event)
    if operation is None or _is_tiled(trace, operation.pool) or not _is_known(trace, operation):
        return None
    model = model_to_diagnose(trace, operation.pool, model)
    requested = int(operation.end["requested"])
    rounded = tensorflow.round_up(max(requested, 1))
    rows = chunk_rows_at(model, operation.begin)
    free = picked(rows, rows["state"] == array_access.CHUNK_FREE)
    max_waste = _max_waste(trace, operation.pool)
    taken = None
    if operation.end["kind"] == Kind.ALLOCATE:
        if operation.taken_at != operation.begin:
            rows = chunk_rows_at(model, operation.taken_at)
        taken = _taken_chunk(rows, operation, rounded, max_waste)
    made_room = bool(operation.extends or operation.releases)
    first = bin_of(rounded)
    last = NUM_BINS - 1 if taken is None or made_room else max(taken.bin, first)
    numbers = bin_numbers(free["size"])
    counts = np.bincount(numbers, minlength=NUM_BINS)[first : last + 1]
    fits = free["size"] >= rounded
    return EventSearch(
        event=int(operation.end["seq"]),
        requested=requested,
        rounded=rounded,
        first_bin=first,
        last_bin=last,
        free_chunks=tuple(counts.tolist()),
        too_small=int(np.count_nonzero((numbers == first) & ~fits)),
        passed_over=_passed_over(free[fits], None if made_room else taken),
        extended=sum(int(event["size"]) for event in operation.extends),
        released=len(operation.releases),
        max_waste=max_waste,
        taken=taken,
    )


def chunk_rows_at(model: Model, step: int) -> NDArray[np.void]:
    """Rows of the chunks at a step to search, in no order: faster than `chunks()`, whose cached array stays valid."""
    with model.visiting(step):
        return model.table.chunk_rows()


def _taken_chunk(rows: NDArray[np.void], operation: Operation, rounded: int, max_waste: int | None) -> Taken:
    """The free chunk that a search took, from the rows of chunks before it was split."""
    chunk = rows[np.flatnonzero(rows["handle"] == operation.taken)[0]]
    size, rest, padding, split = int(chunk["size"]), 0, 0, False
    for event in operation.splits:
        if int(event["flags"]) & Flag.PADDING:
            padding = size - int(event["size"])
        else:
            rest, split = rest + int(event["size"]), True
    usable = size - padding
    if not split:
        rest = max(0, usable - rounded)
    return Taken(
        int(chunk["address"]),
        size,
        bin_of(size),
        padding,
        rest,
        split,
        _split_rule_applied(usable, rounded, split, max_waste),
    )


def _split_rule_applied(usable: int, rounded: int, split: bool, max_waste: int | None) -> Cut:  # noqa: FBT001
    """Why a search split the chunk that it took, or not, by the heap's rule."""
    over = usable - rounded
    wasteful = max_waste is not None and over >= max_waste
    if split:
        return Cut.HALVES if over >= rounded else Cut.WASTE if wasteful else Cut.NOT_SHOWN
    if over <= 0:
        return Cut.EXACT
    return Cut.NOT_SHOWN if tensorflow.splits(usable, rounded, max_waste) else Cut.WHOLE


def _passed_over(fits: NDArray[np.void], taken: Taken | None) -> int:
    """Number of free chunks that fit and that a search passed over; all where none was taken."""
    if taken is None:
        return len(fits)
    smaller = fits["size"] < taken.size
    lower = (fits["size"] == taken.size) & (fits["address"] < taken.address)
    return int(np.count_nonzero(smaller | lower))


def _max_waste(trace: Trace, pool: int) -> int | None:
    """For a search, the rest from which on a chunk is split, by the heap's options in the trace; None: unknown."""
    heap = trace.origin.pools[pool]
    fraction = heap.options.get("fragmentation_fraction", 0.0)
    if not heap.options or not isinstance(fraction, int | float):
        return None
    if heap.limit is None and fraction:
        return None
    return tensorflow.max_waste(heap.limit or 0, fraction)


def _is_known(trace: Trace, operation: Operation) -> bool:
    """Whether the search for a chunk follows from the events: the heap has our rule, and its chunks are known."""
    origin = trace.origin
    if heap_settings_of(origin, operation.pool).family in _OTHER_RULES:
        return False
    if operation.end["kind"] == Kind.ALLOCATE:
        return not holds_only_states(origin.details)
    event = int(operation.end["seq"])
    return all(each.has_heap for each in recorded_failures(origin.details) if each.event == event)


def _is_tiled(trace: Trace, pool: int) -> bool:
    """Whether no event tells of a search: the importer had only addresses, so that the free chunks are not known."""
    checks = trace.origin.details.get("checks")
    check = checks[pool] if isinstance(checks, list) and pool < len(checks) else None
    return isinstance(check, dict) and check.get("method") == "tiled"


# ------------------------------------------------------------------------------
# Sentences about the search for a free chunk.


def search_words(search: EventSearch) -> str:
    """The search for a free chunk in two short sentences: where it looked, what it took, and why that was split.

    A sentence on chunks that the search skipped stands between them where there are any.
    """
    sentences = [f"{_search_start_words(search)}: {_search_result_words(search)}."]
    if search.passed_over:
        sentences.append(_passed_over_sentence(search.passed_over))
    if search.taken is not None:
        sentences.append(_taken_split_words(search, search.taken))
    return " ".join(sentences)


def _search_start_words(search: EventSearch) -> str:
    size = format_bytes(search.rounded)
    requested = format_bytes(search.requested)
    if requested == size:
        requested = f"{search.requested:,} B"
    rounded = f" ({requested} rounded up)" if search.rounded > search.requested else ""
    return f"The search for {size}{rounded} started in bin {search.first_bin}"


def _search_result_words(search: EventSearch) -> str:
    taken = search.taken
    if taken is None or search.extended or search.released:
        bins = _searched_bins_words(search.first_bin, search.last_bin)
        return f"{_none_taken_words(search, sum(search.free_chunks), bins)}{_growth_for_search_words(search)}"
    here = search.free_chunks[taken.bin - search.first_bin] if taken.bin >= search.first_bin else 0
    if taken.bin == search.first_bin:
        small = f", {search.too_small} of them too small" if search.too_small else ""
        return f"{_best_fit_words(taken, here, search.first_bin)}{small}"
    below = _none_taken_words(
        search, sum(search.free_chunks[:-1]), _searched_bins_words(search.first_bin, search.last_bin - 1)
    )
    return f"{below}; {_best_fit_words(taken, here, taken.bin)}"


def _searched_bins_words(first: int, last: int) -> str:
    return f"bins {first} to {last}" if last > first else f"bin {first}"


def _none_taken_words(search: EventSearch, chunks: int, bins: str) -> str:
    """Why the search took no free chunk of these bins."""
    if not chunks:
        return f"{bins} {'have' if bins.startswith('bins') else 'has'} no free chunk"
    fitting = chunks - search.too_small
    if chunks == 1:
        return f"the only free chunk in {bins} {'was not taken' if fitting else 'is too small'}"
    if fitting:
        return f"none of the {chunks:,} free chunks in {bins} was taken"
    return f"all {chunks:,} free chunks in {bins} are too small"


def _growth_for_search_words(search: EventSearch) -> str:
    """How the heap made room when a search took no chunk, and the result."""
    steps = ""
    if search.released:
        regions = "region" if search.released == 1 else "regions"
        steps += f"; the heap released {search.released} free {regions} to the sub-allocator"
    steps += f"; the pool grew by {format_bytes(search.extended)}" if search.extended else ""
    if search.taken is not None:
        return f"{steps}; then the search took {_taken_chunk_words(search.taken)} in bin {search.taken.bin}"
    return f"{steps}; still no chunk fits" if search.extended else f"{steps}; the pool did not grow"


def _best_fit_words(taken: Taken, chunks: int, number: int) -> str:
    if chunks == 1:
        return f"it took the only free chunk in bin {number}, {_taken_chunk_words(taken)}"
    return f"it took the best fit of {chunks:,} free chunks in bin {number}, {_taken_chunk_words(taken)}"


def _taken_chunk_words(taken: Taken) -> str:
    return f"{short_address(taken.address)} ({format_bytes(taken.size)})"


def _passed_over_sentence(chunks: int) -> str:
    if chunks == 1:
        return "1 free chunk that fits was skipped: an alignment or a timestamp can exclude it."
    return f"{chunks:,} free chunks that fit were skipped: an alignment or a timestamp can exclude them."


def _taken_split_words(search: EventSearch, taken: Taken) -> str:
    rest, limit = format_bytes(taken.rest), format_bytes(search.max_waste or 0)
    match taken.cut:
        case Cut.EXACT:
            why = "fits exactly and was not split."
        case Cut.HALVES:
            why = f"was split, as it has at least twice the request: {rest} stay free."
        case Cut.WASTE:
            why = f"was split, as the {rest} left over reach the waste limit of {limit}."
        case Cut.WHOLE:
            more = "" if search.max_waste is None else f" and the waste limit of {limit}"
            why = f"was not split: the {rest} left over are less than the request{more}."
        case Cut.NOT_SHOWN:
            verb = "was split" if taken.split else "was not split"
            why = f"{verb}, with {rest} left over; the events do not show why."
    padding = format_bytes(taken.padding)
    before = f"{padding} of alignment padding stay free before it. " if taken.padding else ""
    return f"{before}The chunk {why}"
