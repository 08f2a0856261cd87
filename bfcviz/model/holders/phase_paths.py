"""Phase paths: the phases that were open when a chunk was allocated, from the outermost to the innermost."""

from collections import defaultdict
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.browse.navigation import events_of
from bfcviz.model.browse.phases import BEGINS, phase_ends
from bfcviz.model.holders.holder_paths import Path

_DEEPEST: Final = 32
"""Open phases in a path: the outermost ones."""


class _Spans:
    """From which event on which path applies."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.paths: list[int] = []
        self.open: dict[tuple[str, int], None] = {}

    def at(self, born: NDArray[np.uint64]) -> NDArray[np.intp]:
        """The number of the path for each of these events; 0: no phase was open."""
        place = np.searchsorted(np.array(self.seqs, np.uint64), born, side="right")
        found: NDArray[np.intp] = np.append(0, np.array(self.paths, np.intp))[place]
        return found


class PhasePaths:
    """The paths of the phases of one heap.

    A phase belongs to the thread of its marks. A chunk of a thread that has no phase open gets the phases that are open
    in any thread: frameworks allocate for a program in threads of their own.

    Attributes:
        paths: the path of each number; that of 0 is `(None,)`.
    """

    def __init__(self, trace: Trace, pool: int) -> None:
        self.paths: list[Path] = [(None,)]
        self._numbers: dict[Path, int] = {}
        self._any = _Spans()
        self._threads: dict[int, _Spans] = defaultdict(_Spans)
        marks = events_of(trace, [Kind.MARK], pool)
        for mark, end in zip(marks, phase_ends(marks, trace.labels), strict=True):
            if end is None:
                continue
            key, seq = (end.name, int(mark["size"])), int(mark["seq"])
            for spans in (self._any, self._threads[int(mark["by"])]):
                if end.side == BEGINS:
                    spans.open[key] = None
                else:
                    spans.open.pop(key, None)
                spans.seqs.append(seq)
                spans.paths.append(self._number(spans))

    def numbers(self, records: NDArray[np.void]) -> NDArray[np.intp]:
        """The number of the path of each record, by its `born` and `thread`."""
        born = records["born"]
        found = self._any.at(born)
        for thread, spans in self._threads.items():
            mine = np.flatnonzero(records["thread"] == thread)
            own = spans.at(born[mine])
            found[mine] = np.where(own > 0, own, found[mine])
        return found

    def _number(self, spans: _Spans) -> int:
        path: Path = tuple(name for name, _ in islice(spans.open, _DEEPEST))
        if not path:
            return 0
        number = self._numbers.get(path)
        if number is None:
            number = self._numbers[path] = len(self.paths)
            self.paths.append(path)
        return number
