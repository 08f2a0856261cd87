"""Steps of two recordings that belong together by their marks: the same name, and the same number or order."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.browse.navigation import events_of
from bfcviz.model.browse.phases import ENDS, phase_ends
from bfcviz.model.comparison.increasing_pairs import increasing
from bfcviz.model.explain.text.short_names import counted
from bfcviz.model.holders.equal_steps import chosen_name, equal_step_ends, number_at_end, plain_name

FEWEST: Final = 2
"""Pairs of marks that align two recordings."""

_LEAST_SHARE: Final = 0.5
"""Marks are paired by number if so many of the recording with fewer marks find a partner."""

Heap = tuple[Trace, int]
"""A trace and the index of a heap in it."""


@dataclass(frozen=True)
class MarkPairs:
    """Marks of two recordings that belong together.

    Attributes:
        name: of the marks; empty: marks of several names.
        a, b: the step of each pair in each recording, ascending.
        names: each mark, with the program's number or, without one, its order from 1: `step 12`.
        by_number: whether the program's own numbers agree; otherwise the first belongs to the first, and so on.
        left: how many marks of these names have no partner in A and in B.
        reason: why there are no pairs; empty otherwise.
    """

    name: str = ""
    a: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    b: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    names: Sequence[str] = ()
    by_number: bool = False
    left: tuple[int, int] = (0, 0)
    reason: str = ""


@dataclass
class _Marks:
    """The marks of one name in one recording: `seq` and number of each; None: it has no number."""

    seqs: list[int] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)

    def numbered(self) -> Mapping[int, int] | None:
        """Number -> `seq`; None if not every mark has a number of its own."""
        pairs = zip(self.numbers, self.seqs, strict=True)
        known = {number: seq for number, seq in pairs if number is not None}
        return known if len(known) == len(self.seqs) else None


class _Pair(NamedTuple):
    a: int
    b: int
    name: str


def mark_pairs(a: Heap, b: Heap, name: str | None = None) -> MarkPairs:
    """The marks that two heaps have in common.

    Args:
        a: the heap of the first recording.
        b: the heap of the second recording.
        name: of the marks; a number at its end does not matter. None: one with `step`, `iteration`, `batch` or `epoch`
            in its name that both have, else all that both have.
    """
    found = _marks(*a), _marks(*b)
    if not found[0] or not found[1]:
        without = [letter for letter, marks in zip("AB", found, strict=True) if not marks]
        return MarkPairs(reason=f"{' and '.join(without)} {'have' if len(without) > 1 else 'has'} no marks")
    common = {key: marks.seqs for key, marks in found[0].items() if key in found[1]}
    chosen = chosen_name(common, name)
    if chosen is None and name is not None:
        return MarkPairs(reason=f"no mark {plain_name(name)!r} is in both; {_listed(common)}")
    tried = MarkPairs()
    for keys in ([chosen] if chosen else [], list(common) if name is None else []):
        tried = _paired(found, keys, a, b) if keys else tried
        if len(tried.a) >= FEWEST:
            return tried
    reason = f"{counted(len(tried.a), 'mark')} of both in the same order, and {FEWEST} are needed"
    return MarkPairs(reason=reason)


def _marks(trace: Trace, pool: int) -> dict[str, _Marks]:
    """The plain marks and the ends of phases of a heap, by name without a number at its end."""
    marks = events_of(trace, [Kind.MARK], pool)
    found: dict[str, _Marks] = defaultdict(_Marks)
    rows = zip(marks["seq"].tolist(), marks["label"].tolist(), marks["size"].tolist(), strict=True)
    for (seq, label, value), end in zip(rows, phase_ends(marks, trace.labels), strict=True):
        if end is not None and end.side != ENDS:
            continue
        text = trace.labels.name(label) if end is None else end.name
        # The value of a phase only pairs its begin with its end.
        number = number_at_end(text) if end is not None or not value else value
        mine = found[plain_name(text)]
        mine.seqs.append(seq)
        mine.numbers.append(number)
    for mine in found.values():
        # A counter from 0: a value of 0 alone is no number.
        if len(mine.numbers) > 1 and mine.numbers[0] is None and not {0, None} & set(mine.numbers[1:]):
            mine.numbers[0] = 0
    return dict(found)


def _paired(
    found: tuple[dict[str, _Marks], dict[str, _Marks]], keys: Sequence[str], a: Heap, b: Heap
) -> MarkPairs:
    """The pairs of the marks of these names: by number if all of them have numbers that agree, else in order."""
    several = [(key, found[0][key], found[1][key]) for key in keys]
    numbered = [_by_number(*marks) for marks in several]
    by_number = all(pairs is not None for pairs in numbered)
    pairs = {
        pair.a: pair
        for marks, own in zip(several, numbered, strict=True)
        for pair in (own if by_number and own is not None else _in_order(*marks, a, b))
    }
    steps = increasing(
        np.array([pair.a for pair in pairs.values()], np.int64),
        np.array([pair.b for pair in pairs.values()], np.int64),
    )
    left = [sum(len(marks[key].seqs) for key in keys) - len(steps[0]) for marks in found]
    names = tuple(pairs[step].name for step in steps[0].tolist())
    return MarkPairs(keys[0] if len(keys) == 1 else "", *steps, names, by_number, (left[0], left[1]))


def _by_number(name: str, a: _Marks, b: _Marks) -> list[_Pair] | None:
    """The pairs with the same number; None if the numbers of A and B do not agree."""
    mine, theirs = a.numbered(), b.numbered()
    if mine is None or theirs is None:
        return None
    both = mine.keys() & theirs.keys()
    if len(both) < max(_LEAST_SHARE * min(len(mine), len(theirs)), 1):
        return None
    return [_Pair(mine[number], theirs[number], f"{name} {number:,}") for number in sorted(both)]


def _in_order(name: str, mine: _Marks, theirs: _Marks, a: Heap, b: Heap) -> list[_Pair]:
    """The first with the first, and so on; of different numbers of marks only those after equal steps."""
    first, second = mine.seqs, theirs.seqs
    if len(first) != len(second):
        equal = [
            equal_step_ends(*heap, np.array(seqs, np.int64)).tolist()
            for heap, seqs in ((a, first), (b, second))
        ]
        if min(map(len, equal)) >= FEWEST:
            first, second = equal
    single = len(first) == len(second) == 1
    pairs = enumerate(zip(first, second, strict=False), 1)
    return [_Pair(*pair, name if single else f"{name} {number:,}") for number, pair in pairs]


def _listed(common: Mapping[str, list[int]]) -> str:
    return f"both have {', '.join(map(repr, list(common)[:5]))}" if common else "they have no mark in common"
