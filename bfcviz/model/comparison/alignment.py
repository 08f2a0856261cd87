"""Alignment: which step of one recording belongs to which step of the other, and how that was found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.model.comparison.common_holders import CommonHolders
from bfcviz.model.comparison.increasing_pairs import Steps, evenly
from bfcviz.model.comparison.label_pairs import FEWEST, label_pairs
from bfcviz.model.comparison.mark_pairs import FEWEST as FEWEST_MARKS
from bfcviz.model.comparison.mark_pairs import MarkPairs, mark_pairs
from bfcviz.model.comparison.sides import RecordingSide
from bfcviz.model.explain.text.short_names import counted
from bfcviz.model.holders.equal_steps import equal_step_ends, step_marks

MOST: Final = 64
"""Moments between the begin and the end at which holders are compared, where marks align the recordings."""

_MOST_INFERRED: Final = 20
"""The same where labels or shares do."""


class AlignedBy(StrEnum):
    """How steps of two recordings were paired; of several ways, the first one that works."""

    MARKS = "marks"  # marks of the same name, by number or by order
    STEPS = "steps"  # the equal steps of both programs, whose marks have different names
    LABELS = "labels"  # the n-th allocation of a holder
    SHARE = "share"  # the same part of all events
    STATE = "state"  # nothing to pair: one of them holds the state of one moment


class PairedStep(NamedTuple):
    """A step of A, the step of B that belongs to it, and the name of this moment."""

    name: str
    a: int
    b: int


@dataclass(frozen=True)
class StepAlignment:
    """The pairs of steps of two recordings.

    Attributes:
        by: how they were found.
        reason: what was compared, and why not in a better way, as a sentence.
        a, b: the steps of each pair, both ascending; the first and the last steps of the recordings are pairs, too.
        moments: some of the pairs between these, at which holders are compared.
    """

    by: AlignedBy
    reason: str
    a: Steps
    b: Steps
    moments: Sequence[PairedStep]

    def in_a(self, b: NDArray[np.integer]) -> NDArray[np.float64]:
        """Where steps of B lie between the steps of A; in proportion between two pairs."""
        found: NDArray[np.float64] = np.interp(b, self.b, self.a)
        return found


def align(
    a: RecordingSide,
    b: RecordingSide,
    holders: CommonHolders,
    by: str | None = None,
    mark: str | None = None,
) -> StepAlignment:
    """Pair the steps of two recordings.

    Args:
        a: the first recording.
        b: the second recording.
        holders: those of both.
        by: `marks`, `steps`, `labels` or `share`; None: the first of these that works.
        mark: name of the marks, see `mark_pairs`; it asks for `marks`.

    Raises:
        TraceError: the recordings cannot be aligned as asked.
        ValueError: `by` is none of these.
    """
    ways: dict[str, Callable[[], StepAlignment | str]] = {
        AlignedBy.MARKS: lambda: _by_marks(a, b, mark),
        AlignedBy.STEPS: lambda: _by_steps(a, b),
        AlignedBy.LABELS: lambda: _by_labels(a, b, holders),
        AlignedBy.SHARE: lambda: _by_share(a, b),
    }
    asked = by or (AlignedBy.MARKS if mark is not None else None)
    if asked is not None and asked not in ways:
        raise ValueError(f"cannot align recordings by {asked!r}; choose one of {', '.join(ways)}")
    states = [side.facts.letter for side in (a, b) if side.facts.only_state]
    if states:
        reason = f"{' and '.join(states)} hold{'' if len(states) > 1 else 's'} the state of one moment and no history"
        if asked is not None:
            raise TraceError(f"the recordings cannot be aligned by {asked}: {reason}")
        return StepAlignment(AlignedBy.STATE, reason, *(np.zeros(0, np.int64),) * 2, ())
    failed: list[str] = []
    for way, attempt in ways.items():
        if asked is not None and way != asked:
            continue
        found = attempt()
        if isinstance(found, StepAlignment):
            why = f" ({'; '.join(failed)})" if failed else ""
            return replace(found, by=AlignedBy(way), reason=f"{found.reason}{why}")
        failed.append(found)
    raise TraceError(f"the recordings cannot be aligned by {asked}: {'; '.join(failed)}")


def _by_marks(a: RecordingSide, b: RecordingSide, mark: str | None) -> StepAlignment | str:
    found = mark_pairs((a.trace, a.facts.pool), (b.trace, b.facts.pool), mark)
    if found.reason:
        return found.reason
    return _aligned(a, b, (found.a, found.b), found.names, _marks_text(found))


def _marks_text(found: MarkPairs) -> str:
    what = (
        f"{len(found.a):,} marks {found.name!r}"
        if found.name
        else f"{len(found.a):,} marks of the same names"
    )
    how = "the same numbers" if found.by_number else "in order, as they have no numbers that agree"
    alone = [f"{count:,} of {letter}" for count, letter in zip(found.left, "AB", strict=True) if count]
    return f"{what}, {how}" + (f"; {' and '.join(alone)} without a partner" if alone else "")


def _by_steps(a: RecordingSide, b: RecordingSide) -> StepAlignment | str:
    marks = [step_marks(side.trace, side.facts.pool) for side in (a, b)]
    ends = [
        equal_step_ends(side.trace, side.facts.pool, seqs)
        for side, (_, seqs) in zip((a, b), marks, strict=True)
    ]
    missing = [letter for letter, mine in zip("AB", ends, strict=True) if len(mine) < FEWEST_MARKS]
    if missing:
        return f"{' and '.join(missing)} {'have' if len(missing) > 1 else 'has'} no equal steps"
    count = min(map(len, ends))
    names = [f"equal step {order:,}" for order in range(1, count + 1)]
    known = " and ".join(repr(name) for name, _ in marks)
    return _aligned(
        a, b, (ends[0][:count], ends[1][:count]), names, f"{count:,} equal steps, in order (marks {known})"
    )


def _by_labels(a: RecordingSide, b: RecordingSide, holders: CommonHolders) -> StepAlignment | str:
    holders = holders if a.how.by == "op" else CommonHolders(a, b, "op")
    pairs = label_pairs(a, b, holders)
    if len(pairs[0]) < FEWEST:
        return f"{counted(len(pairs[0]), 'allocation')} of the same holders in the same order, and {FEWEST} are needed"
    chosen = evenly(len(pairs[0]), _MOST_INFERRED)
    rows = holders.rows(0, a.allocations)[np.searchsorted(a.allocations["born"], pairs[0][chosen] - 1)]
    names = [""] * len(pairs[0])
    for place, row in zip(chosen.tolist(), rows.tolist(), strict=True):
        names[place] = f"step {int(pairs[0][place]):,} of A: {holders.names[row]} allocates"
    reason = f"{len(pairs[0]):,} allocations of the same holders in the same order"
    return _aligned(a, b, pairs, names, reason, _MOST_INFERRED)


def _by_share(a: RecordingSide, b: RecordingSide) -> StepAlignment:
    parts = np.arange(1, _MOST_INFERRED)
    pairs = [
        side.facts.first + (side.facts.last - side.facts.first) * parts // _MOST_INFERRED for side in (a, b)
    ]
    names = [f"{100 * part // _MOST_INFERRED} % of the events" for part in parts.tolist()]
    return _aligned(a, b, (pairs[0], pairs[1]), names, "the same share of all events")


def _aligned(  # noqa: PLR0913, PLR0917  the pairs and what is said of them
    a: RecordingSide,
    b: RecordingSide,
    pairs: tuple[Steps, Steps],
    names: Sequence[str],
    reason: str,
    most: int = MOST,
) -> StepAlignment:
    """The alignment, whose `by` the caller sets."""
    chosen = evenly(len(names), most)
    moments = tuple(PairedStep(names[at], int(pairs[0][at]), int(pairs[1][at])) for at in chosen.tolist())
    ends = [
        np.concatenate([[side.facts.first], steps, [side.facts.last]]).astype(np.int64)
        for side, steps in zip((a, b), pairs, strict=True)
    ]
    return StepAlignment(AlignedBy.SHARE, reason, ends[0], ends[1], moments)
