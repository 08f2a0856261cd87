"""RecordingComparison: two recordings compared, as tables and as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.model.comparison.alignment import AlignedBy, PairedStep, StepAlignment, align
from bfcviz.model.comparison.common_holders import CommonHolders
from bfcviz.model.comparison.growth_changes import GrowthChanges, growth_changes
from bfcviz.model.comparison.holder_changes import changes_table, holder_changes
from bfcviz.model.comparison.main_parts import main_parts, spread_parts
from bfcviz.model.comparison.notes import notes
from bfcviz.model.comparison.recording_totals import (
    RecordingTotals,
    highest_between,
    recording_totals,
    totals_table,
)
from bfcviz.model.comparison.sides import ComparedRecording, RecordingSide
from bfcviz.terminal import printable

AT_PEAK = "peak"
"""The moment at which each recording has its most bytes in use."""

AT_END = "end"
"""The moment after the last event of each recording."""


_BARS: Final = 14
"""Parts of the difference in a picture."""


class PeakPart(NamedTuple):
    """A holder, with those below it: bytes at the peak of B less bytes at the peak of A, and of how many holders."""

    holder: str
    bytes: int
    holders: int


class PeakParts(NamedTuple):
    """Parts of the difference of the peaks, the largest first, and what is left without them, in bytes."""

    named: Sequence[PeakPart]
    left: int


@dataclass(frozen=True, repr=False)
class RecordingComparison:
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

    a: ComparedRecording
    b: ComparedRecording
    by: str
    alignment: StepAlignment
    totals: pa.Table
    moments: pa.Table
    holders: pa.Table
    growth: GrowthChanges
    parts: PeakParts
    spread: PeakParts
    series: tuple[NDArray[np.void], NDArray[np.void]]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<RecordingComparison: {self.headline}>"

    def __str__(self) -> str:
        from bfcviz.model.comparison.text import comparison_lines  # noqa: PLC0415  it imports this module

        return "\n".join(map(printable, comparison_lines(self)))

    @property
    def headline(self) -> str:
        """The answer in one line."""
        from bfcviz.model.comparison.text import headline  # noqa: PLC0415  it imports this module

        return headline(self)

    def total(self, measure: str) -> tuple[float | None, float | None]:
        """A measure in A and in B; None: not known."""
        row = self.totals["measure"].to_pylist().index(measure)
        return self.totals["a"][row].as_py(), self.totals["b"][row].as_py()

    def holders_at(self, moment: str) -> pa.Table:
        """The rows of `holders` of one moment, the largest changes first."""
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
        by: what holders are found by, see `bfcviz.model.holders.holders`.
        align_by: `marks`, `steps`, `labels` or `share`; None: the first of these that works.
        mark: name of the marks that separate the steps of the program; None: see `mark_pairs`.

    Raises:
        TraceError: a trace has no such heap, its events contradict each other, or they cannot be aligned as asked.
        ValueError: `by` or `align_by` is unknown.
    """
    sides = RecordingSide("A", *a, by), RecordingSide("B", *b, by)
    holders = CommonHolders(*sides)
    alignment = align(*sides, holders, align_by, mark)
    totals = (
        recording_totals(sides[0], [pair.a for pair in alignment.moments]),
        recording_totals(sides[1], [pair.b for pair in alignment.moments]),
    )
    moments = _moments(sides, alignment, (totals[0].peak, totals[1].peak))
    changes = holder_changes(*sides, holders, moments)
    return RecordingComparison(
        sides[0].facts,
        sides[1].facts,
        by,
        alignment,
        totals_table(*totals),
        _moments_table(changes, totals, moments, (sides[0].facts.first, sides[1].facts.first)),
        changes_table(changes, holders, moments),
        growth_changes(*sides, holders, mark),
        *_parts(changes, holders, sides[1]),
        (totals[0].series, totals[1].series),
        tuple(notes(*sides, holders)),
    )


def _moments(
    sides: tuple[RecordingSide, RecordingSide], alignment: StepAlignment, peaks: tuple[int, int]
) -> list[PairedStep]:
    """The peaks, the pairs of steps, and the ends; of states, which have no end, only the peaks."""
    ends = [PairedStep(AT_END, sides[0].facts.last, sides[1].facts.last)]
    return [
        PairedStep(AT_PEAK, *peaks),
        *alignment.moments,
        *([] if alignment.by is AlignedBy.STATE else ends),
    ]


def _parts(
    changes: NDArray[np.void], holders: CommonHolders, b: RecordingSide
) -> tuple[PeakParts, PeakParts]:
    """The few parts for a sentence, and more for a picture."""
    at_peak = changes[changes["moment"] == 0]
    differences = (at_peak["b_bytes"].astype(np.int64) - at_peak["a_bytes"].astype(np.int64)).tolist()
    paths = [holders.paths[row] for row in at_peak["holder"].tolist()]
    found = main_parts(paths, differences), spread_parts(paths, differences, _BARS)
    brief, spread = (
        PeakParts(tuple(PeakPart(b.how.text(part.path), part.bytes, part.holders) for part in named), left)
        for named, left in found
    )
    return brief, spread


def _moments_table(
    changes: NDArray[np.void],
    totals: tuple[RecordingTotals, RecordingTotals],
    moments: Sequence[PairedStep],
    first: tuple[int, int],
) -> pa.Table:
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
