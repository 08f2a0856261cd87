"""The holders of two recordings in one list: a row stands for the same holder in both.

Holders are the same if their paths are. Between two commits the lines of code move: `train.py:41 forward` becomes
`train.py:43 forward`. Holders without a partner are therefore compared again without the numbers of lines, and
paired in the order of these numbers where both recordings have equally many of them.
"""

import re
from collections import defaultdict
from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.comparison.sides import RecordingSide
from bfcviz.model.holders.grouping import Grouping, grouping
from bfcviz.model.holders.holder_paths import Path

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
