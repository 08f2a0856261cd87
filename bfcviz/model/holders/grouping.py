"""Grouping: which holder each chunk or allocation belongs to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.labels import Labels
from bfcviz.events.trace import Trace
from bfcviz.model.holders.holder_paths import Path, op_path, stack_path
from bfcviz.model.holders.phase_paths import PhasePaths

UNNAMED: Final = {
    "op": "no label",
    "stack": "no stack",
    "shape": "no shape",
    "data_type": "no data type",
    "thread": "no thread",
    "stream": "no stream",
    "phase": "no phase",
}
"""What holders can be found by -> the name of the holder of all memory without it."""

SEPARATORS: Final = {"stack": " > ", "phase": " > "}
"""Between the parts of a path as text; for all others `/`."""

Codes = Callable[[NDArray[np.void]], NDArray[np.integer]]


@dataclass(frozen=True)
class Grouping:
    """One way to group records.

    Attributes:
        by: one of `UNNAMED`.
        codes: gives a number for each record, from its label, thread, stream or born. Several may have the same path.
        path: gives the path of a number.
    """

    by: str
    codes: Codes
    path: Callable[[int], Path]

    def text(self, path: Path) -> str:
        """A path in one line."""
        return self.separator.join(UNNAMED[self.by] if part is None else part for part in path)

    @property
    def separator(self) -> str:
        """The text between the parts of a path."""
        return SEPARATORS.get(self.by, "/")

    def grouped(self, records: NDArray[np.void]) -> tuple[NDArray[np.intp], list[Path]]:
        """The number of the holder of each record; and the path of each holder, all different."""
        codes = self.codes(records).astype(np.intp)
        present = np.flatnonzero(np.bincount(codes)) if len(codes) else codes
        known: dict[Path, int] = {}
        holders = [known.setdefault(self.path(code), len(known)) for code in present.tolist()]
        lookup = np.zeros(int(present[-1]) + 1 if len(present) else 0, np.intp)
        lookup[present] = holders
        return lookup[codes], list(known)


def grouping(trace: Trace, pool: int, by: str) -> Grouping:
    """The grouping by one of `UNNAMED`; by phase it reads all events.

    Raises:
        ValueError: there is no such grouping; the message lists all.
    """
    if by not in UNNAMED:
        raise ValueError(f"cannot find holders by {by!r}; choose one of {', '.join(UNNAMED)}")
    if not 0 <= pool < len(trace.origin.pools):
        last = len(trace.origin.pools) - 1
        raise TraceError(f"pool {pool} does not exist: the trace has pools 0 to {last}")
    if by == "phase":
        found = PhasePaths(trace, pool)
        return Grouping(by, found.numbers, lambda number: found.paths[number])
    if by in _BY_LABEL:
        labels, path = trace.labels, _BY_LABEL[by]
        return Grouping(by, lambda records: records["label"], lambda number: path(labels, number))
    names = trace.origin.details.get("threads", {}) if by == "thread" else {}
    known = names if isinstance(names, Mapping) else {}
    return Grouping(by, lambda records: records[by], lambda number: (_numbered(by, number, known),))


def _op(labels: Labels, number: int) -> Path:
    return op_path(labels.name(number))


def _stack(labels: Labels, number: int) -> Path:
    return stack_path(labels[number].details.get("stack", ""))


def _detail(name: str) -> Callable[[Labels, int], Path]:
    return lambda labels, number: (labels[number].details.get(name) or None,)


def _numbered(what: str, number: int, names: Mapping[str, str]) -> str:
    name = names.get(str(number))
    return f"{name} ({what} {number})" if name else f"{what} {number}"


_BY_LABEL: Final[dict[str, Callable[[Labels, int], Path]]] = {
    "op": _op,
    "stack": _stack,
    "shape": _detail("shape"),
    "data_type": _detail("data_type"),
}
