"""RecordingComparison: two recordings compared by totals, holders and growth, as tables, as text and as JSON values."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.leaks import growth
from bfcviz.analysis.recording_alignment import (
    AlignedBy,
    AlignedHolders,
    AlignedRecording,
    AlignedSide,
    PairedStep,
    StepAlignment,
    align,
    shared,
)
from bfcviz.analysis.short_names import shortened_name
from bfcviz.answers import AnswerTable, TableAnswer
from bfcviz.events.origin import Pool, Status, regions_known, requested_bytes_known, stated_peak
from bfcviz.events.schema import Kind
from bfcviz.events.structured_arrays import joined
from bfcviz.events.trace import Trace, event_times
from bfcviz.extras import arrow
from bfcviz.model.equal_steps import EqualSteps, equal_steps, repeated_steps
from bfcviz.model.find_steps import end_of_state, failing_pool, failures, first_failure
from bfcviz.model.fragmentation import external, internal
from bfcviz.model.grouping import UNNAMED, Path
from bfcviz.model.holders import require_chunks
from bfcviz.model.model import Model
from bfcviz.model.timelines import TIMELINE, highest_between, measured, timeline_parts
from bfcviz.terminal import escaped, printable
from bfcviz.units import counted, duration, format_bytes, signed_bytes

if TYPE_CHECKING:
    from pyarrow import Table

# ------------------------------------------------------------------------------
# Holder changes: what each holder has at a moment of one recording and at the same moment of the other.

CHANGE: Final = np.dtype(
    [
        ("moment", "<u4"),
        ("holder", "<u4"),  # row of `AlignedHolders`
        ("a_bytes", "<u8"),
        ("b_bytes", "<u8"),
        ("a_chunks", "<u8"),
        ("b_chunks", "<u8"),
        # Of the bytes that both have, those without a chunk of the same size at the same place.
        ("moved_bytes", "<u8"),
    ]
)
"""One holder at one moment; a place is the slot of a region and an offset in it, as regions lie anywhere."""

_SLOTS: Final = 1 << 16
_OFFSET_BITS: Final = np.uint64(48)


class HolderVerdict(StrEnum):
    """What happened to a holder between two compared recordings, from A to B."""

    APPEARED = "appeared"  # A never allocates for it
    VANISHED = "vanished"  # B never allocates for it
    GREW = "grew"  # more bytes in B at this moment
    SHRANK = "shrank"  # fewer
    MOVED = "moved"  # as many, some of them at another place
    SAME = "same"


def holder_changes(
    a: AlignedSide, b: AlignedSide, holders: AlignedHolders, moments: Sequence[PairedStep]
) -> NDArray[np.void]:
    """Compared holders, rows of CHANGE: at each moment every holder with bytes in A or B, largest change first.

    The models of both move.
    """
    found = [np.zeros(0, CHANGE)]
    for number, moment in enumerate(moments):
        used, places = [], []
        for side, step in ((a, moment.a), (b, moment.b)):
            with side.reading():
                side.model.seek(step)
            chunks = side.model.in_use()
            used.append(chunks)
            places.append(_compared_chunk_places(side.model, chunks))
        rows = [holders.rows(side, chunks) for side, chunks in enumerate(used)]
        found.append(_holder_changes_at_moment(number, rows, used, places, len(holders)))
    return joined(found)


def verdicts(changes: NDArray[np.void], holders: AlignedHolders) -> NDArray[np.intp]:
    """The verdict on each row of compared holders, as its index in `HolderVerdict`."""
    before, after = changes["a_bytes"], changes["b_bytes"]
    ever = holders.allocated[:, changes["holder"]]
    conditions = [~ever[0], ~ever[1], after > before, after < before, changes["moved_bytes"] > 0]
    found: NDArray[np.intp] = np.select(conditions, np.arange(5), 5).astype(np.intp)
    return found


def changes_table(
    changes: NDArray[np.void], holders: AlignedHolders, moments: Sequence[PairedStep]
) -> "Table":
    """Compared holders with the names of moments, holders and verdicts; sizes in bytes."""
    pa = arrow("a comparison of recordings")
    before, after = changes["a_bytes"].astype(np.int64), changes["b_bytes"].astype(np.int64)
    names: dict[str, tuple[NDArray[np.integer], Sequence[str]]] = {
        "moment": (changes["moment"], [moment.name for moment in moments]),
        "holder": (changes["holder"], holders.names),
        "change": (verdicts(changes, holders), list(HolderVerdict)),
    }
    columns = {
        name: pa.DictionaryArray.from_arrays(
            pa.array(numbers.astype(np.int32)), pa.array(list(texts), pa.string())
        ).cast(pa.string())
        for name, (numbers, texts) in names.items()
    }
    sizes = {name: np.ascontiguousarray(changes[name]) for name in CHANGE.names[2:]}  # type: ignore[index]
    return pa.table({**columns, "bytes_change": after - before, **sizes})


def _holder_changes_at_moment(
    moment: int,
    rows: Sequence[NDArray[np.intp]],
    chunks: Sequence[NDArray[np.void]],
    places: Sequence[NDArray[np.uint64]],
    count: int,
) -> NDArray[np.void]:
    every = np.zeros(count, CHANGE)
    every["moment"], every["holder"] = moment, np.arange(count)
    for letter, mine, used in zip("ab", rows, chunks, strict=True):
        np.add.at(every[f"{letter}_bytes"], mine, used["size"])
        every[f"{letter}_chunks"] = np.bincount(mine, minlength=count)
    first, second = shared(places[0], places[1])
    stayed = np.zeros(count, np.uint64)
    same = (rows[0][first] == rows[1][second]) & (chunks[0]["size"][first] == chunks[1]["size"][second])
    np.add.at(stayed, rows[0][first][same], chunks[0]["size"][first][same])
    before: NDArray[np.uint64] = every["a_bytes"]
    after: NDArray[np.uint64] = every["b_bytes"]
    both = np.minimum(before, after)
    every["moved_bytes"] = both - np.minimum(stayed, both)
    present = np.flatnonzero((every["a_chunks"] > 0) | (every["b_chunks"] > 0))
    difference = np.maximum(before, after) - both
    order = present[np.lexsort([~after[present], ~difference[present]])]
    found: NDArray[np.void] = every[order]
    return found


def _compared_chunk_places(model: Model, chunks: NDArray[np.void]) -> NDArray[np.uint64]:
    """The place of each chunk: its region's slot and its offset in the region, as one number."""
    base = np.zeros(_SLOTS, np.uint64)
    regions = model.regions()
    base[regions["slot"]] = regions["address"]
    slots = chunks["region"]
    found: NDArray[np.uint64] = (slots.astype(np.uint64) << _OFFSET_BITS) | (chunks["address"] - base[slots])
    return found


# ------------------------------------------------------------------------------
# Growth changes: holders that grow with every step of the program in one recording and not, or less, in the other.

_ALIKE: Final = 1.05
"""Rates within this factor are the same rate."""


class GrowthVerdict(StrEnum):
    """How a holder grows in recording B, compared with A."""

    ONLY_B = "only in B"  # every step in B, not in A
    FASTER = "faster in B"
    SAME = "the same"
    SLOWER = "slower in B"
    ONLY_A = "only in A"
    UNKNOWN = "not known"  # one of them has no equal steps to compare


@dataclass(frozen=True)
class HolderGrowth:
    """One holder that grows every step in at least one of two compared recordings.

    Attributes:
        holder: its name.
        verdict: how the recordings differ.
        a, b: bytes that it gains each step; 0: it does not grow every step; None: not known.
    """

    holder: str
    verdict: GrowthVerdict
    a: float | None
    b: float | None


@dataclass(frozen=True)
class GrowthChanges:
    """The holders that grow every step, compared between two recordings.

    Attributes:
        rows: those that grow only in B first, each by bytes a step.
        reasons: why growth is not known in A and in B; empty: it is known.
        steps: how many ends of equal steps were compared in A and in B.
        allocation: without marks: the kind of allocation that begins each of these steps; empty otherwise.
    """

    rows: Sequence[HolderGrowth]
    reasons: tuple[str, str]
    steps: tuple[int, int]
    allocation: str

    def to_arrow(self) -> "Table":
        """One row a compared holder: bytes it gains each step in A and in B, and the verdict."""
        pa = arrow("to_arrow()")
        return pa.table(
            {
                "holder": pa.array([row.holder for row in self.rows], pa.string()),
                "verdict": pa.array([str(row.verdict) for row in self.rows], pa.string()),
                "a_bytes_a_step": pa.array([row.a for row in self.rows], pa.float64()),
                "b_bytes_a_step": pa.array([row.b for row in self.rows], pa.float64()),
            }
        )


def growth_changes(
    a: AlignedSide, b: AlignedSide, holders: AlignedHolders, mark: str | None = None
) -> GrowthChanges:
    """Compare the growth of all holders in two recordings, over their equal steps; the models return.

    `mark`: name of the marks that separate steps; None: see `equal_steps`, and where neither recording has such marks
    `repeated_steps`, if the steps of both begin with the same allocation.
    """
    found = []
    for side, steps in zip((a, b), _growth_steps_to_compare(a, b, mark), strict=True):
        with side.reading():
            found.append(growth(side.model, steps, side.how))
    rates = [  # bytes a step of each holder that grows every step, by its row
        {holders.row_of(each.names[row]): each.a_step(row)[1] for row in range(each.growing)}
        for each in found
    ]
    known = [not each.steps.reason for each in found]
    rows = []
    for row in sorted(rates[0].keys() | rates[1].keys()):
        before, after = (
            rate.get(row, 0.0) if there else None for rate, there in zip(rates, known, strict=True)
        )
        rows.append(HolderGrowth(holders.names[row], _growth_rate_verdict(before, after), before, after))
    order = list(GrowthVerdict)
    rows.sort(key=lambda row: (order.index(row.verdict), -max(row.a or 0.0, row.b or 0.0)))
    reasons, ends = [each.steps.reason for each in found], [len(each.steps.ends) for each in found]
    # Without marks, the steps of both begin with the same allocation, or those of both are not known.
    return GrowthChanges(tuple(rows), (reasons[0], reasons[1]), (ends[0], ends[1]), found[0].steps.allocation)


def _growth_steps_to_compare(a: AlignedSide, b: AlignedSide, mark: str | None) -> list[EqualSteps]:
    """The steps of each recording whose growth is compared."""
    marked = []
    for side in (a, b):
        with side.reading():
            marked.append(equal_steps(side.trace, side.facts.pool, mark))
    if mark is not None or not all(each.unmarked for each in marked):
        return marked
    repeated = []
    for side in (a, b):
        with side.reading():
            repeated.append(repeated_steps(side.trace, side.facts.pool))
    one, other = repeated
    is_same = one.allocation == other.allocation and not one.reason and not other.reason
    return repeated if is_same else marked


def _growth_rate_verdict(a: float | None, b: float | None) -> GrowthVerdict:
    if a is None or b is None:
        return GrowthVerdict.UNKNOWN
    if not a or not b:
        return GrowthVerdict.ONLY_A if a else GrowthVerdict.ONLY_B
    if max(a, b) <= _ALIKE * min(a, b):
        return GrowthVerdict.SAME
    return GrowthVerdict.FASTER if b > a else GrowthVerdict.SLOWER


# ------------------------------------------------------------------------------
# The few holders that explain a difference: as deep in the tree of names as one part explains most of it.

_MOST_OF_IT: Final = 0.75
"""A part with this share of all changes below a holder stands for it."""

_CANCELS: Final = 0.5
"""Where the sum is below this share of all changes, more and less cancel out: the parts are named, not the holder."""

_NEARLY_ALL: Final = 0.9
_LEAST_SHARE: Final = 0.01
"""Of all changes: a smaller part is not drawn."""


class PeakPart(NamedTuple):
    """A part of the difference of two recordings' peaks: a holder and those below it, and how many they are."""

    holder: str
    bytes: int
    holders: int


class PeakParts(NamedTuple):
    """Parts of the difference of the peaks, the largest first, and what is left without them, in bytes."""

    named: Sequence[PeakPart]
    left: int


@dataclass
class _ComparedPartSum:
    change: int = 0
    changes: int = 0  # the sum without signs
    holders: int = 0  # with a change
    children: dict[str | None, "_ComparedPartSum"] = field(
        default_factory=lambda: defaultdict(_ComparedPartSum)
    )

    def add(self, change: int) -> None:
        self.change += change
        self.changes += abs(change)
        self.holders += bool(change)


_Part = tuple[Path, _ComparedPartSum]


def main_parts(
    paths: Sequence[Path], changes: Sequence[int], text: Callable[[Path], str], most: int = 3
) -> PeakParts:
    """The largest parts of the difference of two recordings' peaks, and what is left without them.

    Args:
        paths: of holders.
        changes: bytes in B less bytes in A, of each.
        text: gives the name of a path.
        most: parts to name.
    """
    root = _compared_holder_tree(paths, changes)
    parts = [part for name, child in root.children.items() for part in _parts_below((name,), child)]
    return _named_parts(sorted(parts, key=lambda part: -abs(part[1].change))[:most], root, text)


def spread_parts(
    paths: Sequence[Path], changes: Sequence[int], text: Callable[[Path], str], most: int
) -> PeakParts:
    """The parts of a difference for a picture, as detailed as their number allows, and what is left without them.

    The part with the largest changes is replaced by the parts below it, as long as there are at most `most`; parts with
    less than a hundredth of all changes are left out. Arguments as for `main_parts`.
    """
    root = _compared_holder_tree(paths, changes)
    parts = _compared_parts_below((), root, root.changes)[:most]
    while True:
        room = most - len(parts) + 1
        parts.sort(key=lambda part: -part[1].changes)
        below = ((part, _compared_parts_below(*part, root.changes)) for part in parts if part[1].children)
        part, smaller = next(
            (pair for pair in below if len(pair[1]) <= room and _smaller_parts_tell_all(*pair)), (None, [])
        )
        if part is None:
            return _named_parts(parts, root, text)
        parts.remove(part)
        parts += smaller


def _named_parts(parts: Sequence[_Part], root: _ComparedPartSum, text: Callable[[Path], str]) -> PeakParts:
    named = [PeakPart(text(path), node.change, node.holders) for path, node in parts if node.change]
    named.sort(key=lambda part: -abs(part.bytes))
    return PeakParts(tuple(named), root.change - sum(part.bytes for part in named))


def _smaller_parts_tell_all(part: _Part, smaller: Sequence[_Part]) -> bool:
    """Whether the parts below say nearly all that a part of the peaks' difference says."""
    return sum(node.changes for _, node in smaller) >= _NEARLY_ALL * part[1].changes > 0


def _compared_parts_below(path: Path, node: _ComparedPartSum, whole: int) -> list[_Part]:
    """The parts directly below a compared holder, and what is its own, largest first; no small ones."""
    own = _ComparedPartSum()
    own.add(node.change - sum(child.change for child in node.children.values()))
    parts: list[_Part] = [((*path, name), child) for name, child in node.children.items()]
    kept = [part for part in [*parts, (path, own)] if part[1].changes >= max(_LEAST_SHARE * whole, 1)]
    return sorted(kept, key=lambda part: -part[1].changes)


def _compared_holder_tree(paths: Sequence[Path], changes: Sequence[int]) -> _ComparedPartSum:
    root = _ComparedPartSum()
    for path, change in zip(paths, changes, strict=True):
        node = root
        node.add(change)
        for part in path if change else ():
            node = node.children[part]
            node.add(change)
    return root


def _parts_below(path: Path, node: _ComparedPartSum) -> Iterator[_Part]:
    """A compared holder, or the part below it that stands for it, or its parts where they cancel out."""
    while node.children:
        name, largest = max(node.children.items(), key=lambda item: item[1].changes)
        if largest.changes < _MOST_OF_IT * node.changes or not node.changes:
            break
        path, node = (*path, name), largest
    if node.children and abs(node.change) < _CANCELS * node.changes:
        for name, child in node.children.items():
            yield from _parts_below((*path, name), child)
        return
    yield path, node


# ------------------------------------------------------------------------------
# Totals of a recording: its peaks, its fragmentation by three names, and how often each thing happened.

POINTS: Final = 1000
"""Rows of the timeline of each recording, besides those that end at compared moments."""

BYTES, SHARE, COUNT, SECONDS = "bytes", "share", "count", "seconds"

_MEASURES: Final[dict[str, tuple[str, str]]] = {
    "peak_bytes_in_use": (BYTES, "the most bytes in use"),
    "peak_pool_bytes": (BYTES, "the most bytes of all regions"),
    "requested_at_peak": (BYTES, "requested bytes of the chunks in use at the peak"),
    "bytes_in_use_at_end": (BYTES, "bytes in use after the last event"),
    "pool_bytes_at_end": (BYTES, "bytes of all regions after the last event"),
    "external_fragmentation": (SHARE, "1 - largest free chunk / free bytes, at the peak (TensorFlow's)"),
    "worst_external_fragmentation": (SHARE, "the highest external fragmentation"),
    "peak_reserved_not_in_use": (SHARE, "1 - peak bytes in use / peak pool bytes (the ratio in papers)"),
    "internal_fragmentation": (SHARE, "1 - requested bytes / bytes in use, at the peak"),
    "failures": (COUNT, "requests that failed finally, of the first 1,000 OOM events"),
    "allocations": (COUNT, "ALLOCATE events"),
    "splits": (COUNT, "SPLIT events"),
    "merges": (COUNT, "MERGE events"),
    "extends": (COUNT, "EXTEND events: regions granted by the sub-allocator"),
    "releases": (COUNT, "RELEASE events: regions returned to the sub-allocator"),
    "seconds": (SECONDS, "from the first event to the last one"),
}
"""Measure -> its unit and its definition."""

_KINDS: Final = {
    "allocations": Kind.ALLOCATE,
    "splits": Kind.SPLIT,
    "merges": Kind.MERGE,
    "extends": Kind.EXTEND,
    "releases": Kind.RELEASE,
}
_NEEDS_REGIONS: Final = (
    "peak_pool_bytes",
    "pool_bytes_at_end",
    "external_fragmentation",
    "worst_external_fragmentation",
    "peak_reserved_not_in_use",
    "splits",
    "merges",
    "extends",
    "releases",
)
_NEEDS_REQUESTED: Final = ("requested_at_peak", "internal_fragmentation")
_NEEDS_HISTORY: Final = ("worst_external_fragmentation", "seconds", *_KINDS)


@dataclass(frozen=True)
class RecordingTotals:
    """The totals of one recording.

    Attributes:
        peak: the first step with the most bytes in use; where there is no history, the only state.
        series: of TIMELINE, over the whole recording; empty where there is no history.
        values: measure -> its value; None: not known.
    """

    peak: int
    series: NDArray[np.void]
    values: dict[str, float | None]


def recording_totals(side: AlignedSide, moments: Sequence[int]) -> RecordingTotals:
    """The totals of a recording; a row of their series ends at each of the steps `moments`, too. The model moves."""
    series = np.zeros(0, TIMELINE)
    with side.reading():
        if side.facts.only_state:
            peak = end_of_state(side.trace, side.facts.pool)
        else:
            series = _recording_series(side, moments)
            peak = _recording_peak_step(side, series)
        values = _recording_measures(side, peak, series)
    unknown = set(_unknown_measures(side))
    known = {name: None if name in unknown else values[name] for name in _MEASURES}
    return RecordingTotals(peak, series, known)


def totals_table(a: RecordingTotals, b: RecordingTotals) -> "Table":
    """The totals of two recordings, one row a measure: its value in A and B, change, unit and definition."""
    pa = arrow("a comparison of recordings")
    pairs = [(a.values[name], b.values[name]) for name in _MEASURES]
    changes = [None if old is None or new is None else new - old for old, new in pairs]
    return pa.table(
        {
            "measure": pa.array(list(_MEASURES), pa.string()),
            "unit": pa.array([unit for unit, _ in _MEASURES.values()], pa.string()),
            "a": pa.array([old for old, _ in pairs], pa.float64()),
            "b": pa.array([new for _, new in pairs], pa.float64()),
            "change": pa.array(changes, pa.float64()),
            "definition": pa.array([text for _, text in _MEASURES.values()], pa.string()),
        }
    )


def _recording_series(side: AlignedSide, moments: Sequence[int]) -> NDArray[np.void]:
    first, last = side.facts.first, side.facts.last
    side.model.seek(first)
    ends = {*timeline_parts(first, last, POINTS), *(step for step in moments if step > first)}
    return measured(side.model, sorted(ends))


def _recording_peak_step(side: AlignedSide, series: NDArray[np.void]) -> int:
    highest = series["bytes_in_use_max"]
    if not highest.any():
        return side.facts.first
    return int(series["bytes_in_use_max_step"][highest.argmax()])


def _recording_measures(side: AlignedSide, peak: int, series: NDArray[np.void]) -> dict[str, float | None]:
    model, facts = side.model, side.facts
    model.seek(facts.last)
    end = model.stats()
    model.seek(peak)
    at_peak = model.stats()
    pool = max(int(series["pool_bytes_max"].max(initial=0)), at_peak.pool_bytes)
    ends = [facts.first, facts.last - 1] if facts.last > facts.first else []
    times = event_times(side.trace, np.array(ends, np.uint64)).tolist()
    used = at_peak.bytes_in_use
    peak_bytes = stated_peak(side.trace.origin.details, facts.pool, used) or used
    return {
        "peak_bytes_in_use": peak_bytes,
        "peak_pool_bytes": pool,
        "requested_at_peak": at_peak.requested_bytes_in_use,
        "bytes_in_use_at_end": end.bytes_in_use,
        "pool_bytes_at_end": end.pool_bytes,
        "external_fragmentation": external(at_peak),
        "worst_external_fragmentation": float(series["external_fragmentation_max"].max(initial=0.0)),
        "peak_reserved_not_in_use": max(0.0, 1 - peak_bytes / pool) if peak_bytes and pool else 0.0,
        "internal_fragmentation": internal(at_peak),
        "failures": len(failures(side.trace, facts.pool)),
        "seconds": (times[1] - times[0]) / 1e9 if times else 0.0,
        **{name: int(side.kinds[kind]) for name, kind in _KINDS.items()},
    }


def _unknown_measures(side: AlignedSide) -> list[str]:
    details, pool = side.trace.origin.details, side.facts.pool
    unknown = [] if requested_bytes_known(details, pool) else list(_NEEDS_REQUESTED)
    if not regions_known(details, pool):
        unknown += _NEEDS_REGIONS
    return unknown + (list(_NEEDS_HISTORY) if side.facts.only_state else [])


# ------------------------------------------------------------------------------
# What a reader of a comparison has to know of the two recordings, as sentences.

_REASONS: Final = 3
_LIMIT: Final = "limit"


def notes(a: AlignedSide, b: AlignedSide, holders: AlignedHolders) -> Iterator[str]:
    """Notes on two compared recordings: the settings that differ, then what is missing or was inferred."""
    changed = list(_changed_settings(a, b))
    if changed:
        yield f"settings that differ: {', '.join(changed)}"
    if a.facts.heap != b.facts.heap:
        yield f"different heaps are compared: {a.facts.heap!r} of A with {b.facts.heap!r} of B"
    for side in (a, b):
        yield from _notes_of_recording(side)
    for number, side in enumerate((a, b)):
        named = set(range(len(holders))) - {holders.unnamed}
        if len(side.allocations) + len(side.held) and not any(
            holders.allocated[number, row] for row in named
        ):
            yield (
                f"{side.facts.letter}: {UNNAMED[side.how.by]} in the whole recording, so all its memory is one holder; "
                f"choose another grouping than {side.how.by!r}, or record with labels (bfcviz.label, bfcviz.phase)"
            )
    if holders.moved_lines:
        yield (
            f"holders that differ only in the number of a line of code are one holder, named as in B: "
            f"{holders.moved_lines:,}"
        )


def _notes_of_recording(side: AlignedSide) -> Iterator[str]:
    facts = side.facts
    if not len(side.allocations) + len(side.held):
        what = "events" if facts.first == facts.last else "allocations of this heap"
        yield f"{facts.letter} has no {what}"
    if facts.first:
        yield (
            f"{facts.letter} begins at step {facts.first:,} with the state there: what happened before is not "
            "compared, and its counts leave it out"
        )
    if facts.heaps > 1:
        yield f"{facts.letter} has {facts.heaps:,} heaps; number {facts.pool}, {facts.heap!r}, is compared"
    if facts.only_state:
        side.model.seek(end_of_state(side.trace, facts.pool))
        used = side.model.table.bytes_in_use
        peak = stated_peak(side.trace.origin.details, facts.pool, used)
        if peak is None:
            yield f"the exact peak of {facts.letter} is not known: the {format_bytes(used)} of its state stand for it"
        elif peak != used:
            yield (
                f"{facts.letter} states a peak of {format_bytes(peak)}; its holders and its fragmentation are those of "
                f"the state that it holds, with {format_bytes(used)} in use"
            )
    if facts.status != Status.COMPLETE:
        said = "; ".join(facts.reasons[:_REASONS])
        more = f"; and {len(facts.reasons) - _REASONS:,} more" if len(facts.reasons) > _REASONS else ""
        yield f"{facts.letter} is {_STATUS[facts.status]}{f': {said}{more}' if said else ''}"


_STATUS: Final[Mapping[Status, str]] = {
    Status.RECORDING: "still recorded: what comes later is not compared",
    Status.TRUNCATED: "truncated: events are missing, so the moments without them and its totals are not comparable",
    Status.DEGRADED: "degraded: some of it is missing or was guessed",
}


def _changed_settings(a: AlignedSide, b: AlignedSide) -> Iterator[str]:
    pools = [side.trace.origin.pools[side.facts.pool] for side in (a, b)]
    before, after = ({_LIMIT: pool.limit, **pool.options} for pool in pools)
    for name in before:
        # Files of different formats hold different settings: what only one of them has says nothing.
        if name in after and None not in (before[name], after[name]) and before[name] != after[name]:
            yield f"{name} {_compared_setting_text(name, before[name])} -> {_compared_setting_text(name, after[name])}"


def _compared_setting_text(name: str, value: object) -> str:
    return format_bytes(value) if name == _LIMIT and isinstance(value, int) else repr(value)[:60]


# ------------------------------------------------------------------------------
# RecordingComparison: two recordings compared, as tables and as text.

AT_PEAK = "peak"
"""The moment at which each recording has its most bytes in use."""

AT_END = "end"
"""The moment after the last event of each recording."""

_BARS: Final = 14
"""Parts of the difference in a picture."""


@dataclass(frozen=True, repr=False)
class RecordingComparison(TableAnswer):
    """Two recordings, A and B, compared; `print` it for the report. A change is B less A; sizes are bytes.

    Attributes:
        a, b: what was compared.
        by: what holders are found by.
        alignment: which steps belong together, how that was found, and why.
        totals: one row a measure: peaks, fragmentation by its names, counts.
        moments: one row a compared moment: the peaks, the pairs of steps, the ends; with the bytes in use there, and
            the most bytes in use since the moment before (null for the peaks).
        holders: one row a moment and holder: its verdict (appeared, vanished, grew, shrank, moved, same), bytes and
            chunks, and the bytes that both have at another place.
        growth: holders that grow with every step of the program.
        parts: the few holders, with those below them, that explain the difference of the peaks.
        spread: the same with more holders, for a picture.
        series: of TIMELINE, of A and of B; empty where there is no history.
        notes: what is missing or was inferred, as sentences.
    """

    a: AlignedRecording
    b: AlignedRecording
    by: str
    alignment: StepAlignment
    totals: "Table"
    moments: "Table"
    holders: "Table"
    growth: GrowthChanges
    parts: PeakParts
    spread: PeakParts
    series: tuple[NDArray[np.void], NDArray[np.void]]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(map(printable, comparison_lines(self)))

    @property
    def headline(self) -> str:
        """Two recordings compared in one line: their peaks and who makes the difference, failures, leaks."""
        who = parts_text(self) if _holders_explain_peaks(self) else ""
        parts = [f"{peaks_text(self)}: {who}" if who else peaks_text(self)]
        failed = self.total("failures")
        if failed[0] != failed[1]:
            parts.append(f"requests that failed: {failed[0]:,.0f} in A, {failed[1]:,.0f} in B")
        leaks = [row for row in self.growth.rows if row.verdict is GrowthVerdict.ONLY_B]
        if leaks:
            grown = signed_bytes(sum(row.b or 0.0 for row in leaks))
            more = f" and {len(leaks) - 1:,} more" if len(leaks) > 1 else ""
            named = f"{shortened_name(leaks[0].holder, _SHORT)}{more}"
            parts.append(f"B grows by {grown} every step, and A does not: {named}")
        return "; ".join(parts)

    def to_arrow(self) -> "Table":
        """`holders`: what each holder has at each moment of both."""
        return self.holders

    @property
    def tables(self) -> Sequence[AnswerTable]:
        """Tables of two compared recordings: the totals, and the holders that changed at the peaks."""
        changed = [
            (
                row["holder"],
                str(row["change"]),
                format_bytes(row["a_bytes"]),
                format_bytes(row["b_bytes"]),
                signed_bytes(row["bytes_change"]),
            )
            for row in self.holders_at(AT_PEAK).to_pylist()
            if row["change"] != HolderVerdict.SAME
        ]
        found = [AnswerTable(("", "A", "B", "B - A"), list(_comparison_total_rows(self)))]
        heads = ("holders at the peaks", "", "A", "B", "B - A")
        return [*found, *([AnswerTable(heads, changed[:_MOST_IN_TABLE], texts=[""])] if changed else [])]

    def total(self, measure: str) -> tuple[float | None, float | None]:
        """A total of two compared recordings in A and in B; None: not known."""
        row = self.totals["measure"].to_pylist().index(measure)
        return self.totals["a"][row].as_py(), self.totals["b"][row].as_py()

    def holders_at(self, moment: str) -> "Table":
        """The compared holders of one moment, the largest changes first."""
        pa = arrow("a comparison of recordings")
        mine = [name == moment for name in self.holders["moment"].to_pylist()]
        return self.holders.filter(pa.array(mine, pa.bool_()))


def compare_recordings(
    a: tuple[Trace, int],
    b: tuple[Trace, int],
    by: str = "op",
    *,
    align_by: str | None = None,
    mark: str | None = None,
) -> RecordingComparison:
    """Compare two recordings.

    Args:
        a: trace and index of the heap.
        b: the same of the other recording.
        by: what holders are found by, see `bfcviz.model.holders`.
        align_by: `marks`, `steps`, `labels` or `share`; None: the first of these that works.
        mark: name of the marks that separate the steps of the program; None: see `mark_pairs`.

    Raises:
        TraceError: a trace has no such heap or not its chunks, its events contradict each other, or they cannot be
            aligned as asked.
        ValueError: `by` or `align_by` is unknown.
    """
    for side in (a, b):
        require_chunks(*side)
    sides = AlignedSide("A", *a, by), AlignedSide("B", *b, by)
    holders = AlignedHolders(*sides)
    alignment = align(*sides, holders, align_by, mark)
    totals = (
        recording_totals(sides[0], [pair.a for pair in alignment.moments]),
        recording_totals(sides[1], [pair.b for pair in alignment.moments]),
    )
    moments = _compared_moments(sides, alignment, (totals[0].peak, totals[1].peak))
    changes = holder_changes(*sides, holders, moments)
    return RecordingComparison(
        sides[0].facts,
        sides[1].facts,
        by,
        alignment,
        totals_table(*totals),
        _compared_moments_table(changes, totals, moments, (sides[0].facts.first, sides[1].facts.first)),
        changes_table(changes, holders, moments),
        growth_changes(*sides, holders, mark),
        *_peak_parts(changes, holders, sides[1]),
        (totals[0].series, totals[1].series),
        tuple(notes(*sides, holders)),
    )


def _compared_moments(
    sides: tuple[AlignedSide, AlignedSide], alignment: StepAlignment, peaks: tuple[int, int]
) -> list[PairedStep]:
    """The moments at which two recordings are compared: peaks, pairs of steps, ends; of states the peaks."""
    ends = [PairedStep(AT_END, sides[0].facts.last, sides[1].facts.last)]
    return [
        PairedStep(AT_PEAK, *peaks),
        *alignment.moments,
        *([] if alignment.by is AlignedBy.STATE else ends),
    ]


def _peak_parts(
    changes: NDArray[np.void], holders: AlignedHolders, b: AlignedSide
) -> tuple[PeakParts, PeakParts]:
    """The few parts of the peaks' difference for a sentence, and more for a picture."""
    at_peak = changes[changes["moment"] == 0]
    differences = (at_peak["b_bytes"].astype(np.int64) - at_peak["a_bytes"].astype(np.int64)).tolist()
    paths = [holders.paths[row] for row in at_peak["holder"].tolist()]
    text = b.how.text
    return main_parts(paths, differences, text), spread_parts(paths, differences, text, _BARS)


def _compared_moments_table(
    changes: NDArray[np.void],
    totals: tuple[RecordingTotals, RecordingTotals],
    moments: Sequence[PairedStep],
    first: tuple[int, int],
) -> "Table":
    pa = arrow("a comparison of recordings")
    columns: dict[str, object] = {"moment": pa.array([moment.name for moment in moments], pa.string())}
    steps = {"a": [moment.a for moment in moments], "b": [moment.b for moment in moments]}
    for letter, mine in steps.items():
        columns[f"{letter}_step"] = np.array(mine, np.int64)
    for letter in steps:
        sums = np.zeros(len(moments), np.int64)
        np.add.at(sums, changes["moment"], changes[f"{letter}_bytes"].astype(np.int64))
        columns[f"{letter}_bytes"] = sums
    columns["bytes_change"] = columns["b_bytes"] - columns["a_bytes"]  # type: ignore[operator]
    for (letter, mine), total, begin in zip(steps.items(), totals, first, strict=True):
        since = highest_between(total.series, np.array([begin, *mine[1:]], np.int64)).tolist()
        columns[f"{letter}_highest_since"] = pa.array([None, *since], pa.uint64())
    return pa.table(columns)


# ------------------------------------------------------------------------------
# A comparison of two recordings as lines of text: the answer first, then the numbers.

_HOLDERS: Final = 12
"""Holders of a moment in a text."""

_MOMENTS: Final = 6
_GROWING: Final = 6
_WIDTH: Final = 64  # characters of a name
_SHORT: Final = 44  # characters of a name in the headline


def same(found: RecordingComparison) -> bool:
    """Whether nothing differs between two compared recordings; how long they took does not count."""
    changes = zip(found.totals["unit"].to_pylist(), found.totals["change"].to_pylist(), strict=True)
    return (
        not any(change for unit, change in changes if unit != SECONDS)
        and set(found.holders["change"].to_pylist()) <= {HolderVerdict.SAME}
        and not any(
            row.verdict not in {GrowthVerdict.SAME, GrowthVerdict.UNKNOWN} for row in found.growth.rows
        )
    )


def _holders_explain_peaks(found: RecordingComparison) -> bool:
    """Whether the holders make the difference of the peaks: not where a file states a peak beside its state."""
    before, after = found.total("peak_bytes_in_use")
    made = sum(part.bytes for part in found.parts.named) + found.parts.left
    return before is not None and after is not None and made == after - before


def peaks_text(found: RecordingComparison) -> str:
    """The difference of two recordings' peaks as text, without who makes it."""
    before, after = (int(value or 0) for value in found.total("peak_bytes_in_use"))
    if same(found):
        return f"no change: A and B use the same memory, {format_bytes(after)} at the peak"
    if before == after:
        return f"A and B need the same memory at their peaks, {format_bytes(after)}"
    size = f"{format_bytes(abs(after - before))} {'more' if after > before else 'less'}"
    share = f" ({100 * (after - before) / before:+,.1f} %)" if before else ""
    return f"B needs {size} at its peak{share}"


def parts_text(found: RecordingComparison) -> str:
    """Who makes the difference of two recordings' peaks; empty if it is 0 for every holder."""
    named, left = found.parts
    parts = [f"{signed_bytes(change)} {shortened_name(name, _SHORT)}" for name, change, _ in named]
    return ", ".join([*parts, *([f"{signed_bytes(left)} others"] if left and named else [])])


def comparison_lines(found: RecordingComparison) -> list[str]:
    """The report of a comparison of two recordings, line by line."""
    lines = [found.headline, "", *(_compared_recording_line(each) for each in (found.a, found.b))]
    aligned = "not aligned" if found.alignment.by is AlignedBy.STATE else f"aligned by {found.alignment.by}"
    lines += [f"{aligned}: {found.alignment.reason}", *_compared_total_lines(found)]
    for moment in (AT_PEAK, AT_END):
        lines += _compared_holder_lines(found, moment)
    lines += [*_compared_moment_lines(found), *_compared_growth_lines(found)]
    if found.notes:
        lines += ["", *(f"note: {note}" for note in found.notes)]
    return lines


def comparison_markdown(found: RecordingComparison) -> str:
    """Two recordings compared in GitHub's Markdown: the answer, the totals, and the holders behind a fold."""
    lines = [f"**{escaped(found.headline)}**", "", "| | before | now | change |", "|---|---:|---:|---:|"]
    for row in found.totals.to_pylist():
        if row["measure"] in _IN_COMMENT:
            values = [
                compared_value_text(row[name], row["unit"], change=name == "change")
                for name in ("a", "b", "change")
            ]
            lines.append(f"| {row['measure'].replace('_', ' ')} | {' | '.join(values)} |")
    changed = [row for row in found.holders_at(AT_PEAK).to_pylist() if row["change"] != HolderVerdict.SAME]
    if changed:
        lines += [
            "",
            f"<details><summary>{counted(len(changed), 'holder')} changed at the peak</summary>",
            "",
        ]
        lines += ["| change | holder | before | now |", "|---:|---|---:|---:|"]
        lines += [
            f"| {signed_bytes(row['bytes_change'])} | {escaped(shortened_name(row['holder'], _WIDTH))} "
            f"| {format_bytes(row['a_bytes'])} | {format_bytes(row['b_bytes'])} |"
            for row in changed[:_HOLDERS]
        ]
        lines += ["", "</details>"]
    grown = [line for line in _compared_growth_lines(found) if line]
    return "\n".join([*lines, "", *(escaped(line) for line in [*grown, *found.notes])]).rstrip() + "\n"


_IN_COMMENT: Final = frozenset(
    (
        "peak_bytes_in_use",
        "peak_pool_bytes",
        "bytes_in_use_at_end",
        "external_fragmentation",
        "failures",
        "seconds",
    )
)
"""Totals that a comment lists."""


def compared_value_text(value: float | None, unit: str, *, change: bool = False) -> str:
    """A measure of a compared recording in its unit; `unknown` for None."""
    if value is None:
        return "unknown"
    sign = "+" if change and value > 0 else ""
    if unit == BYTES:
        return f"{sign}{format_bytes(value)}"
    if unit == SHARE:
        return f"{sign}{100 * value:.1f} {'points' if change else '%'}"
    if unit == SECONDS:
        return f"{'-' if value < 0 else sign}{duration(round(abs(value) * 1e9))}"
    return f"{sign}{value:,.0f}"


def _compared_recording_line(facts: AlignedRecording) -> str:
    return f"{facts.letter}: {facts.name}, {facts.heap}, {facts.last - facts.first:,} events, {facts.status}"


def _compared_total_lines(found: RecordingComparison) -> Iterator[str]:
    yield ""
    yield f"{'':<30} {'A':>12} {'B':>12} {'B - A':>12}"
    for name, a, b, change in _comparison_total_rows(found):
        yield f"{name:<30} {a:>12} {b:>12} {change:>12}".rstrip()


def _comparison_total_rows(found: RecordingComparison) -> Iterator[tuple[str, str, str, str]]:
    """Compared totals: the name of each measure, its value in A and in B, the change where there is one."""
    for row in found.totals.to_pylist():
        a, b, change = (
            compared_value_text(row[name], row["unit"], change=name == "change")
            for name in ("a", "b", "change")
        )
        name = _NAMES.get(row["measure"], row["measure"].replace("_", " "))
        yield name, a, b, change if row["change"] else ""


_MOST_IN_TABLE: Final = 30
"""Holders in a table of a notebook."""

_NAMES: Final = {"failures": "failed requests", "seconds": "duration"}


def _compared_holder_lines(found: RecordingComparison, moment: str) -> Iterator[str]:
    rows = found.holders_at(moment).to_pylist()
    at = found.moments.to_pylist()[0 if moment == AT_PEAK else -1]
    if at["moment"] != moment:
        return
    changed = [row for row in rows if row["change"] != HolderVerdict.SAME]
    verdicts = [row["change"] for row in rows]
    counts = [f"{verdicts.count(verdict):,} {verdict}" for verdict in HolderVerdict if verdict in verdicts]
    what = "holders at the peaks" if moment == AT_PEAK else "holders at the ends"
    yield ""
    yield f"{what} (step {at['a_step']:,} of A, {at['b_step']:,} of B): {', '.join(counts) or 'none'}"
    for row in changed[:_HOLDERS]:
        yield _compared_holder_line(row)
    if len(changed) > _HOLDERS:
        rest = sum(row["bytes_change"] for row in changed[_HOLDERS:])
        yield f"{signed_bytes(rest):>12}  {counted(len(changed) - _HOLDERS, 'more holder')}"


def _compared_holder_line(row: dict[str, Any]) -> str:
    moved = row["change"] == HolderVerdict.MOVED
    size = format_bytes(row["moved_bytes"]) if moved else signed_bytes(row["bytes_change"])
    amounts = f"{format_bytes(row['a_bytes'])} -> {format_bytes(row['b_bytes'])}"
    if row["a_chunks"] != row["b_chunks"]:
        amounts += f", {row['a_chunks']:,} -> {row['b_chunks']:,} chunks"
    return f"{size:>12}  {row['change']:<8}  {shortened_name(row['holder'], _WIDTH)} ({amounts})"


def _compared_moment_lines(found: RecordingComparison) -> Iterator[str]:
    rows = [row for row in found.moments.to_pylist()[1:] if row["moment"] != AT_END]
    if not rows:
        return
    highest = [row["b_highest_since"] - row["a_highest_since"] for row in rows]
    different = [pair for pair in zip(highest, rows, strict=True) if pair[0] or pair[1]["bytes_change"]]
    different.sort(key=lambda pair: -max(abs(pair[0]), abs(pair[1]["bytes_change"])))
    yield ""
    count = counted(len(rows), "moment")
    yield f"from moment to moment: {count} compared, {len(different):,} with another use of memory"
    for change, row in different[:_MOMENTS]:
        most = f"at most {format_bytes(row['a_highest_since'])} -> {format_bytes(row['b_highest_since'])} before it"
        there = f"{format_bytes(row['a_bytes'])} -> {format_bytes(row['b_bytes'])} at it"
        yield f"{signed_bytes(change):>12}  {shortened_name(row['moment'], _WIDTH)} ({most}, {there})"


def _compared_growth_lines(found: RecordingComparison) -> Iterator[str]:
    growth = found.growth
    if found.alignment.by is AlignedBy.STATE:
        return
    yield ""
    a, b = growth.reasons
    if a and a == b:
        yield f"growth is not known: {a}"
        return
    yield from (
        f"growth of {letter} is not known: {reason}" for letter, reason in (("A", a), ("B", b)) if reason
    )
    if a and b:
        return
    if growth.allocation:
        yield f"compared steps: from each allocation of {growth.allocation!r} to the next"
    if not growth.rows:
        yield "no holder grows with every step of the program"
    for row in growth.rows[:_GROWING]:
        rate = signed_bytes(row.b or row.a or 0.0)  # that of A where the holder does not grow in B
        yield f"{rate} every step: {shortened_name(row.holder, _WIDTH)}, {_VERDICTS[row.verdict]}"
    if len(growth.rows) > _GROWING:
        yield f"{counted(len(growth.rows) - _GROWING, 'more holder')} that grow every step"


_VERDICTS: Final = {
    GrowthVerdict.ONLY_B: "in B and not in A: a new leak",
    GrowthVerdict.FASTER: "in B, and less in A",
    GrowthVerdict.SAME: "in both",
    GrowthVerdict.SLOWER: "in B, and more in A",
    GrowthVerdict.ONLY_A: "in A and no longer in B",
    GrowthVerdict.UNKNOWN: "in the recording whose steps are known",
}


# ------------------------------------------------------------------------------
# A comparison of two recordings as JSON values: sizes in bytes, null for unknown.


def comparison_json(found: RecordingComparison) -> dict[str, Any]:
    """The comparison of two recordings as JSON values; of the holders only those that differ at a moment."""
    parts, left = found.parts
    return {
        "headline": found.headline,
        "a": _comparison_side_json(found, "a"),
        "b": _comparison_side_json(found, "b"),
        "by": found.by,
        "alignment": {
            "by": str(found.alignment.by),
            "reason": found.alignment.reason,
            "pairs": max(len(found.alignment.a) - 2, 0),
        },
        "totals": {row.pop("measure"): row for row in found.totals.to_pylist()},
        "peak_parts": [{"holder": name, "bytes_change": change} for name, change, _ in parts],
        "peak_others": left,
        "moments": found.moments.to_pylist(),
        "holders": [row for row in found.holders.to_pylist() if row["change"] != HolderVerdict.SAME],
        "growth": {
            "holders": found.growth.to_arrow().to_pylist(),
            "a_reason": found.growth.reasons[0],
            "b_reason": found.growth.reasons[1],
            "a_steps": found.growth.steps[0],
            "b_steps": found.growth.steps[1],
            "steps_begin_with": found.growth.allocation or None,
        },
        "notes": list(found.notes),
    }


def _comparison_side_json(found: RecordingComparison, letter: str) -> dict[str, Any]:
    facts = getattr(found, letter)
    return {
        "name": facts.name,
        "allocator": facts.heap,
        "pool": facts.pool,
        "events": facts.last - facts.first,
        "status": str(facts.status),
        "reasons": list(facts.reasons),
    }


# ------------------------------------------------------------------------------
# Which heap of one recording is compared with which heap of the other: two of one name.

_DEVICE: Final = re.compile(r"\d+")


def paired_heaps(a: Trace, b: Trace) -> tuple[int, int]:
    """The heaps of two recordings that are compared: two of one name.

    That of the first failed request of `b`, else of `a`, and in the other recording the heap of this name; without a
    failure the first heap of `a` that `b` has, too. Names that differ only in the number of a device are one name, if
    no other is. Where nothing fits, the failed or first heap of each.
    """
    failed = [first_failure(trace) for trace in (a, b)]
    if failed[1] is not None:
        other = _compared_heap_of_name(a, b, failed[1][0])
        return failing_pool(a) if other is None else other, failed[1][0]
    if failed[0] is not None:
        other = _compared_heap_of_name(b, a, failed[0][0])
        return failed[0][0], 0 if other is None else other
    pairs = ((number, _compared_heap_of_name(b, a, number)) for number in range(len(a.origin.pools)))
    return next(((number, other) for number, other in pairs if other is not None), (0, 0))


def _compared_heap_of_name(trace: Trace, other: Trace, pool: int) -> int | None:
    """The heap of a trace with the name of a heap of another one; of several the first."""
    names: tuple[Callable[[Pool], str], ...] = (
        lambda pool: pool.name,
        _compared_allocator_name,
        lambda pool: _DEVICE.sub("", _compared_allocator_name(pool)),
    )
    for name in names:
        wanted = name(other.origin.pools[pool])
        for number, each in enumerate(trace.origin.pools):
            if name(each) == wanted:
                return number
    return None


def _compared_allocator_name(pool: Pool) -> str:
    return str(pool.options.get("allocator_name") or pool.name)
