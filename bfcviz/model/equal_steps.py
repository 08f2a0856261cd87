"""Equal steps: the repeated parts of a program that do about the same work, found from its marks, or without them.

::

    marks        |warm-up| |  1  |  2  |     evaluation     |  3  |  4  |
    compared                     ^     ^                          ^     ^     the heap at the ends of equal steps

A program without marks is cut where an allocation of one kind comes again and again, after about as much work::

    allocations  a b   x c d d e   x c d d e   x c d d e   x c d d e           from each x to the next
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.marks import ALERT, ENDS, STEP_WORDS, phase_ends
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.find_steps import events_of
from bfcviz.units import format_bytes

FEWEST: Final = 4
"""Equal steps after the warm-up that are needed: fewer show no trend."""

MOST: Final = 64
"""Ends of steps that are compared; of more steps, every second, third, ... one."""

_ALIKE: Final = 1.25
"""Equal steps have numbers of allocations within this factor."""

_LEAST_SHARE: Final = 0.05
"""Equal steps make at least this share of all allocations."""

_LEAST_COVERED: Final = 0.5
"""Without marks, equal steps hold at least this share of all allocations."""

_ABOUT: Final = 0.95
"""A kind of allocation with this share of the best one is as good."""

_MOST_KINDS: Final = 256
_MOST_SIZES: Final = 16
_MOST_SEARCHED: Final = 1 << 22
"""Allocations in which a repetition is searched, at least."""

_UNNAMED: Final = 1 << 32
"""Added to the requested bytes of unnamed allocations: more than any number of a label."""

_MOST_DIGITS: Final = 18
_NUMBER: Final = re.compile(r"[\s#_:=-]*(\d+)$")


@dataclass(frozen=True)
class EqualSteps:
    """The steps of a program that are compared.

    Attributes:
        name: name of the marks or of the phase, without a number at its end; "" if there is none.
        found: how many whole steps there are.
        equal: how many of them did about the same work.
        warm_up: how many of these are left out, at the beginning.
        every: each compared step is followed by so many equal steps, itself included; 1: all are compared.
        numbers: the numbers of the compared steps, from 1, by their order in the trace.
        ends: the step (the position in the trace) at which each of them ends, ascending.
        reason: why there is nothing to compare; empty otherwise.
        allocation: without marks: the kind of allocation that begins each step; empty otherwise.
        allocations: how many an equal step makes, the median; 0: not known.
    """

    name: str
    found: int = 0
    equal: int = 0
    warm_up: int = 0
    every: int = 1
    numbers: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    ends: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    reason: str = ""
    allocation: str = ""
    allocations: int = 0

    @property
    def is_single(self) -> bool:
        """Whether a step is one allocation, found without marks: a loop that fills a list is no program's step."""
        return bool(self.allocation) and self.allocations == 1

    @property
    def unmarked(self) -> bool:
        """Whether there are no equal steps to compare because no mark separates the steps."""
        return bool(self.reason) and not self.name


def equal_steps(
    trace: Trace, pool: int = 0, name: str | None = None, warm_up: int | None = None
) -> EqualSteps:
    """Find the equal steps of the program, those that can be compared.

    Args:
        trace: the events; all are read.
        pool: index of the heap.
        name: name of the marks, or of the phase, that is written once a step, such as `step`; a number at its end does
            not matter. None: one with `step`, `iteration`, `batch` or `epoch` in its name.
        warm_up: equal steps to leave out at the beginning; None: a quarter of them, at least one.
    """
    marks = _step_boundaries(trace, pool)
    chosen = step_marks_name(marks, name)
    if chosen is None:
        return EqualSteps(name or "", reason=_no_equal_steps_text(marks, name))
    seqs = np.array(marks[chosen], np.int64)
    work = _step_allocations(trace, pool, seqs)
    return _compared_equal_steps(EqualSteps(chosen), seqs, work, _alike_steps(work), warm_up)


def repeated_steps(trace: Trace, pool: int = 0, warm_up: int | None = None) -> EqualSteps:
    """Find the steps of a program without marks: from each allocation of one kind to the next of this kind.

    Allocations are of one kind if they have the same label, or the same label and requested size (a line that makes
    small temporary memory, too, comes several times a step); unnamed ones if they request the same size. The kind is
    one whose equal steps hold the most of all allocations; of several, the one with the longest steps. All events are
    read, and the newest allocations are searched. `warm_up`: see `equal_steps`.
    """
    seqs, kinds, sizes = _allocations_for_equal_steps(trace, pool)
    counts = np.unique(kinds, return_counts=True)[1]
    places = np.split(np.argsort(kinds, kind="stable"), np.cumsum(counts)[:-1])
    fits = [each for each in places if _may_separate_steps(each, len(seqs))]
    fits = sorted(fits, key=len)[:_MOST_KINDS]  # the longest steps first
    fits = sorted((part for each in fits for part in _by_size(each, sizes, len(seqs))), key=len)[:_MOST_KINDS]
    found = [_share_of_alike(np.diff(each), len(seqs)) for each in fits]
    shares = [share if typical > 1 else 0.0 for share, typical in found]
    # Single allocations last: they would hide the steps that they are part of.
    if max(shares, default=0.0) < _LEAST_COVERED:
        shares = [share for share, _ in found]
    best = max(shares, default=0.0)
    if best < _LEAST_COVERED:
        reason = "no allocation comes again and again, each time after about as much work"
        return EqualSteps("", reason=reason)
    cuts = fits[next(row for row, share in enumerate(shares) if share >= _ABOUT * best)]
    kind = int(kinds[cuts[0]])
    name = trace.labels.name(kind) if kind < _UNNAMED else format_bytes(kind - _UNNAMED)
    work = np.diff(cuts)
    alike = _alike_steps(work, by_work=True)
    return _compared_equal_steps(EqualSteps("", allocation=name), seqs[cuts], work, alike, warm_up)


def _may_separate_steps(places: NDArray[np.intp], total: int) -> bool:
    """Whether allocations at these places among all are enough to separate steps, over half of the trace or more."""
    return len(places) > 2 * FEWEST and int(places[-1] - places[0]) * 2 >= total


def _by_size(places: NDArray[np.intp], sizes: NDArray[np.uint64], total: int) -> list[NDArray[np.intp]]:
    """The allocations of one label, to find repeated steps; and those of each size apart, where it has several."""
    there, counts = np.unique(sizes[places], return_counts=True)
    if len(there) == 1:
        return [places]
    order = np.argsort(counts, kind="stable")
    often = there[order][counts[order] > 2 * FEWEST][:_MOST_SIZES]
    parts = [places[sizes[places] == size] for size in often]
    return [places, *(each for each in parts if _may_separate_steps(each, total))]


def _share_of_alike(work: NDArray[np.int64], total: int) -> tuple[float, int]:
    """Which share of all allocations is in equal steps, 0 if there are too few; and how many such a step makes."""
    alike = work[_alike_steps(work, by_work=True)]
    if len(alike) < 2 * FEWEST:
        return 0.0, 0
    return float(alike.sum() / total), int(np.median(alike))


def _allocations_for_equal_steps(
    trace: Trace, pool: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint64]]:
    """The newest allocations: `seq`; kind, the number of the label or `_UNNAMED` + the requested bytes; these bytes."""
    seqs: list[NDArray[np.int64]] = []
    kinds: list[NDArray[np.uint64]] = []
    sizes: list[NDArray[np.uint64]] = []
    held = 0
    for block in trace.blocks():
        mine = block[(block["kind"] == Kind.ALLOCATE) & (block["pool"] == pool)]
        label = mine["label"].astype(np.uint64)
        seqs.append(mine["seq"].astype(np.int64))
        kinds.append(np.where(label > 0, label, mine["requested"] + np.uint64(_UNNAMED)))
        sizes.append(mine["requested"].astype(np.uint64))
        held += len(mine)
        while held - len(seqs[0]) > _MOST_SEARCHED:
            held -= len(seqs.pop(0))
            kinds.pop(0)
            sizes.pop(0)
    nothing = [np.zeros(0, np.uint64)]
    found = np.concatenate(seqs or [np.zeros(0, np.int64)])
    return found, np.concatenate(kinds or nothing), np.concatenate(sizes or nothing)


def _compared_equal_steps(
    cut: EqualSteps,
    seqs: NDArray[np.int64],
    work: NDArray[np.int64],
    alike: NDArray[np.intp],
    warm_up: int | None,
) -> EqualSteps:
    """The equal steps to compare; `cut` says what separates them, `seqs` where."""
    skipped = max(len(alike) // 4, 1) if warm_up is None else warm_up
    typical = int(np.median(work[alike])) if len(alike) else 0
    found = replace(cut, found=len(work), equal=len(alike), warm_up=skipped, allocations=typical)
    left = alike[skipped:]
    if len(left) < FEWEST:
        what = f"allocations of {cut.allocation!r}" if cut.allocation else f"marks {cut.name!r}"
        reason = (
            f"{len(work):,} steps between {what}, {len(alike):,} of them with about the same number of "
            f"allocations, {skipped:,} left out as warm-up: growth needs {FEWEST} without these; record a longer run"
        )
        return replace(found, reason=reason)
    every = -(-len(left) // MOST)
    left = left[(len(left) - 1) % every :: every]  # the last one is compared
    return replace(found, every=every, numbers=left + 1, ends=seqs[left + 1])


def equal_step_ends(trace: Trace, pool: int, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The steps at which those end that did about the same work, the warm-up included; reads all events.

    `seqs`: the `seq` of each mark that separates steps, ascending.
    """
    return seqs[_alike_steps(_step_allocations(trace, pool, seqs)) + 1]


def step_marks(trace: Trace, pool: int = 0) -> tuple[str, NDArray[np.int64]]:
    """For equal steps, the name of the marks, or of the phase, that separate them; and the `seq` of each.

    The name is empty if there are none.
    """
    marks = _step_boundaries(trace, pool)
    chosen = step_marks_name(marks, None)
    return ("", np.zeros(0, np.int64)) if chosen is None else (chosen, np.array(marks[chosen], np.int64))


def plain_step_name(name: str) -> str:
    """For equal steps, the name of a mark without a number at its end; the whole name if it is only a number."""
    return _NUMBER.sub("", name) or name


def step_mark_number(name: str) -> int | None:
    """The number at the end of the name of a step's mark; None where there is none, or one of more than 18 digits."""
    found = _NUMBER.search(name)
    return int(found[1]) if found is not None and len(found[1]) <= _MOST_DIGITS else None


def step_marks_name(marks: Mapping[str, Sequence[int]], name: str | None) -> str | None:
    """The name of the marks that separate equal steps, of all marks by plain names; None if there is none.

    Args:
        marks: the `seq` of each mark, by plain name.
        name: the one that the user asks for; None: one with `step`, `iteration`, `batch` or `epoch` in its name.
    """
    if name is not None:
        return plain_step_name(name) if plain_step_name(name) in marks else None
    for word in STEP_WORDS:
        # The word alone first, then the most frequent one.
        fits = [each for each in marks if word in each.casefold()]
        if fits:
            return max(fits, key=lambda each: (each.casefold() == word, len(marks[each])))
    return None


_marks: WeakKeyDictionary[Trace, dict[int, tuple[int, int, Events]]] = WeakKeyDictionary()


def _known_step_marks(trace: Trace, pool: int) -> Events:
    """All marks of a pool, of which some separate equal steps; reads each event of a growing trace once."""
    known = _marks.setdefault(trace, {})
    first, stop, marks = known.get(pool, (trace.first, trace.first, np.zeros(0, EVENT)))
    if first != trace.first:  # the trace dropped its first events
        marks = marks[marks["seq"] >= trace.first]
    length = len(trace)
    if length > stop:
        marks = np.concatenate([marks, events_of(trace, [Kind.MARK], pool, max(stop, trace.first), length)])
    known[pool] = trace.first, length, marks
    return marks


def _step_boundaries(trace: Trace, pool: int) -> Mapping[str, list[int]]:
    """To find equal steps, the `seq` of each plain mark and each end of a phase, by name without number."""
    marks = _known_step_marks(trace, pool)
    found: dict[str, list[int]] = defaultdict(list)
    ends = phase_ends(marks, trace.labels)
    names: dict[str, str] = {}
    for seq, label, end in zip(marks["seq"].tolist(), marks["label"].tolist(), ends, strict=True):
        if end is not None and end.side != ENDS:
            continue
        text = trace.labels.name(label) if end is None else end.name
        if text.startswith(ALERT):
            continue
        found[names.setdefault(text, plain_step_name(text))].append(seq)
    return found


def _no_equal_steps_text(marks: Mapping[str, list[int]], name: str | None) -> str:
    known = sorted(marks, key=lambda each: -len(marks[each]))[:5]
    asked = "no mark names the steps of the program" if name is None else f"there is no mark {name!r}"
    there = f"; there are marks {', '.join(map(repr, known))}" if known else ""
    return f'{asked}{there}; call bfcviz.mark("step", number) once a step'


def _step_allocations(trace: Trace, pool: int, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
    """To find equal steps, the number of allocations between each two neighbouring marks."""
    counts = np.zeros(len(seqs) + 1, np.int64)
    for block in trace.blocks():
        at = np.flatnonzero((block["kind"] == Kind.ALLOCATE) & (block["pool"] == pool))
        place = np.searchsorted(seqs, block["seq"][at].astype(np.int64))
        counts += np.bincount(place, minlength=len(counts))
    return counts[1:-1]


def _alike_steps(work: NDArray[np.int64], *, by_work: bool = False) -> NDArray[np.intp]:
    """The equal steps of the most frequent kind: those with about the same number of allocations.

    `by_work`: of the kind with the most work together; where a step does the same twice, one part of it may be short.
    """
    ordered = np.sort(work).astype(np.float64)
    if not ordered.sum():
        return np.zeros(0, np.intp)
    count = np.searchsorted(ordered, ordered * _ALIKE, side="right")
    count -= np.searchsorted(ordered, ordered / _ALIKE)
    # Frequent steps that do almost nothing, such as single ops before a training, are not the program's.
    count[count * ordered < _LEAST_SHARE * ordered.sum()] = 0
    best = ordered[(count * ordered if by_work else count).argmax()]
    return np.flatnonzero((work >= best / _ALIKE) & (work <= best * _ALIKE))
