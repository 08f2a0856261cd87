"""Would a request of this size fit now? The free chunks that would take it; else the nearest miss.

::

    [ free 4 | a 1 | free 3 | b 9 | free 6 ]    5: the last chunk takes it
                                                8: a is in the way; without it 8 are free in one chunk
"""

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.diagnosis import Diagnosis, Run, Verdict, best_runs
from bfcviz.analysis.short_names import counted, cut, short_address
from bfcviz.analysis.why import question, usable_chunks
from bfcviz.events.labels import Labels
from bfcviz.events.origin import RecordedFailure, recorded_failures
from bfcviz.events.row_copy import taken
from bfcviz.events.schema import Kind
from bfcviz.model.grouping import place_in_code
from bfcviz.model.model import Model
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# Would a request of this size fit now? The free chunks that would take it; else the nearest miss.


@dataclass(frozen=True)
class Request:
    """A request to ask about.

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
        """Whether the file says what was free."""
        return self.found.knows("largest_free_chunk")

    @property
    def fits(self) -> bool:
        """Whether a free chunk would take the request."""
        return len(self.takers) > 0

    @property
    def grows(self) -> bool:
        """Whether no free chunk is large enough, but the limit lets the pool grow by the request.

        A heap with garbage collection first releases its wholly free regions.
        """
        found = self.found
        room = found.room_after_release
        if self.fits or self.failed or room is None or found.verdict is Verdict.ABOVE_LIMIT:
            return False
        return room >= found.growth

    @property
    def depends_on_limit(self) -> bool:
        """Whether no free chunk is large enough, and the file does not tell how far the pool may grow."""
        found = self.found
        asked = self.is_known and not self.fits and not self.failed
        return asked and found.bytes_limit is None and found.deciding_limit is not None and found.room is None


_KNOWN: Final[WeakKeyDictionary[Model, tuple[tuple[int, int], Fit]]] = WeakKeyDictionary()
"""Model -> the step and size of its last question, and the answer: several views ask the same."""


def request_at(model: Model, wanted: int | None) -> Request | None:
    """The request of `wanted` bytes; without it the one that failed with the event before the model's step, if any."""
    if wanted:
        return Request(wanted, failed=_has_failed_to_fit(model, wanted))
    if model.step <= model.trace.first:
        return None
    event = model.trace.read(model.step - 1, model.step)[0]
    if event["kind"] != Kind.OOM or event["pool"] != model.pool or not event["requested"]:
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
    found = question(model, size, _recorded_failure_to_fit(model) if failed else None)
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
    """Whether the event before the model's step is the failure of a request of this size."""
    if model.step <= model.trace.first:
        return False
    event = model.trace.read(model.step - 1, model.step)[0]
    return bool(event["kind"] == Kind.OOM and event["pool"] == model.pool and int(event["requested"]) == size)


def _recorded_failure_to_fit(model: Model) -> RecordedFailure | None:
    """What the file says of the failure just before the model's step."""
    entries = recorded_failures(model.trace.origin.details)
    return next((each for each in entries if each.event == model.step - 1), None)


# ------------------------------------------------------------------------------
# Whether a request would fit, as one short sentence.

_NAMED: Final = 2  # names of one sentence


def fit_sentence(answer: Fit, labels: Labels) -> str:
    """What takes the request; or what must be freed first, and how much fits then."""
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
    """Why it does not fit, and what to free."""
    found, miss = answer.found, answer.miss
    verb = "did not fit" if answer.failed else "would not fit"
    if found.verdict is Verdict.ABOVE_LIMIT:
        return f"can never fit: the limit is {format_bytes(found.bytes_limit or 0)}"
    if miss is None:
        return f"{verb}: no region is so large, the largest has {format_bytes(found.regions.largest)}"
    if not len(answer.blockers):
        return f"{verb}: neighbouring free chunks of {format_bytes(miss.size)} have not merged"
    return f"{verb}: free {_fit_blockers_text(answer, labels)}: then {format_bytes(miss.size)} fit"


def chunk_name(chunk: np.void, labels: Labels) -> str:
    """The name of a chunk in use: its label, or the place in the code that allocated it."""
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
class InTheWay:
    """The chunks in the way of one name, such as a line of code.

    Attributes:
        name: the name.
        bytes, chunks: all of them.
        largest: the largest of them, of CHUNK.
    """

    name: str
    bytes: int
    chunks: int
    largest: np.void


def in_the_way(answer: Fit, labels: Labels) -> list[InTheWay]:
    """The chunks in the way by name, those with the most bytes first."""
    named: dict[str, list[np.void]] = {}
    for chunk in answer.blockers:  # the largest first
        named.setdefault(chunk_name(chunk, labels), []).append(chunk)
    found = [
        InTheWay(name, sum(int(chunk["size"]) for chunk in chunks), len(chunks), chunks[0])
        for name, chunks in named.items()
    ]
    return sorted(found, key=lambda each: -each.bytes)


def _fit_blockers_text(answer: Fit, labels: Labels) -> str:
    """The names of the blockers with their bytes, those with the most bytes first."""
    ranked = in_the_way(answer, labels)
    named = [_fit_blocker_text(each) for each in ranked[:_NAMED]]
    if rest := ranked[_NAMED:]:
        others = counted(sum(each.chunks for each in rest), "other chunk")
        named.append(f"{others} ({format_bytes(sum(each.bytes for each in rest))})")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _fit_blocker_text(each: InTheWay) -> str:
    count = f" in {counted(each.chunks, 'chunk')}" if each.chunks > 1 else ""
    return f"{each.name} ({format_bytes(each.bytes)}{count})"
