"""Growth changes: holders that grow with every step of the program in one recording and not, or less, in the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import pyarrow as pa

from bfcviz.model.comparison.common_holders import CommonHolders
from bfcviz.model.comparison.sides import RecordingSide
from bfcviz.model.holders.equal_steps import equal_steps
from bfcviz.model.holders.growth import Growth, growth

_ALIKE: Final = 1.05
"""Rates within this factor are the same rate."""


class GrowthVerdict(StrEnum):
    """How a holder grows in B, compared with A."""

    ONLY_B = "only in B"  # every step in B, not in A
    FASTER = "faster in B"
    SAME = "the same"
    SLOWER = "slower in B"
    ONLY_A = "only in A"
    UNKNOWN = "not known"  # one of them has no equal steps to compare


@dataclass(frozen=True)
class HolderGrowth:
    """One holder that grows every step in at least one recording.

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
    """The holders that grow every step, compared.

    Attributes:
        rows: those that grow only in B first, each by bytes a step.
        reasons: why growth is not known in A and in B; empty: it is known.
        steps: how many ends of equal steps were compared in A and in B.
    """

    rows: Sequence[HolderGrowth]
    reasons: tuple[str, str]
    steps: tuple[int, int]

    def to_arrow(self) -> pa.Table:
        """One row a holder: bytes it gains each step in A and in B, and the verdict."""
        return pa.table(
            {
                "holder": pa.array([row.holder for row in self.rows], pa.string()),
                "verdict": pa.array([str(row.verdict) for row in self.rows], pa.string()),
                "a_bytes_a_step": pa.array([row.a for row in self.rows], pa.float64()),
                "b_bytes_a_step": pa.array([row.b for row in self.rows], pa.float64()),
            }
        )


def growth_changes(
    a: RecordingSide, b: RecordingSide, holders: CommonHolders, mark: str | None = None
) -> GrowthChanges:
    """Compare the growth of all holders over the equal steps of each recording; the models return to their steps.

    Args:
        a: the first recording.
        b: the second recording.
        holders: those of both.
        mark: name of the marks that separate steps; None: see `equal_steps`.
    """
    found = [_growth(side, mark) for side in (a, b)]
    rates = [_rates(each, holders) for each in found]
    known = [not each.steps.reason for each in found]
    rows = []
    for row in sorted(rates[0].keys() | rates[1].keys()):
        before, after = (
            rate.get(row, 0.0) if there else None for rate, there in zip(rates, known, strict=True)
        )
        rows.append(HolderGrowth(holders.names[row], _verdict(before, after), before, after))
    order = list(GrowthVerdict)
    rows.sort(key=lambda row: (order.index(row.verdict), -max(row.a or 0.0, row.b or 0.0)))
    reasons, ends = [each.steps.reason for each in found], [len(each.steps.ends) for each in found]
    return GrowthChanges(tuple(rows), (reasons[0], reasons[1]), (ends[0], ends[1]))


def _growth(side: RecordingSide, mark: str | None) -> Growth:
    with side.reading():
        return growth(side.model, equal_steps(side.trace, side.facts.pool, mark), side.how)


def _rates(found: Growth, holders: CommonHolders) -> dict[int, float]:
    """Bytes a step of each holder that grows every step, by its row."""
    return {holders.row_of(found.names[row]): found.a_step(row)[1] for row in range(found.growing)}


def _verdict(a: float | None, b: float | None) -> GrowthVerdict:
    if a is None or b is None:
        return GrowthVerdict.UNKNOWN
    if not a or not b:
        return GrowthVerdict.ONLY_A if a else GrowthVerdict.ONLY_B
    if max(a, b) <= _ALIKE * min(a, b):
        return GrowthVerdict.SAME
    return GrowthVerdict.FASTER if b > a else GrowthVerdict.SLOWER
