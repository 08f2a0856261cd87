"""The two sides of a comparison: each recording with its allocations, and the holders of both in one list."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.why import failing_pool, first_failure
from bfcviz.errors import TraceError
from bfcviz.events.origin import Pool, Status, holds_only_states
from bfcviz.events.row_copy import joined
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.grouping import Grouping, Path, grouping
from bfcviz.model.model import Model

# ------------------------------------------------------------------------------
# One of two compared recordings: its trace, its heap, all its allocations, and how reliable it is.

ALLOCATION: Final = np.dtype([("born", "<u8"), ("label", "<u4"), ("thread", "<u2"), ("stream", "<u2")])
"""One allocation: the `seq` of its ALLOCATE, and what its holder is found by."""


@dataclass(frozen=True)
class ComparedRecording:
    """What a comparison says of one recording.

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
    def of(cls, letter: str, trace: Trace, pool: int) -> "ComparedRecording":
        """The facts of a trace.

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
            PurePath(str(trace.path or origin.source or "")).name or "not from a file",
            origin.pools[pool].name,
            pool,
            len(origin.pools),
            trace.first,
            len(trace),
            origin.status,
            tuple(origin.reasons),
            holds_only_states(origin.details),
        )


class RecordingSide:
    """A recording while it is compared.

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
        self.facts = ComparedRecording.of(letter, trace, pool)
        self.trace = trace
        self.how: Grouping = grouping(trace, pool, by)
        with self.reading():
            self.model = Model(trace, pool)
            self.held = _allocations(self.model.in_use(), "born")
            self.kinds, self.allocations = _read(self.model)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Say in an error which of the two recordings it is about."""
        try:
            yield
        except TraceError as error:
            raise TraceError(f"recording {self.facts.letter} ({self.facts.name}): {error}") from error


def _read(model: Model) -> tuple[NDArray[np.int64], NDArray[np.void]]:
    kinds = np.zeros(len(Kind) + 1, np.int64)
    found = [np.zeros(0, ALLOCATION)]
    for block in model.trace.blocks():
        mine = np.where(block["pool"] == model.pool, block["kind"], 0)
        kinds += np.bincount(mine, minlength=len(kinds))
        found.append(_allocations(block, "seq", np.flatnonzero(mine == Kind.ALLOCATE)))
    return kinds, joined(found)


def _allocations(
    records: NDArray[np.void], born: str, at: NDArray[np.intp] | slice = slice(None)
) -> NDArray[np.void]:
    # Field by field: NumPy selects whole records a hundred times slower.
    columns = {name: records[born if name == "born" else name][at] for name in ALLOCATION.names or ()}
    found = np.zeros(len(columns["born"]), ALLOCATION)
    for name, values in columns.items():
        found[name] = values
    return found


def paired_heaps(a: Trace, b: Trace) -> tuple[int, int]:
    """The heaps of two recordings that are compared: two of one name.

    That of the first failed request of `b`, else of `a`, and in the other recording the heap of this name; without a
    failure the first heap of `a` that `b` has, too. Names that differ only in the number of a device are one name, if
    no other is. Where nothing fits, the failed or first heap of each.
    """
    failed = [first_failure(trace) for trace in (a, b)]
    if failed[1] is not None:
        other = _of_name(a, b, failed[1][0])
        return failing_pool(a) if other is None else other, failed[1][0]
    if failed[0] is not None:
        other = _of_name(b, a, failed[0][0])
        return failed[0][0], 0 if other is None else other
    pairs = ((number, _of_name(b, a, number)) for number in range(len(a.origin.pools)))
    return next(((number, other) for number, other in pairs if other is not None), (0, 0))


def _of_name(trace: Trace, other: Trace, pool: int) -> int | None:
    """The heap of a trace with the name of a heap of another one; of several the first."""
    for name in (_full_name, _allocator_name, _name_without_device):
        wanted = name(other.origin.pools[pool])
        for number, each in enumerate(trace.origin.pools):
            if name(each) == wanted:
                return number
    return None


def _full_name(pool: Pool) -> str:
    return pool.name


def _allocator_name(pool: Pool) -> str:
    return str(pool.options.get("allocator_name") or pool.name)


def _name_without_device(pool: Pool) -> str:
    return _DEVICE.sub("", _allocator_name(pool))


_DEVICE: Final = re.compile(r"\d+")


# ------------------------------------------------------------------------------
# The holders of two recordings in one list: a row stands for the same holder in both.
#
# Holders are the same if their paths are. Between two commits the lines of code move: `train.py:41 forward` becomes
# `train.py:43 forward`. Holders without a partner are therefore compared again without the numbers of lines, and
# paired in the order of these numbers where both recordings have equally many of them.

_LINE: Final = re.compile(r"(\.(?:py|pyx|c|cc|cpp|cxx|cu|cuh|h|hpp)):(\d{1,9})\b")


class CommonHolders:
    """The holders of both recordings.

    Args:
        a: the first recording.
        b: the second recording.
        by: what they are found by; None: as the recordings' own grouping says.

    Attributes:
        paths: the path of each row; of a paired holder, that of B.
        names: the same as text.
        allocated: whether each recording ever allocates for a row, or begins with chunks of it, shape (2, rows).
        moved_lines: how many holders were paired without the numbers of their lines.
        unnamed: the row of all memory without a name; None if there is none.
    """

    def __init__(self, a: RecordingSide, b: RecordingSide, by: str | None = None) -> None:
        self._hows = [
            side.how if by in {None, side.how.by} else grouping(side.trace, side.facts.pool, str(by))
            for side in (a, b)
        ]
        codes = [_present(side, how) for side, how in zip((a, b), self._hows, strict=True)]
        own = [
            [how.path(code) for code in found.tolist()] for how, found in zip(self._hows, codes, strict=True)
        ]
        renamed = _renamed(*(dict.fromkeys(paths) for paths in own))
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
        """The row of each record of recording A (0) or B (1): of its chunks in use, or of its allocations."""
        codes = self._hows[number].codes(records).astype(np.intp)
        found: NDArray[np.intp] = self._lookup[number][codes]
        return found

    def row_of(self, name: str) -> int:
        """The row of a holder, by its name in either recording."""
        return self._known[name]


def _present(side: RecordingSide, how: Grouping) -> NDArray[np.intp]:
    """The codes of all holders of a recording, ascending."""
    codes = [how.codes(records).astype(np.intp) for records in (side.held, side.allocations)]
    counts = np.bincount(np.concatenate(codes)) if sum(map(len, codes)) else np.zeros(0, np.intp)
    return np.flatnonzero(counts)


def _renamed(a: Collection[Path], b: Collection[Path]) -> dict[Path, Path]:
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
            found |= zip(sorted(mine, key=_lines), sorted(theirs, key=_lines), strict=True)
    return found


def _lines(path: Path) -> list[int]:
    return [int(number) for part in path if part for _, number in _LINE.findall(part)]


# ------------------------------------------------------------------------------
# Pairs of steps that ascend in both recordings: the most of them that do not cross.

Steps = NDArray[np.int64]
Key = TypeVar("Key", np.int64, np.uint64)


def increasing(a: Steps, b: Steps) -> tuple[Steps, Steps]:
    """The longest selection of pairs, in the order of `a`, whose steps in `b` ascend strictly, too.

    Patience sorting: `ends[k]` is the pair with the least `b` that ends a selection of k + 1 pairs.

    Args:
        a: steps, all different.
        b: the step that belongs to each of them.
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
    """Where the values lie that both arrays have, by value; each array has every value once."""
    _, first, second = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    return first.astype(np.intp), second.astype(np.intp)


def evenly(count: int, most: int) -> NDArray[np.intp]:
    """Indices of at most `most` of `count` things at even distances, the last one among them."""
    if count <= most:
        return np.arange(count)
    return np.arange(1, most + 1) * count // most - 1
