"""Would a request of this size fit now? The free chunks that would take it; else the nearest miss.

::

    [ free 4 | a 1 | free 3 | b 9 | free 6 ]    5: the last chunk takes it
                                                8: a is in the way; without it 8 are free in one chunk
"""

from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.diagnosis import Diagnosis, Verdict, model_to_diagnose, undecided_diagnosis
from bfcviz.analysis.failures import RUNS, judged_diagnosis
from bfcviz.analysis.heap_settings import Family, HeapSettings
from bfcviz.analysis.pinned_runs import Run, best_runs
from bfcviz.analysis.short_names import cut
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import RecordedFailure
from bfcviz.events.structured_arrays import taken
from bfcviz.events.trace import Trace
from bfcviz.formats.torch import SMALL, SMALL_SEGMENT
from bfcviz.model.find_steps import failure_before, recorded_failures_by_event
from bfcviz.model.model import Model
from bfcviz.stack_frames import place_in_code
from bfcviz.units import counted, format_bytes, short_address


@dataclass(frozen=True)
class Request:
    """A request to ask whether it would fit.

    Attributes:
        size: bytes.
        label: number of its label; 0 for a question.
        failed: it failed with the event before the model's step.
    """

    size: int
    label: int = 0
    failed: bool = False


@dataclass(frozen=True, eq=False)
class Fit:
    """Whether a request would fit, at one step of a heap.

    Attributes:
        found: the numbers of the heap, and the verdict.
        failed: the request failed with the event before the step: the pool did not grow for it.
        takers: the free chunks that are large enough, of CHUNK; the first is the best fit, which the heap takes.
        miss: if nothing is large enough: the neighbouring chunks that need the fewest bytes freed; None where no region
            holds the request.
        blockers: the chunks in use of the miss, of CHUNK; the largest first.
    """

    found: Diagnosis
    failed: bool
    takers: NDArray[np.void]
    miss: Run | None
    blockers: NDArray[np.void]

    @property
    def is_known(self) -> bool:
        """Whether a fit can be told: the file says what was free."""
        return self.found.knows("largest_free_chunk")

    @property
    def fits(self) -> bool:
        """Whether a request would fit: a free chunk would take it."""
        return len(self.takers) > 0

    @property
    def grows(self) -> bool:
        """Whether a request would fit by growth: no free chunk is large enough, but the limit lets the pool grow.

        A heap with garbage collection first releases its wholly free regions.
        """
        found = self.found
        room = found.room_after_release
        if self.fits or self.failed or room is None or found.verdict is Verdict.ABOVE_LIMIT:
            return False
        return room >= found.growth

    @property
    def depends_on_limit(self) -> bool:
        """Whether a fit is unknown: no free chunk is large enough, and how far the pool may grow is not told."""
        found = self.found
        asked = self.is_known and not self.fits and not self.failed
        return asked and found.bytes_limit is None and found.deciding_limit is not None and found.room is None


_KNOWN: Final[WeakKeyDictionary[Model, tuple[tuple[int, int], Fit]]] = WeakKeyDictionary()
"""Model -> the step and size of its last question, and the answer: several views ask the same."""


def request_at(model: Model, wanted: int | None) -> Request | None:
    """The request of `wanted` bytes that would fit or not; else the one that failed just before the step."""
    if wanted:
        return Request(wanted, failed=_has_failed_to_fit(model, wanted))
    event = failure_before(model)
    if event is None or not event["requested"]:
        return None
    return Request(int(event["requested"]), int(event["label"]), failed=True)


def fit_of(model: Model, size: int) -> Fit:
    """Whether a request of `size` bytes would fit at the model's step, by the heap's own rule: the best fit.

    The answer ignores alignments, streams and timestamps, which can exclude a free chunk.

    Raises:
        ValueError: the size is not a number of bytes that a request can have.
    """
    key = (model.step, size)
    known = _KNOWN.get(model)
    if known is None or known[0] != key:
        _KNOWN[model] = known = (key, _computed_fit(model, size))
    return known[1]


def _computed_fit(model: Model, size: int) -> Fit:
    failed = _has_failed_to_fit(model, size)
    recorded = recorded_failures_by_event(model.trace).get(model.step - 1) if failed else None
    found = question(model, size, recorded)
    chunks = model.chunks()
    nothing = chunks[:0]
    if not found.knows("largest_free_chunk"):
        return Fit(found, failed, nothing, None, nothing)
    free = usable_chunks(model, found.rounded, found.settings) if not failed else ~chunks["in_use"]
    large = np.flatnonzero(free & (chunks["size"] >= found.rounded))
    large = large[np.argsort(chunks["size"][large], kind="stable")]  # of equal ones the lowest address
    takers = taken(chunks, large)
    runs = [] if len(takers) else best_runs(chunks, found.rounded, 1)
    if not runs:
        return Fit(found, failed, takers, None, nothing)
    inside = chunks[runs[0].first : runs[0].stop]
    used = np.flatnonzero(inside["in_use"])
    order = used[np.argsort(~inside["size"][used], kind="stable")]
    return Fit(found, failed, takers, runs[0], taken(inside, order))


def _has_failed_to_fit(model: Model, size: int) -> bool:
    """Whether the event before the model's step is the failure of a request of this size to fit."""
    event = failure_before(model)
    return event is not None and int(event["requested"]) == size


# ------------------------------------------------------------------------------
# Whether a request would fit, as one short sentence.

_NAMED: Final = 2  # names of one sentence


def fit_sentence(answer: Fit, labels: Labels) -> str:
    """Whether a request fits, as a sentence: what takes it; or what to free first, and how much fits then."""
    found = answer.found
    size = format_bytes(found.requested)
    if not answer.is_known:
        return f"{size} may fit or not: the file does not say what was free."
    if answer.fits:
        return f"{size} would fit: {_fitting_chunks_text(answer)}."
    if answer.grows:
        return f"{size} would fit if the pool grows: {_fit_by_growth_text(answer)}."
    if answer.depends_on_limit:
        return f"{size} would fit only if the pool may have {format_bytes(found.deciding_limit or 0)}."
    return f"{size} {_nearest_miss_text(answer, labels)}."


def _nearest_miss_text(answer: Fit, labels: Labels) -> str:
    """Why a request does not fit, and what to free."""
    found, miss = answer.found, answer.miss
    verb = "did not fit" if answer.failed else "would not fit"
    if found.verdict is Verdict.ABOVE_LIMIT:
        return f"can never fit: the limit is {format_bytes(found.bytes_limit or 0)}"
    if miss is None:
        return f"{verb}: no region is so large, the largest has {format_bytes(found.regions.largest)}"
    if not len(answer.blockers):
        return f"{verb}: neighbouring free chunks of {format_bytes(miss.size)} have not merged"
    return f"{verb}: free {_fit_blockers_text(answer, labels)}: then {format_bytes(miss.size)} fit"


def blocker_name(chunk: np.void, labels: Labels) -> str:
    """The name of a chunk in the way of a fit: its label, or the place in the code that allocated it."""
    label = labels[int(chunk["label"])]
    return cut(label.name) or cut(place_in_code(label.details.get("stack", ""))) or "unnamed memory"


def _fitting_chunks_text(answer: Fit) -> str:
    best = answer.takers[0]
    where = f"{short_address(int(best['address']))} ({format_bytes(int(best['size']))})"
    others = len(answer.takers) - 1
    return f"the best fit is {where}" + (f", {others:,} more would take it" if others else "")


def _fit_by_growth_text(answer: Fit) -> str:
    room, free = answer.found.room or 0, answer.found.regions.free_bytes
    if room >= answer.found.rounded:
        return f"no free chunk is large enough, the limit leaves {format_bytes(room)}"
    return (
        f"it first releases its free regions, {format_bytes(free)}, and the limit leaves {format_bytes(room)}"
    )


@dataclass(frozen=True, eq=False)
class FitBlockers:
    """The chunks of one name, such as a line of code, that are in the way of a fit.

    Attributes:
        name: the name.
        bytes, chunks: all of them.
        largest: the largest of them, of CHUNK.
    """

    name: str
    bytes: int
    chunks: int
    largest: np.void


def in_the_way(answer: Fit, labels: Labels) -> list[FitBlockers]:
    """The chunks in the way of a fit by name, those with the most bytes first."""
    named: dict[str, list[np.void]] = {}
    for chunk in answer.blockers:  # the largest first
        named.setdefault(blocker_name(chunk, labels), []).append(chunk)
    found = [
        FitBlockers(name, sum(int(chunk["size"]) for chunk in chunks), len(chunks), chunks[0])
        for name, chunks in named.items()
    ]
    return sorted(found, key=lambda each: -each.bytes)


def _fit_blockers_text(answer: Fit, labels: Labels) -> str:
    """The names of what is in the way of a fit with their bytes, those with the most bytes first."""
    ranked = in_the_way(answer, labels)
    named = []
    for each in ranked[:_NAMED]:
        count = f" in {counted(each.chunks, 'chunk')}" if each.chunks > 1 else ""
        named.append(f"{each.name} ({format_bytes(each.bytes)}{count})")
    if rest := ranked[_NAMED:]:
        others = counted(sum(each.chunks for each in rest), "other chunk")
        named.append(f"{others} ({format_bytes(sum(each.bytes for each in rest))})")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


# ------------------------------------------------------------------------------
# The diagnosis of a request that was not made: whether it would fit, and if not, why.


def would_fit(  # noqa: PLR0913  the moment, and the request
    trace: Trace,
    step: int,
    size: int,
    model: Model | None = None,
    *,
    pool: int = 0,
    limit: int | None = None,
) -> Diagnosis:
    """Find out whether a request would fit into the heap at a step, and if not, why.

    Args:
        trace: the events.
        step: the state after that many events.
        size: bytes of the request.
        model: a model of this trace and pool to use; it returns to its step.
        pool: index of the heap.
        limit: the most bytes that the pool may have; None: as the file says.

    Raises:
        TraceError: the trace has no such step or pool.
        ValueError: the size is not a number of bytes that a request can have.
    """
    with model_to_diagnose(trace, pool, model).visiting(step) as there:
        return judged_diagnosis(there, question(there, size, limit=limit), RUNS)


def question(
    model: Model, size: int, recorded: RecordedFailure | None = None, limit: int | None = None
) -> Diagnosis:
    """Whether a request would fit: verdict and numbers of `would_fit` at the model's step, without runs: fast.

    Args:
        model: stands at the step.
        size: bytes of the request.
        recorded: what the file says of the request, if it failed.
        limit: the most bytes that the pool may have; None: as the file says.

    Raises:
        ValueError: the size is not a number of bytes that a request can have.
    """
    if not 0 < size < 1 << 62:
        raise ValueError(f"size={size} is not a request: give a number of bytes from 1 to 2^62")
    found = undecided_diagnosis(model, size, recorded or RecordedFailure(model.step))
    if limit is not None:
        found = replace(found, bytes_limit=limit, limit_asked=True)
    return judged_diagnosis(model, _with_usable(model, found), 0)


# ------------------------------------------------------------------------------
# Which free chunks the rules of the allocator allow for a request.

_APART: Final = (Family.TORCH, Family.CUPY)
"""Allocators that keep the free memory of each stream apart."""

_private_pools: WeakKeyDictionary[Trace, dict[int, str]] = WeakKeyDictionary()
"""The private pools of labels that were looked up."""


def usable_chunks(model: Model, rounded: int, settings: HeapSettings) -> NDArray[np.bool_]:
    """Which chunks at the model's step are free and would fit a request, as far as the allocator's rules go.

    PyTorch and CuPy keep free memory per stream, PyTorch also per private pool and apart for small requests. A question
    is one of the stream and pool that hold most. An empty region is free for any stream: it can be given back.
    """
    chunks = model.chunks()
    free = ~chunks["in_use"]
    if settings.family not in _APART or not len(chunks):
        return free
    _, regions = np.unique(chunks["region"], return_inverse=True)
    used = np.flatnonzero(chunks["in_use"])
    held = np.bincount(regions[used], minlength=int(regions.max()) + 1)
    owners = np.full(len(held), -1, np.int64)
    which, first = np.unique(regions[used], return_index=True)
    owners[which] = _chunk_owner_numbers(
        model.trace, chunks[used[first]], is_torch=settings.family is Family.TORCH
    )
    sums = np.bincount(owners[regions[used]], chunks["size"][used].astype(np.float64), minlength=1)
    mine = (owners < 0) | (owners == int(sums.argmax()))
    if settings.family is Family.TORCH:
        whole = np.bincount(regions, chunks["size"].astype(np.float64))
        large = np.bincount(regions, chunks["in_use"] & (chunks["requested"] > SMALL)) > 0
        is_small = np.where(held > 0, ~large, whole == SMALL_SEGMENT)
        mine &= is_small == (rounded <= SMALL)
    found: NDArray[np.bool_] = free & mine[regions]
    return found


def _chunk_owner_numbers(trace: Trace, chunks: NDArray[np.void], *, is_torch: bool) -> NDArray[np.int64]:
    """To tell what would fit, a number for the stream and the private pool of each chunk."""
    pools = _private_pools.setdefault(trace, {})
    if is_torch:
        for label in set(chunks["label"].tolist()) - pools.keys():
            pools[label] = trace.labels[label].details.get("private_pool", "")
    keys = [(stream, pools.get(label, "")) for stream, label in chunks[["stream", "label"]].tolist()]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)


def _with_usable(model: Model, found: Diagnosis) -> Diagnosis:
    """The answer whether a request would fit, with the largest free chunk that the allocator's rules allow."""
    settings = found.settings
    if not (settings.family in _APART or found.releases_first) or not found.knows("largest_free_chunk"):
        return found
    chunks, mine = model.chunks(), usable_chunks(model, found.rounded, settings)
    is_held = np.isin(chunks["region"], np.unique(chunks["region"][chunks["in_use"]]))
    if found.releases_first:
        mine &= is_held
    sizes = np.unique(chunks["size"][mine]).tolist()
    if settings.family is Family.TORCH:
        serving = [size for size in sizes if settings.torch.serves(found.rounded, size)]
        sizes = serving or [size for size in sizes if size < found.rounded]
    tail = 0
    if settings.family is Family.TORCH and settings.torch.expandable and len(chunks):
        is_last = np.append(chunks["region"][1:] != chunks["region"][:-1], True)
        tail = int(chunks["size"][mine & is_last & is_held].max(initial=0))
    return replace(found, usable_chunk=max(sizes, default=0), tail=tail)
