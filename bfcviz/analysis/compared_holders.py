"""What each holder has in both recordings: at a moment, for each step, and which few explain the difference."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.analysis.alignment import PairedStep
from bfcviz.analysis.compared_recordings import CommonHolders, RecordingSide, shared
from bfcviz.analysis.leaks import Growth, growth
from bfcviz.events.row_copy import joined
from bfcviz.model.equal_steps import equal_steps
from bfcviz.model.grouping import Path
from bfcviz.model.model import Model

# ------------------------------------------------------------------------------
# Holder changes: what each holder has at a moment of one recording and at the same moment of the other.

CHANGE: Final = np.dtype(
    [
        ("moment", "<u4"),
        ("holder", "<u4"),  # row of `CommonHolders`
        ("a_bytes", "<u8"),
        ("b_bytes", "<u8"),
        ("a_chunks", "<u8"),
        ("b_chunks", "<u8"),
        (
            "moved_bytes",
            "<u8",
        ),  # of the bytes that both have, those without a chunk of the same size at the same place
    ]
)
"""One holder at one moment; a place is the slot of a region and an offset in it, as regions lie anywhere."""

_SLOTS: Final = 1 << 16
_OFFSET_BITS: Final = np.uint64(48)


class HolderVerdict(StrEnum):
    """What happened to a holder, from A to B."""

    APPEARED = "appeared"  # A never allocates for it
    VANISHED = "vanished"  # B never allocates for it
    GREW = "grew"  # more bytes in B at this moment
    SHRANK = "shrank"  # fewer
    MOVED = "moved"  # as many, some of them at another place
    SAME = "same"


def holder_changes(
    a: RecordingSide, b: RecordingSide, holders: CommonHolders, moments: Sequence[PairedStep]
) -> NDArray[np.void]:
    """Rows of CHANGE: for each moment every holder with bytes in A or B, by the size of the difference.

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
            places.append(_places(side.model, chunks))
        rows = [holders.rows(side, chunks) for side, chunks in enumerate(used)]
        found.append(_changes(number, rows, used, places, len(holders)))
    return joined(found)


def verdicts(changes: NDArray[np.void], holders: CommonHolders) -> NDArray[np.intp]:
    """The verdict on each row, as its index in `HolderVerdict`."""
    before, after = changes["a_bytes"], changes["b_bytes"]
    ever = holders.allocated[:, changes["holder"]]
    conditions = [~ever[0], ~ever[1], after > before, after < before, changes["moved_bytes"] > 0]
    found: NDArray[np.intp] = np.select(conditions, np.arange(5), 5).astype(np.intp)
    return found


def changes_table(
    changes: NDArray[np.void], holders: CommonHolders, moments: Sequence[PairedStep]
) -> pa.Table:
    """The rows with the names of moments, holders and verdicts; sizes in bytes."""
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


def _changes(
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


def _places(model: Model, chunks: NDArray[np.void]) -> NDArray[np.uint64]:
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


# ------------------------------------------------------------------------------
# The few holders that explain a difference: as deep in the tree of names as one part explains most of it.

_MOST_OF_IT: Final = 0.75
"""A part with this share of all changes below a holder stands for it."""

_CANCELS: Final = 0.5
"""Where the sum is below this share of all changes, more and less cancel out: the parts are named, not the holder."""

_NEARLY_ALL: Final = 0.9
_LEAST_SHARE: Final = 0.01
"""Of all changes: a smaller part is not drawn."""


class MainPart(NamedTuple):
    """A holder, with all below it: bytes in B less bytes in A, and of how many holders."""

    path: Path
    bytes: int
    holders: int


@dataclass
class _PartSum:
    change: int = 0
    changes: int = 0  # the sum without signs
    holders: int = 0  # with a change
    children: dict[str | None, "_PartSum"] = field(default_factory=lambda: defaultdict(_PartSum))

    def add(self, change: int) -> None:
        self.change += change
        self.changes += abs(change)
        self.holders += bool(change)


def main_parts(paths: Sequence[Path], changes: Sequence[int], most: int = 3) -> tuple[list[MainPart], int]:
    """The largest parts of a difference, and what is left without them.

    Args:
        paths: of holders.
        changes: bytes in B less bytes in A, of each.
        most: parts to name.
    """
    root = _tree(paths, changes)
    parts = sorted(
        (part for name, child in root.children.items() for part in _parts((name,), child)),
        key=lambda part: -abs(part.bytes),
    )
    named = [part for part in parts[:most] if part.bytes]
    return named, root.change - sum(part.bytes for part in named)


def spread_parts(paths: Sequence[Path], changes: Sequence[int], most: int) -> tuple[list[MainPart], int]:
    """The parts of a difference for a picture, as detailed as their number allows, and what is left without them.

    The part with the largest changes is replaced by the parts below it, as long as there are at most `most`; parts with
    less than a hundredth of all changes are left out. Arguments as for `main_parts`.
    """
    root = _tree(paths, changes)
    parts = _below((), root, root.changes)[:most]
    while True:
        room = most - len(parts) + 1
        parts.sort(key=lambda part: -part[1].changes)
        below = ((part, _below(*part, root.changes)) for part in parts if part[1].children)
        part, smaller = next((pair for pair in below if len(pair[1]) <= room and _tells(*pair)), (None, []))
        if part is None:
            break
        parts.remove(part)
        parts += smaller
    named = [MainPart(path, node.change, node.holders) for path, node in parts if node.change]
    return sorted(named, key=lambda part: -abs(part.bytes)), root.change - sum(part.bytes for part in named)


def _tells(part: tuple[Path, _PartSum], smaller: Sequence[tuple[Path, _PartSum]]) -> bool:
    """Whether the parts below say nearly all that the part says."""
    return sum(node.changes for _, node in smaller) >= _NEARLY_ALL * part[1].changes > 0


def _below(path: Path, node: _PartSum, whole: int) -> list[tuple[Path, _PartSum]]:
    """The parts directly below a holder, and what belongs to itself, the largest first; without the small ones."""
    own = _PartSum()
    own.add(node.change - sum(child.change for child in node.children.values()))
    parts: list[tuple[Path, _PartSum]] = [((*path, name), child) for name, child in node.children.items()]
    kept = [part for part in [*parts, (path, own)] if part[1].changes >= max(_LEAST_SHARE * whole, 1)]
    return sorted(kept, key=lambda part: -part[1].changes)


def _tree(paths: Sequence[Path], changes: Sequence[int]) -> _PartSum:
    root = _PartSum()
    for path, change in zip(paths, changes, strict=True):
        node = root
        node.add(change)
        for part in path if change else ():
            node = node.children[part]
            node.add(change)
    return root


def _parts(path: Path, node: _PartSum) -> Iterator[MainPart]:
    """A holder, or the part below it that stands for it, or its parts where they cancel out."""
    while node.children:
        name, largest = max(node.children.items(), key=lambda item: item[1].changes)
        if largest.changes < _MOST_OF_IT * node.changes or not node.changes:
            break
        path, node = (*path, name), largest
    if node.children and abs(node.change) < _CANCELS * node.changes:
        for name, child in node.children.items():
            yield from _parts((*path, name), child)
        return
    yield MainPart(path, node.change, node.holders)
