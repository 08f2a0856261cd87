"""The two sides of a comparison, and their alignment: which step of one belongs to which step of the other."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.marks import ENDS, has_float_value, phase_ends
from bfcviz.events.origin import Status, holds_only_states
from bfcviz.events.schema import Kind
from bfcviz.events.structured_arrays import joined
from bfcviz.events.trace import Trace
from bfcviz.model.equal_steps import (
    equal_step_ends,
    plain_step_name,
    step_mark_number,
    step_marks,
    step_marks_name,
)
from bfcviz.model.find_steps import events_of
from bfcviz.model.grouping import Grouping, Path, grouping
from bfcviz.model.model import Model
from bfcviz.units import counted

# ------------------------------------------------------------------------------
# One of two compared recordings: its trace, its heap, all its allocations, and how reliable it is.

ALLOCATION: Final = np.dtype(
    [("born", "<u8"), ("size", "<u8"), ("label", "<u4"), ("thread", "<u2"), ("stream", "<u2")]
)
"""One allocation: the `seq` of its ALLOCATE, and what its holder is found by."""


@dataclass(frozen=True)
class AlignedRecording:
    """What is known of one of two recordings that are aligned.

    Attributes:
        letter: `A` or `B`.
        name: of the file or its source, without its folder.
        heap: the name of the heap that is compared.
        pool: its index in the trace.
        heaps: how many heaps the trace has.
        first, last: the first and the last step of the trace.
        status: how reliable the events are.
        reasons: why they are not complete.
        only_state: whether it holds the state of one moment and no history.
    """

    letter: str
    name: str
    heap: str
    pool: int
    heaps: int
    first: int
    last: int
    status: Status
    reasons: tuple[str, ...]
    only_state: bool

    @classmethod
    def of(cls, letter: str, trace: Trace, pool: int) -> "AlignedRecording":
        """The facts of one of two recordings to align.

        Raises:
            TraceError: it has no such heap.
        """
        origin = trace.origin
        if not 0 <= pool < len(origin.pools):
            known = ", ".join(f"{number}: {each.name}" for number, each in enumerate(origin.pools[:20]))
            raise TraceError(
                f"heap {pool} of recording {letter} was asked for, and it has none of this number; it has {known}"
            )
        return cls(
            letter,
            trace.place,
            origin.pools[pool].name,
            pool,
            len(origin.pools),
            trace.first,
            len(trace),
            origin.status,
            tuple(origin.reasons),
            holds_only_states(origin.details),
        )


class AlignedSide:
    """One of two recordings while they are aligned and compared.

    Attributes:
        facts: what the comparison says of it.
        trace: the events.
        model: the heap; it moves.
        how: the grouping of its holders.
        kinds: how many events of each kind there are, by `Kind`, shape (9,).
        held: of ALLOCATION: the chunks in use at the first step; a trace of a window has some.
        allocations: of ALLOCATION: all allocations of the trace, in order.
    """

    def __init__(self, letter: str, trace: Trace, pool: int, by: str) -> None:
        self.facts = AlignedRecording.of(letter, trace, pool)
        self.trace = trace
        self.how: Grouping = grouping(trace, pool, by)
        with self.reading():
            self.model = Model(trace, pool)
            self.held = _aligned_allocation_rows(self.model.in_use(), "born")
            self.kinds, self.allocations = _allocations_to_align(self.model)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Say in an error which of the two aligned recordings it is about."""
        try:
            yield
        except TraceError as error:
            raise TraceError(f"recording {self.facts.letter} ({self.facts.name}): {error}") from error


def _allocations_to_align(model: Model) -> tuple[NDArray[np.int64], NDArray[np.void]]:
    kinds = np.zeros(len(Kind) + 1, np.int64)
    found = [np.zeros(0, ALLOCATION)]
    for block in model.trace.blocks():
        mine = np.where(block["pool"] == model.pool, block["kind"], 0)
        kinds += np.bincount(mine, minlength=len(kinds))
        found.append(_aligned_allocation_rows(block, "seq", np.flatnonzero(mine == Kind.ALLOCATE)))
    return kinds, joined(found)


def _aligned_allocation_rows(
    records: NDArray[np.void], born: str, at: NDArray[np.intp] | slice = slice(None)
) -> NDArray[np.void]:
    # Field by field: NumPy selects whole records a hundred times slower.
    columns = {name: records[born if name == "born" else name][at] for name in ALLOCATION.names or ()}
    found = np.zeros(len(columns["born"]), ALLOCATION)
    for name, values in columns.items():
        found[name] = values
    return found


# ------------------------------------------------------------------------------
# The holders of two recordings in one list: a row stands for the same holder in both.
#
# Holders are the same if their paths are. Between two commits the lines of code move: `train.py:41 forward` becomes
# `train.py:43 forward`. Holders without a partner are therefore compared again without the numbers of lines, and
# paired in the order of these numbers where both recordings have equally many of them.

_LINE: Final = re.compile(r"(\.(?:py|pyx|c|cc|cpp|cxx|cu|cuh|h|hpp)):(\d{1,9})\b")


class AlignedHolders:
    """The holders of two recordings, aligned: a row stands for the same holder in both.

    Args:
        by: what they are found by; None: as the recordings' own grouping says.

    Attributes:
        paths: the path of each row; of a paired holder, that of B.
        names: the same as text.
        allocated: whether each recording ever allocates for a row, or begins with chunks of it, shape (2, rows).
        moved_lines: how many holders were paired without the numbers of their lines.
        unnamed: the row of all memory without a name; None if there is none.
    """

    def __init__(self, a: AlignedSide, b: AlignedSide, by: str | None = None) -> None:
        self._hows = [
            side.how if by in {None, side.how.by} else grouping(side.trace, side.facts.pool, str(by))
            for side in (a, b)
        ]
        codes = [_holder_codes_to_align(side, how) for side, how in zip((a, b), self._hows, strict=True)]
        own = [
            [how.path(code) for code in found.tolist()] for how, found in zip(self._hows, codes, strict=True)
        ]
        renamed = _aligned_paths_with_moved_lines(*(dict.fromkeys(paths) for paths in own))
        own[0] = [renamed.get(path, path) for path in own[0]]
        rows = {path: row for row, path in enumerate(dict.fromkeys(own[0] + own[1]))}
        self.paths: list[Path] = list(rows)
        self.names = [self._hows[1].text(path) for path in rows]
        self.moved_lines = len(renamed)
        self.unnamed = rows.get((None,))
        self.allocated = np.zeros((2, len(rows)), np.bool_)
        self._lookup = []  # code -> row
        for number, (found, paths) in enumerate(zip(codes, own, strict=True)):
            lookup = np.full(int(found[-1]) + 1 if len(found) else 0, -1, np.intp)
            lookup[found] = [rows[path] for path in paths]
            self.allocated[number, lookup[found]] = True
            self._lookup.append(lookup)
        self._known = {name: row for row, name in enumerate(self.names)}
        self._known |= {self._hows[0].text(old): rows[new] for old, new in renamed.items()}

    def __len__(self) -> int:
        return len(self.paths)

    def rows(self, number: int, records: NDArray[np.void]) -> NDArray[np.intp]:
        """The row of each record of recording A (0) or B (1) among the aligned holders: its chunks or allocations."""
        codes = self._hows[number].codes(records).astype(np.intp)
        found: NDArray[np.intp] = self._lookup[number][codes]
        return found

    def row_of(self, name: str) -> int:
        """The row of an aligned holder, by its name in either recording."""
        return self._known[name]


def _holder_codes_to_align(side: AlignedSide, how: Grouping) -> NDArray[np.intp]:
    """The codes of all holders of one of the aligned recordings, ascending."""
    codes = [how.codes(records).astype(np.intp) for records in (side.held, side.allocations)]
    counts = np.bincount(np.concatenate(codes)) if sum(map(len, codes)) else np.zeros(0, np.intp)
    return np.flatnonzero(counts)


def _aligned_paths_with_moved_lines(a: Collection[Path], b: Collection[Path]) -> dict[Path, Path]:
    """Path in A -> path in B, of the holders of only one of them that differ only in the numbers of lines."""
    without: tuple[dict[Path, list[Path]], dict[Path, list[Path]]] = (defaultdict(list), defaultdict(list))
    for paths, others, groups in ((a, b, without[0]), (b, a, without[1])):
        for path in paths:
            if path not in others and any(part and _LINE.search(part) for part in path):
                groups[tuple(part and _LINE.sub(r"\1", part) for part in path)].append(path)
    found: dict[Path, Path] = {}
    for key, mine in without[0].items():
        theirs = without[1].get(key, [])
        if len(mine) == len(theirs):
            found |= zip(
                sorted(mine, key=_line_numbers_to_align),
                sorted(theirs, key=_line_numbers_to_align),
                strict=True,
            )
    return found


def _line_numbers_to_align(path: Path) -> list[int]:
    return [int(number) for part in path if part for _, number in _LINE.findall(part)]


# ------------------------------------------------------------------------------
# Pairs of steps that ascend in both recordings: the most of them that do not cross.

Steps = NDArray[np.int64]
Key = TypeVar("Key", np.int64, np.uint64)


def increasing(a: Steps, b: Steps) -> tuple[Steps, Steps]:
    """To align: the longest selection of pairs, by `a` (all different), whose steps in `b` ascend strictly, too.

    Patience sorting: `ends[k]` is the pair with the least `b` that ends a selection of k + 1 pairs.
    """
    order = np.argsort(a, kind="stable")
    a, b = a[order], b[order]
    values = b.tolist()
    tails: list[int] = []
    ends: list[int] = []
    before = [-1] * len(values)
    for place, value in enumerate(values):
        length = bisect_left(tails, value)
        before[place] = ends[length - 1] if length else -1
        tails[length : length + 1] = [value]
        ends[length : length + 1] = [place]
    chosen = []
    place = ends[-1] if ends else -1
    while place >= 0:
        chosen.append(place)
        place = before[place]
    kept = np.array(chosen[::-1], np.intp)
    return a[kept], b[kept]


def shared(a: NDArray[Key], b: NDArray[Key]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """To align: where the values lie that both arrays have, by value; each array has every value once."""
    _, first, second = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    return first.astype(np.intp), second.astype(np.intp)


def aligned_pair_indices(count: int, most: int) -> NDArray[np.intp]:
    """Indices of at most `most` of `count` aligned pairs at even distances, the last one among them."""
    if count <= most:
        return np.arange(count)
    return np.arange(1, most + 1) * count // most - 1


# ------------------------------------------------------------------------------
# Steps of two recordings that belong together by their labels: the n-th allocation of a holder in each of them.

_MOST: Final = 100_000
"""Pairs whose order is compared, at even distances; more would take more than about 0.1 s."""

_KEPT: Final = 2000
"""Pairs that the alignment keeps."""


def label_pairs(a: AlignedSide, b: AlignedSide, holders: AlignedHolders) -> tuple[Steps, Steps]:
    """Aligned steps: just after the n-th allocation of the same holder in both, in the order most of them agree on."""
    keys_a, steps_a = _nth_allocation_keys(a, holders, 0)
    keys_b, steps_b = _nth_allocation_keys(b, holders, 1)
    first, second = shared(keys_a, keys_b)
    pairs = steps_a[first], steps_b[second]
    order = np.argsort(pairs[0])
    order = order[aligned_pair_indices(len(order), _MOST)]
    found = increasing(pairs[0][order], pairs[1][order])
    kept = aligned_pair_indices(len(found[0]), _KEPT)
    return found[0][kept], found[1][kept]


def _nth_allocation_keys(
    side: AlignedSide, holders: AlignedHolders, number: int
) -> tuple[NDArray[np.uint64], Steps]:
    """To align: of each allocation with a name its holder and its count so far, as one key; and its step."""
    rows = holders.rows(number, side.allocations)
    common = holders.allocated[0] & holders.allocated[1]
    if holders.unnamed is not None:
        common[holders.unnamed] = False
    at = np.flatnonzero(common[rows]) if len(rows) else np.zeros(0, np.intp)
    order = at[np.argsort(rows[at], kind="stable")]
    sorted_rows = rows[order]
    nth = np.arange(len(order)) - np.searchsorted(sorted_rows, sorted_rows)
    keys = (sorted_rows.astype(np.uint64) << np.uint64(40)) | nth.astype(np.uint64)
    return keys, side.allocations["born"][order].astype(np.int64) + 1


# ------------------------------------------------------------------------------
# Steps of two recordings that belong together by their marks: the same name, and the same number or order.

FEWEST_MARKS: Final = 2
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
    """The marks of one name in one recording to align: `seq` and number of each; None: it has no number."""

    seqs: list[int] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)

    def numbered(self) -> Mapping[int, int] | None:
        """Aligned marks by number: number -> `seq`; None if not every mark has a number of its own."""
        pairs = zip(self.numbers, self.seqs, strict=True)
        known = {number: seq for number, seq in pairs if number is not None}
        return known if len(known) == len(self.seqs) else None


class _Pair(NamedTuple):
    a: int
    b: int
    name: str


def mark_pairs(a: Heap, b: Heap, name: str | None = None) -> MarkPairs:
    """The marks that two heaps to align have in common.

    Args:
        a: the heap of the first recording.
        b: the heap of the second recording.
        name: of the marks; a number at its end does not matter. None: one with `step`, `iteration`, `batch` or `epoch`
            in its name that both have, else all that both have.
    """
    found = _marks_by_name(*a), _marks_by_name(*b)
    if not found[0] or not found[1]:
        without = [letter for letter, marks in zip("AB", found, strict=True) if not marks]
        return MarkPairs(reason=f"{' and '.join(without)} {'have' if len(without) > 1 else 'has'} no marks")
    common = {key: marks.seqs for key, marks in found[0].items() if key in found[1]}
    chosen = step_marks_name(common, name)
    if chosen is None and name is not None:
        known = (
            f"both have {', '.join(map(repr, list(common)[:5]))}" if common else "they have no mark in common"
        )
        return MarkPairs(reason=f"no mark {plain_step_name(name)!r} is in both; {known}")
    tried = MarkPairs()
    for keys in ([chosen] if chosen else [], list(common) if name is None else []):
        tried = _paired_marks(found, keys, a, b) if keys else tried
        if len(tried.a) >= FEWEST_MARKS:
            return tried
    reason = f"{counted(len(tried.a), 'mark')} of both in the same order, and {FEWEST_MARKS} are needed"
    return MarkPairs(reason=reason)


def _marks_by_name(trace: Trace, pool: int) -> dict[str, _Marks]:
    """To align: the plain marks and the ends of phases of a heap, by name without a number at its end."""
    marks = events_of(trace, [Kind.MARK], pool)
    found: dict[str, _Marks] = defaultdict(_Marks)
    rows = zip(marks["seq"].tolist(), marks["label"].tolist(), marks["size"].tolist(), strict=True)
    for (seq, label, value), end in zip(rows, phase_ends(marks, trace.labels), strict=True):
        if end is not None and end.side != ENDS:
            continue
        text = trace.labels.name(label) if end is None else end.name
        # The value of a phase only pairs its begin with its end; a measured value, such as a loss, counts nothing.
        is_count = end is None and value and not has_float_value(trace.labels, label)
        number = value if is_count else step_mark_number(text)
        mine = found[plain_step_name(text)]
        mine.seqs.append(seq)
        mine.numbers.append(number)
    for mine in found.values():
        # A counter from 0: a value of 0 alone is no number.
        if len(mine.numbers) > 1 and mine.numbers[0] is None and not {0, None} & set(mine.numbers[1:]):
            mine.numbers[0] = 0
    return dict(found)


def _paired_marks(
    found: tuple[dict[str, _Marks], dict[str, _Marks]], keys: Sequence[str], a: Heap, b: Heap
) -> MarkPairs:
    """Aligned pairs of the marks of these names: by number if all have numbers that agree, else in order."""
    several = [(key, found[0][key], found[1][key]) for key in keys]
    numbered = [_mark_pairs_by_number(*marks) for marks in several]
    by_number = all(pairs is not None for pairs in numbered)
    pairs = {
        pair.a: pair
        for marks, own in zip(several, numbered, strict=True)
        for pair in (own if by_number and own is not None else _mark_pairs_in_order(*marks, a, b))
    }
    steps = increasing(
        np.array([pair.a for pair in pairs.values()], np.int64),
        np.array([pair.b for pair in pairs.values()], np.int64),
    )
    left = [sum(len(marks[key].seqs) for key in keys) - len(steps[0]) for marks in found]
    names = tuple(pairs[step].name for step in steps[0].tolist())
    return MarkPairs(keys[0] if len(keys) == 1 else "", *steps, names, by_number, (left[0], left[1]))


def _mark_pairs_by_number(name: str, a: _Marks, b: _Marks) -> list[_Pair] | None:
    """The pairs with the same number; None if the numbers of A and B do not agree."""
    mine, theirs = a.numbered(), b.numbered()
    if mine is None or theirs is None:
        return None
    both = mine.keys() & theirs.keys()
    if len(both) < max(_LEAST_SHARE * min(len(mine), len(theirs)), 1):
        return None
    return [_Pair(mine[number], theirs[number], f"{name} {number:,}") for number in sorted(both)]


def _mark_pairs_in_order(name: str, mine: _Marks, theirs: _Marks, a: Heap, b: Heap) -> list[_Pair]:
    """The first with the first, and so on; of different numbers of marks only those after equal steps."""
    first, second = mine.seqs, theirs.seqs
    if len(first) != len(second):
        equal = [
            equal_step_ends(*heap, np.array(seqs, np.int64)).tolist()
            for heap, seqs in ((a, first), (b, second))
        ]
        if min(map(len, equal)) >= FEWEST_MARKS:
            first, second = equal
    single = len(first) == len(second) == 1
    pairs = enumerate(zip(first, second, strict=False), 1)
    return [_Pair(*pair, name if single else f"{name} {number:,}") for number, pair in pairs]


# ------------------------------------------------------------------------------
# Alignment: which step of one recording belongs to which step of the other, and how that was found.

MOST: Final = 64
"""Moments between the begin and the end at which holders are compared, where marks align the recordings."""

_MOST_INFERRED: Final = 20
"""The same where labels or shares do."""


class AlignedBy(StrEnum):
    """How steps of two recordings were aligned; of several ways, the first one that works."""

    MARKS = "marks"  # marks of the same name, by number or by order
    STEPS = "steps"  # the equal steps of both programs, whose marks have different names
    LABELS = "labels"  # the n-th allocation of a holder
    SHARE = "share"  # the same part of all events
    STATE = "state"  # nothing to pair: one of them holds the state of one moment


class PairedStep(NamedTuple):
    """Two aligned steps: a step of A, the step of B that belongs to it, and the name of this moment."""

    name: str
    a: int
    b: int


@dataclass(frozen=True)
class StepAlignment:
    """The alignment: the pairs of steps of two recordings.

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
    a: AlignedSide,
    b: AlignedSide,
    holders: AlignedHolders,
    by: str | None = None,
    mark: str | None = None,
) -> StepAlignment:
    """Align two recordings: pair their steps.

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
        AlignedBy.MARKS: lambda: _align_by_marks(a, b, mark),
        AlignedBy.STEPS: lambda: _align_by_steps(a, b),
        AlignedBy.LABELS: lambda: _align_by_labels(a, b, holders),
        AlignedBy.SHARE: lambda: _align_by_share(a, b),
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


def _align_by_marks(a: AlignedSide, b: AlignedSide, mark: str | None) -> StepAlignment | str:
    found = mark_pairs((a.trace, a.facts.pool), (b.trace, b.facts.pool), mark)
    if found.reason:
        return found.reason
    return _aligned_at_pairs(a, b, (found.a, found.b), found.names, _mark_pairs_text(found))


def _mark_pairs_text(found: MarkPairs) -> str:
    what = f"{len(found.a):,} marks {repr(found.name) if found.name else 'of the same names'}"
    how = "the same numbers" if found.by_number else "in order, as they have no numbers that agree"
    alone = [f"{count:,} of {letter}" for count, letter in zip(found.left, "AB", strict=True) if count]
    return f"{what}, {how}" + (f"; {' and '.join(alone)} without a partner" if alone else "")


def _align_by_steps(a: AlignedSide, b: AlignedSide) -> StepAlignment | str:
    marks = [step_marks(side.trace, side.facts.pool) for side in (a, b)]
    unmarked = [side.facts.letter for side, (name, _) in zip((a, b), marks, strict=True) if not name]
    if unmarked:
        return f"no marks separate the steps of {' and '.join(unmarked)}"
    ends = [
        equal_step_ends(side.trace, side.facts.pool, seqs)
        for side, (_, seqs) in zip((a, b), marks, strict=True)
    ]
    missing = [letter for letter, mine in zip("AB", ends, strict=True) if len(mine) < FEWEST_MARKS]
    if missing:
        return f"fewer than {FEWEST_MARKS} steps between the marks of {' and '.join(missing)} did about the same work"
    count = min(map(len, ends))
    names = [f"equal step {order:,}" for order in range(1, count + 1)]
    known = " and ".join(repr(name) for name, _ in marks)
    return _aligned_at_pairs(
        a, b, (ends[0][:count], ends[1][:count]), names, f"{count:,} equal steps, in order (marks {known})"
    )


def _align_by_labels(a: AlignedSide, b: AlignedSide, holders: AlignedHolders) -> StepAlignment | str:
    holders = holders if a.how.by == "op" else AlignedHolders(a, b, "op")
    pairs = label_pairs(a, b, holders)
    if len(pairs[0]) < FEWEST_MARKS:
        found = counted(len(pairs[0]), "allocation")
        return f"{found} of the same holders in the same order, and {FEWEST_MARKS} are needed"
    chosen = aligned_pair_indices(len(pairs[0]), _MOST_INFERRED)
    rows = holders.rows(0, a.allocations)[np.searchsorted(a.allocations["born"], pairs[0][chosen] - 1)]
    names = [""] * len(pairs[0])
    for place, row in zip(chosen.tolist(), rows.tolist(), strict=True):
        names[place] = f"step {int(pairs[0][place]):,} of A: {holders.names[row]} allocates"
    reason = f"{len(pairs[0]):,} allocations of the same holders in the same order"
    return _aligned_at_pairs(a, b, pairs, names, reason, _MOST_INFERRED)


def _align_by_share(a: AlignedSide, b: AlignedSide) -> StepAlignment:
    parts = np.arange(1, _MOST_INFERRED)
    pairs = [
        side.facts.first + (side.facts.last - side.facts.first) * parts // _MOST_INFERRED for side in (a, b)
    ]
    names = [f"{100 * part // _MOST_INFERRED} % of the events" for part in parts.tolist()]
    return _aligned_at_pairs(a, b, (pairs[0], pairs[1]), names, "the same share of all events")


def _aligned_at_pairs(  # noqa: PLR0913, PLR0917  the pairs and what is said of them
    a: AlignedSide,
    b: AlignedSide,
    pairs: tuple[Steps, Steps],
    names: Sequence[str],
    reason: str,
    most: int = MOST,
) -> StepAlignment:
    """The alignment, whose `by` the caller sets."""
    chosen = aligned_pair_indices(len(names), most)
    moments = tuple(PairedStep(names[at], int(pairs[0][at]), int(pairs[1][at])) for at in chosen.tolist())
    ends = [
        np.concatenate([[side.facts.first], steps, [side.facts.last]]).astype(np.int64)
        for side, steps in zip((a, b), pairs, strict=True)
    ]
    return StepAlignment(AlignedBy.SHARE, reason, ends[0], ends[1], moments)
