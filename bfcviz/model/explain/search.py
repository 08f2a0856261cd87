"""The search of an allocation: the bins it searched, the chunk it took, and whether that chunk was split.

No event records a search. This module repeats it, by the heap's rule, among the chunks that were free just before:

::

    request -> rounded up -> its bin, and upwards -> the smallest chunk that fits, of equal ones the lowest address
    nothing fits in any bin -> release wholly free regions, extend the pool -> search again
    the chunk taken:  | padding | allocated | rest |       padding and rest stay free where they are split off

The chunk taken is always the one in the events; chunks that the rule takes earlier are counted in `passed_over`.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin_details import holds_only_states, recorded_failures
from bfcviz.events.row_copy import taken as picked
from bfcviz.events.schema import MIN_CHUNK, NUM_BINS, Flag, Kind, bin_numbers, bin_of
from bfcviz.events.trace import Trace
from bfcviz.model.explain.failure.settings import Family, settings_of
from bfcviz.model.explain.operation import Operation, operation_of
from bfcviz.model.state import array_access
from bfcviz.model.state.model import Model

_OTHER_RULES = {Family.TORCH, Family.RMM, Family.CUPY, Family.VULKAN}
_WASTE_KEPT = 128 << 20  # TensorFlow's limit where no fragmentation_fraction is set


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
class Search:
    """The search of one request and its result.

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


def search_of(trace: Trace, event: int, model: Model | None = None) -> Search | None:
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
    operation = operation_of(trace, event)
    if operation is None or _is_tiled(trace, operation.pool) or not _is_known(trace, operation):
        return None
    if model is None or model.trace is not trace or model.pool != operation.pool:
        model = Model(trace, operation.pool)
    requested = int(operation.end["requested"])
    rounded = max(MIN_CHUNK, -(-requested // MIN_CHUNK) * MIN_CHUNK)
    rows = _chunks(model, operation.begin)
    free = picked(rows, rows["state"] == array_access.CHUNK_FREE)
    max_waste = _max_waste(trace, operation.pool)
    taken = None
    if operation.end["kind"] == Kind.ALLOCATE:
        if operation.taken_at != operation.begin:
            rows = _chunks(model, operation.taken_at)
        taken = _taken(rows, operation, rounded, max_waste)
    made_room = bool(operation.extends or operation.releases)
    first = bin_of(rounded)
    last = NUM_BINS - 1 if taken is None or made_room else max(taken.bin, first)
    numbers = bin_numbers(free["size"])
    counts = np.bincount(numbers, minlength=NUM_BINS)[first : last + 1]
    fits = free["size"] >= rounded
    return Search(
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


def _chunks(model: Model, step: int) -> NDArray[np.void]:
    """Rows of the chunks at a step, in no order: faster than `chunks()`, whose cached array stays valid."""
    with model.visiting(step):
        return model.table.chunk_rows()


def _taken(rows: NDArray[np.void], operation: Operation, rounded: int, max_waste: int | None) -> Taken:
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
        _cut(usable, rounded, split, max_waste),
    )


def _cut(usable: int, rounded: int, split: bool, max_waste: int | None) -> Cut:  # noqa: FBT001
    over = usable - rounded
    wasteful = max_waste is not None and over >= max_waste
    if split:
        return Cut.HALVES if over >= rounded else Cut.WASTE if wasteful else Cut.NOT_SHOWN
    if over <= 0:
        return Cut.EXACT
    return Cut.NOT_SHOWN if over >= rounded or wasteful else Cut.WHOLE


def _passed_over(fits: NDArray[np.void], taken: Taken | None) -> int:
    """Number of chunks that fit and come before the one taken; all where none was taken."""
    if taken is None:
        return len(fits)
    smaller = fits["size"] < taken.size
    lower = (fits["size"] == taken.size) & (fits["address"] < taken.address)
    return int(np.count_nonzero(smaller | lower))


def _max_waste(trace: Trace, pool: int) -> int | None:
    """As `AllocatorOptions.max_waste`, from the heap's options in the trace."""
    heap = trace.origin.pools[pool]
    fraction = heap.options.get("fragmentation_fraction", 0.0)
    if not heap.options or not isinstance(fraction, int | float):
        return None
    if fraction == 0:
        return _WASTE_KEPT
    return None if heap.limit is None else max(int(fraction * heap.limit), 1)


def _is_known(trace: Trace, operation: Operation) -> bool:
    """Whether the search follows from the events: the heap has our rule, and the chunks are those it searched."""
    origin = trace.origin
    if settings_of(origin, operation.pool).family in _OTHER_RULES:
        return False
    if operation.end["kind"] == Kind.ALLOCATE:
        return not holds_only_states(origin.details)
    event = int(operation.end["seq"])
    return all(each.has_heap for each in recorded_failures(origin.details) if each.event == event)


def _is_tiled(trace: Trace, pool: int) -> bool:
    """Whether the importer had only addresses, so that the free chunks are not known."""
    checks = trace.origin.details.get("checks")
    check = checks[pool] if isinstance(checks, list) and pool < len(checks) else None
    return isinstance(check, dict) and check.get("method") == "tiled"
