"""Steps of two recordings that belong together by their marks: the same name, and the same number or order."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.browse.navigation import events_of
from bfcviz.model.browse.phases import ENDS, phase_ends
from bfcviz.model.comparison.increasing_pairs import increasing
from bfcviz.model.holders.equal_steps import chosen_name, number_at_end, plain_name

FEWEST: Final = 2
"""Pairs of marks that align two recordings."""

_LEAST_SHARE: Final = 0.5
"""Marks are paired by number if so many of the recording with fewer marks find a partner."""


@dataclass(frozen=True)
class MarkPairs:
    """Marks of two recordings that belong together.

    Attributes:
        name: of the marks; empty: marks of several names.
        a, b: the step of each pair in each recording, ascending.
        numbers: of each mark, as the program gave it or by its order from 1.
        names: the name of each mark.
        by_number: whether the program's own numbers agree; otherwise the first belongs to the first, and so on.
        left: how many marks of these names have no partner in A and in B.
        reason: why there are no pairs; empty otherwise.
    """

    name: str = ""
    a: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    b: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    by_number: bool = False
    left: tuple[int, int] = (0, 0)
    reason: str = ""


@dataclass
class _Marks:
    """The marks of one name in one recording."""

    seqs: list[int] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)

    def numbered(self) -> Mapping[int, int] | None:
        """Number -> `seq`; None if not every mark has a number of its own."""
        known = {
            number: seq for number, seq in zip(self.numbers, self.seqs, strict=True) if number is not None
        }
        return known if len(known) == len(self.seqs) else None


def mark_pairs(a: tuple[Trace, int], b: tuple[Trace, int], name: str | None = None) -> MarkPairs:
    """The marks that two heaps have in common.

    Args:
        a: trace and index of the heap.
        b: the same of the other recording.
        name: of the marks; a number at its end does not matter. None: one with `step`, `iteration`, `batch` or `epoch`
            in its name that both have, else all that both have.
    """
    found = _marks(*a), _marks(*b)
    if not found[0] or not found[1]:
        without = " and ".join(letter for letter, marks in zip("AB", found, strict=True) if not marks)
        return MarkPairs(reason=f"{without} {'have' if len(without) > 1 else 'has'} no marks")
    common = {key: marks.seqs for key, marks in found[0].items() if key in found[1]}
    chosen = chosen_name(common, name)
    if chosen is None and name is not None:
        return MarkPairs(reason=f"no mark {plain_name(name)!r} is in both; {_listed(common)}")
    several = [(key, *_paired(found[0][key], found[1][key])) for key in ([chosen] if chosen else common)]
    pairs = [
        (seq, other, number, key) for key, found_pairs, _ in several for number, seq, other in found_pairs
    ]
    kept = increasing(*(np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1)))
    if len(kept[0]) < FEWEST:
        return MarkPairs(
            reason=f"{len(kept[0])} marks are in both and in the same order; {FEWEST} are needed"
        )
    of = {pair[0]: pair for pair in pairs}
    left = [sum(len(marks[key].seqs) for key, *_ in several) - len(kept[0]) for marks in found]
    return MarkPairs(
        chosen or "",
        *kept,
        tuple(of[seq][2] for seq in kept[0].tolist()),
        tuple(of[seq][3] for seq in kept[0].tolist()),
        all(by_number for *_, by_number in several),
        (left[0], left[1]),
    )


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
        # A counter from 0: its first mark has no other number than the value 0.
        if mine.numbers[0] is None and None not in mine.numbers[1:] and 0 not in mine.numbers:
            mine.numbers[0] = 0
    return dict(found)


def _paired(a: _Marks, b: _Marks) -> tuple[list[tuple[int, int, int]], bool]:
    """Number, `seq` in A and `seq` in B of each pair; and whether the program gave these numbers."""
    mine, theirs = a.numbered(), b.numbered()
    if mine is not None and theirs is not None:
        both = mine.keys() & theirs.keys()
        if len(both) >= max(_LEAST_SHARE * min(len(mine), len(theirs)), 1):
            return [(number, mine[number], theirs[number]) for number in sorted(both)], True
    pairs = zip(a.seqs, b.seqs, strict=False)
    return [(number, *pair) for number, pair in enumerate(pairs, 1)], False


def _listed(common: Mapping[str, list[int]]) -> str:
    return f"both have {', '.join(map(repr, list(common)[:5]))}" if common else "they have no mark in common"
