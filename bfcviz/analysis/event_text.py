"""What an event did, in words; and the search behind it: its bins, the chunk it took, and why that was split.

An event is told as a sentence, as a few words for a list, and as one line for a header. No event records a search:
it is repeated, by the heap's rule, among the chunks that were free just before:

::

    request -> rounded up -> its bin, and upwards -> the smallest chunk that fits, of equal ones the lowest address
    nothing fits in any bin -> release wholly free regions, extend the pool -> search again
    the chunk taken:  | padding | allocated | rest |       padding and rest stay free where they are split off

The chunk taken is always the one in the events; chunks that the rule takes earlier are counted in `passed_over`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.diagnosis import failure_sentences, model_to_diagnose
from bfcviz.analysis.failures import diagnose
from bfcviz.analysis.heap_settings import Family, heap_settings_of
from bfcviz.analysis.short_names import path_end, short_name
from bfcviz.events.label_table import Labels
from bfcviz.events.marks import mark_value, value_text
from bfcviz.events.origin import holds_only_states, recorded_failures
from bfcviz.events.schema import NUM_BINS, Events, Flag, Kind, bin_numbers, bin_of
from bfcviz.events.schema import taken as picked
from bfcviz.events.trace import Trace
from bfcviz.formats import tensorflow
from bfcviz.model import array_access
from bfcviz.model.model import Model
from bfcviz.units import counted, format_bytes, short_address

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
    """The events of one request, by which each of them is explained; each sequence is in the order of writing.

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
        """Index of its pool."""
        return int(self.end["pool"])

    @property
    def taken(self) -> int:
        """Handle of the chunk that it took, before the split."""
        return int((*self.splits, self.end)[0]["chunk"])

    @property
    def taken_at(self) -> int:
        """The step just before that chunk was split or allocated."""
        return int((*self.splits, self.end)[0]["seq"])

    @property
    def begin(self) -> int:
        """The step just before the first of its events."""
        return int((*self.releases, *self.extends, *self.splits, self.end)[0]["seq"])


def operation_of_event(trace: Trace, event: int) -> Operation | None:
    """The request to which an event belongs, to explain it with the others; None where it belongs to none.

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
    if event["kind"] in (Kind.ALLOCATE, Kind.OOM):
        return event
    if event["kind"] not in _ON_THE_WAY:
        return None
    for later in _events_after(trace, event):
        if later["kind"] in (Kind.ALLOCATE, Kind.OOM):
            found: np.void = later
            return found
        if later["kind"] not in _ON_THE_WAY:
            return None
    return None


def _events_after(trace: Trace, event: np.void) -> Events:
    """The next events of the same pool, without marks."""
    first = int(event["seq"]) + 1
    return _events_of_same_pool(trace.read(first, min(len(trace), first + _REACH)), event)


def _events_of_same_pool(events: Events, event: np.void) -> Events:
    mine: Events = events[(events["pool"] == event["pool"]) & (events["kind"] != Kind.MARK)]
    return mine


def _splits_of_operation(before: Events, end: np.void) -> list[np.void]:
    """The SPLITs that led to an ALLOCATE, the last one first."""
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
    """The EXTENDs for this request and the RELEASEs before them, the last one first."""
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
    """Why a chunk was split or not."""

    EXACT = "exact"  # not split: nothing is left over
    HALVES = "halves"  # split: it is at least twice the rounded request
    WASTE = "waste"  # split: the rest reaches the waste limit
    WHOLE = "whole"  # not split: the rest is less than both
    NOT_SHOWN = "not shown"  # the rule says otherwise, or needs options that the trace does not have


@dataclass(frozen=True)
class Taken:
    """The chunk that a search took, in bytes.

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
    """The search behind an event: what one request searched, and what it took.

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
    """Repeat the search of the operation to which this event belongs.

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
    rows = _chunk_rows_at(model, operation.begin)
    free = picked(rows, rows["state"] == array_access.CHUNK_FREE)
    max_waste = _max_waste(trace, operation.pool)
    taken = None
    if operation.end["kind"] == Kind.ALLOCATE:
        if operation.taken_at != operation.begin:
            rows = _chunk_rows_at(model, operation.taken_at)
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


def _chunk_rows_at(model: Model, step: int) -> NDArray[np.void]:
    """Rows of the chunks at a step, in no order: faster than `chunks()`, whose cached array stays valid."""
    with model.visiting(step):
        return model.table.chunk_rows()


def _taken_chunk(rows: NDArray[np.void], operation: Operation, rounded: int, max_waste: int | None) -> Taken:
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
    over = usable - rounded
    wasteful = max_waste is not None and over >= max_waste
    if split:
        return Cut.HALVES if over >= rounded else Cut.WASTE if wasteful else Cut.NOT_SHOWN
    if over <= 0:
        return Cut.EXACT
    return Cut.NOT_SHOWN if tensorflow.splits(usable, rounded, max_waste) else Cut.WHOLE


def _passed_over(fits: NDArray[np.void], taken: Taken | None) -> int:
    """Number of chunks that fit and come before the one taken; all where none was taken."""
    if taken is None:
        return len(fits)
    smaller = fits["size"] < taken.size
    lower = (fits["size"] == taken.size) & (fits["address"] < taken.address)
    return int(np.count_nonzero(smaller | lower))


def _max_waste(trace: Trace, pool: int) -> int | None:
    """The rest from which on a chunk is split, by the heap's options in the trace; None: unknown."""
    heap = trace.origin.pools[pool]
    fraction = heap.options.get("fragmentation_fraction", 0.0)
    if not heap.options or not isinstance(fraction, int | float):
        return None
    if heap.limit is None and fraction:
        return None
    return tensorflow.max_waste(heap.limit or 0, fraction)


def _is_known(trace: Trace, operation: Operation) -> bool:
    """Whether the search follows from the events: the heap has our rule, and the chunks are those it searched."""
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
    """Two short sentences: where the search looked and what it took, and why that chunk was split or not.

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
    """Why the search took no chunk of these bins."""
    if not chunks:
        return f"{bins} {'have' if bins.startswith('bins') else 'has'} no free chunk"
    fitting = chunks - search.too_small
    if chunks == 1:
        return f"the only free chunk in {bins} {'was not taken' if fitting else 'is too small'}"
    if fitting:
        return f"none of the {chunks:,} free chunks in {bins} was taken"
    return f"all {chunks:,} free chunks in {bins} are too small"


def _growth_for_search_words(search: EventSearch) -> str:
    """How the heap made room when no chunk was taken, and the result."""
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


# ------------------------------------------------------------------------------
# One event with its context: the state before it, and the events after it.


@dataclass(frozen=True)
class EventContext:
    """The event with index `event`; `model` is of its pool and may stand at any step."""

    trace: Trace
    event: int
    record: np.void
    model: Model

    def number(self, field: str) -> int:
        """A field of the event as a Python integer."""
        return int(self.record[field])

    def chunk(self, handle: int, event: int | None = None) -> np.void:
        """The row (CHUNK_ROW) of the chunk with this handle, just before the event (or before another one)."""
        rows = _chunk_rows_at(self.model, self.event if event is None else event)
        row: np.void = rows[np.flatnonzero(rows["handle"] == handle)[0]]
        return row

    def pool_bytes(self) -> int:
        """Bytes of the pool just before the event."""
        with self.model.visiting(self.event):
            return self.model.table.pool_bytes

    def name(self, label: int) -> str:
        """The name of a label, cut to 80 characters; `an unnamed request` for label 0."""
        return short_name(self.trace, label)


# ------------------------------------------------------------------------------
# A sentence about any event: what happened, to which memory, for which label, and what stays free.


def explain_event(trace: Trace, event: int, model: Model | None = None) -> str:
    """Explain one event in a sentence or two.

    A SPLIT, an ALLOCATE and a FREE are explained with the other events of the same operation. Where the file has no
    history, the events that build its state are not explained as if they had happened.

    Args:
        trace: the events.
        event: its index (its `seq`), 0..len(trace) - 1.
        model: a model of this trace and pool to use; it returns to its step.

    Raises:
        TraceError: the trace has no such event, or it or those before it contradict each other.
    """
    record = trace.read(event, event + 1)[0]
    model = model_to_diagnose(trace, int(record["pool"]), model)
    with model.visiting(event + 1):  # raises where the event contradicts the state before it
        pass
    kind, context = Kind(int(record["kind"])), EventContext(trace, event, record, model)
    if kind in _BUILDS_STATE and holds_only_states(trace.origin.details):
        return _explain_state(context, kind)
    return _EXPLAIN[kind](context)


def _event_chunk_place(chunk: np.void) -> str:
    return f"{short_address(int(chunk['address']))} ({format_bytes(int(chunk['size']))})"


def _explain_extend(context: EventContext) -> str:
    size, slot = context.number("size"), context.number("region")
    where = short_address(context.number("address"))
    if context.number("flags") & Flag.GREW:
        what = f"extended region {slot} by {format_bytes(size)} at {where}"
    else:
        what = f"granted region {slot}, {format_bytes(size)} at {where}"
    requested = context.number("requested")
    reason = f" for a request of {format_bytes(requested)}" if requested else ""
    before = context.pool_bytes()
    return f"The sub-allocator {what}{reason}: the pool grew {_pool_change_words(context, before, before + size)}."


def _explain_release(context: EventContext) -> str:
    size, before = context.number("size"), context.pool_bytes()
    where = f"{format_bytes(size)} at {short_address(context.number('address'))}"
    return (
        f"The heap released free region {context.number('region')}, {where}, to the sub-allocator: the pool shrank "
        f"{_pool_change_words(context, before, before - size)}."
    )


def _pool_change_words(context: EventContext, before: int, after: int) -> str:
    limit = context.trace.origin.pools[context.number("pool")].limit
    of_limit = "" if limit is None else f" of a limit of {format_bytes(limit)}"
    return f"from {format_bytes(before)} to {format_bytes(after)}{of_limit}"


def _explain_split(context: EventContext) -> str:
    parent = context.chunk(context.number("chunk"))
    size = context.number("size")
    rest, front = format_bytes(size), format_bytes(int(parent["size"]) - size)
    padding = bool(context.number("flags") & Flag.PADDING)
    operation = operation_of_event(context.trace, context.event)
    name = None if operation is None else context.name(int(operation.end["label"]))
    if not padding:
        stays = "stay in the chunk" if name is None else f"for {name}"
        result = f"{front} {stays}, {rest} stay free in bin {bin_of(size)}"
    elif operation is None:
        result = f"{front} of alignment padding stay free at its start, {rest} follow"
    else:
        taken = int(operation.end["size"])
        part = rest if taken == size else f"{format_bytes(taken)} of the next {rest}"
        result = f"{front} of alignment padding stay free at its start, {part} for {name}"
    return f"Chunk {_event_chunk_place(parent)} was split: {result}."


def _explain_allocate(context: EventContext) -> str:
    size, requested = context.number("size"), context.number("requested")
    label = context.number("label")
    name = context.name(label) if label else "An unnamed request"
    waste = f", {format_bytes(size - requested)} wasted" if size > requested else ""
    return f"{name} allocated {format_bytes(requested)}: {_allocation_source_words(context)}{waste}."


def _allocation_source_words(context: EventContext) -> str:
    """The free chunk that an ALLOCATE took, whole or split."""
    whole, left = context.number("size"), []
    operation = operation_of_event(context.trace, context.event)
    for event in () if operation is None else operation.splits:
        rest = int(event["size"])
        if int(event["flags"]) & Flag.PADDING:
            padding = int(context.chunk(int(event["chunk"]), int(event["seq"]))["size"]) - rest
            whole += padding
            left.append(f"{format_bytes(padding)} of alignment padding stay free before it")
        else:
            whole += rest
            left.append(f"{format_bytes(rest)} stay free in bin {bin_of(rest)}")
    if not left:
        return f"took the whole free chunk {_event_chunk_place(context.record)}"
    return f"took {_event_chunk_place(context.record)} from a free chunk of {format_bytes(whole)}, {', '.join(left)}"


def _explain_free(context: EventContext) -> str:
    size = context.number("size")
    since = context.event - _steps_in_use(context.record) + 1
    name = context.name(context.number("label"))
    freed = f"Chunk {_event_chunk_place(context.record)} of {name}, in use since step {since}, was freed"
    if context.number("flags") & Flag.HELD:
        return f"{freed}: it cannot merge until its timestamp is safe."
    merged_size, sides = _size_after_merges(context)
    if not sides:
        return f"{freed}: it stays free in bin {bin_of(size)}."
    neighbours = f"chunk{'s' * (len(sides) > 1)} {' and '.join(sides)} it"
    return (
        f"{freed}: it merged with the free {neighbours} into a free chunk of {format_bytes(merged_size)} in bin "
        f"{bin_of(merged_size)}."
    )


def _size_after_merges(context: EventContext) -> tuple[int, list[str]]:
    """The size after the MERGEs that follow this FREE, and the sides on which the neighbours lay."""
    size, chunk = context.number("size"), context.number("chunk")
    sides = []
    for event in _events_after(context.trace, context.record):
        if event["kind"] != Kind.MERGE or chunk not in (event["chunk"], event["other"]):
            break
        if event["other"] == chunk:
            size += int(context.chunk(int(event["chunk"]), int(event["seq"]))["size"])
            chunk = int(event["chunk"])
            sides.append("before")
        else:
            size += int(event["size"])
            sides.append("after")
    return size, sides


def _explain_merge(context: EventContext) -> str:
    survivor = context.chunk(context.number("chunk"))
    size = int(survivor["size"]) + context.number("size")
    return (
        f"Free chunk {_event_chunk_place(survivor)} merged with the free chunk after it, "
        f"{_event_chunk_place(context.record)}, into a free chunk of {format_bytes(size)} in bin {bin_of(size)}."
    )


def _explain_oom(context: EventContext) -> str:
    found = diagnose(context.trace, context.event, context.model, runs=0)
    return failure_sentences(found, context.name)


def _explain_mark(context: EventContext) -> str:
    label = context.number("label")
    name = f"Mark: {context.name(label)}" if label else "An unnamed mark"
    value = value_text(mark_value(context.trace.labels, label, context.number("size")))
    return f"{name} ({value})." if value else f"{name}."


_BUILDS_STATE = (Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE)


def _explain_state(context: EventContext, kind: Kind) -> str:
    """What an event adds to the state of a file without history."""
    place = _event_chunk_place(context.record)
    if kind is Kind.EXTEND:
        what = f"The state has region {context.number('region')}, {place}"
    elif kind is Kind.SPLIT:
        parent = context.chunk(context.number("chunk"))
        border = int(parent["address"]) + int(parent["size"]) - context.number("size")
        what = f"In the state, a chunk ends and another begins at {short_address(border)}"
    else:
        label = context.number("label")
        owner = f" of {context.name(label)}" if label else ""
        what = f"The state has chunk {place}{owner} in use"
    return (
        f"{what}. The events up to this step only build the state; the file does not say in which order it came "
        "about."
    )


_EXPLAIN = {
    Kind.EXTEND: _explain_extend,
    Kind.SPLIT: _explain_split,
    Kind.ALLOCATE: _explain_allocate,
    Kind.FREE: _explain_free,
    Kind.MERGE: _explain_merge,
    Kind.RELEASE: _explain_release,
    Kind.OOM: _explain_oom,
    Kind.MARK: _explain_mark,
}


# ------------------------------------------------------------------------------
# What an event did, in a few words from its record alone: one cell of a list. `event` explains it in full.

Fields = Mapping[str, Any]
"""The fields of an event by name, as Python numbers."""


def short_words(event: Fields, labels: Labels) -> str:
    """A few words, such as `from bin 5` for an ALLOCATE; sizes and addresses have cells of their own."""
    region, number, flags = event["region"], event["bin"], event["flags"]
    match Kind(event["kind"]):
        case Kind.EXTEND:
            words = f"region {region} extended" if flags & Flag.GREW else f"new region {region}"
        case Kind.SPLIT:
            words = "padding split off" if flags & Flag.PADDING else f"split off, into bin {number}"
        case Kind.ALLOCATE:
            waste = max(event["size"] - event["requested"], 0)
            words = f"from bin {number}" + (f", {format_bytes(waste)} wasted" if waste else "")
        case Kind.FREE:
            used = f"in use for {counted(_steps_in_use(event), 'step')}"
            words = f"{used}, merge deferred" if flags & Flag.HELD else used
        case Kind.MERGE:
            words = f"merged, now in bin {number}"
        case Kind.RELEASE:
            words = f"region {region} released"
        case Kind.OOM:
            words = f"free {format_bytes(event['address'])}, largest {format_bytes(event['size'])}"
        case Kind.MARK:
            value = value_text(mark_value(labels, event["label"], event["size"]))
            words = value and f"value {value}"
    return words


def _steps_in_use(freed: Any) -> int:
    """How many steps the chunk of a FREE was in use."""
    return (int(freed["seq"]) - int(freed["other"])) & 0xFFFFFFFF


# ------------------------------------------------------------------------------
# What led to a step, in one short line from the event's record: what happened, to which label, how many bytes.

_LONGEST: Final = 52  # characters of a label


def step_line(trace: Trace, step: int, pool: int) -> str:
    """The event that led to a step, such as `forward allocated 12.0 MiB, 4.0 KiB wasted`."""
    if len(trace) == 0:
        return "this trace holds no events"
    if 0 < step == trace.first:
        return "the first step that is kept"
    if step == 0:
        return "before the first event"
    record = trace.read(step - 1, step)[0]
    kind = Kind(int(record["kind"]))
    if kind is not Kind.OOM and holds_only_states(trace.origin.details):
        return "builds the state of the heap"
    text = _event_line(trace, record, kind)
    other = int(record["pool"])
    return text if other == pool else f"{text} (in {path_end(trace.origin.pools[other].name, _LONGEST)})"


def _event_line(trace: Trace, record: np.void, kind: Kind) -> str:
    size, requested = int(record["size"]), int(record["requested"])
    amount = format_bytes(size)
    match kind:
        case Kind.EXTEND:
            what = "grew" if int(record["flags"]) & Flag.GREW else "was added"
            line = f"region {record['region']} {what}: the pool grew by {amount}"
        case Kind.RELEASE:
            line = f"region {record['region']} released: the pool shrank by {amount}"
        case Kind.SPLIT:
            operation = operation_of_event(trace, int(record["seq"]))
            whom = "" if operation is None else f" for {_event_label_name(trace, operation.end)}"
            is_padding = int(record["flags"]) & Flag.PADDING
            line = f"free chunk split{whom}: {'alignment padding stays' if is_padding else f'{amount} stay'} free"
        case Kind.ALLOCATE:
            waste = f", {format_bytes(size - requested)} wasted" if size > requested else ""
            line = f"{_event_label_name(trace, record)} allocated {format_bytes(requested)}{waste}"
        case Kind.FREE:
            after = counted(_steps_in_use(record), "step")
            line = f"{_event_label_name(trace, record)} freed {amount} after {after}"
        case Kind.MERGE:
            line = f"free chunk merged with the {amount} after it"
        case Kind.OOM:
            line = f"{_event_label_name(trace, record)} failed to allocate {format_bytes(requested)}"
        case Kind.MARK:
            value = value_text(mark_value(trace.labels, int(record["label"]), size))
            name = _event_label_name(trace, record) if record["label"] else "without a name"
            line = f"mark {name} ({value})" if value else f"mark {name}"
    return line


def _event_label_name(trace: Trace, record: np.void) -> str:
    return path_end(trace.labels.name(int(record["label"])), _LONGEST) or "an unnamed request"


def explain_step(model: Model) -> str:
    """The event before the model's step as a sentence."""
    if len(model.trace) == 0:
        return "this trace holds no events."
    if 0 < model.step == model.trace.first:
        return "the first step that is kept: the event before it was dropped."
    if model.step == 0:
        return "before the first event: the heap has no region yet. Press forward."
    return explain_event(model.trace, model.step - 1, model)
