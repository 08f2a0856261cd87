"""Grouping: which holder each chunk or allocation belongs to."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.label_table import NO_LABEL, Labels
from bfcviz.events.marks import BEGINS, phase_ends
from bfcviz.events.origin import holds_only_states, thread_name, unknown_of_chunks
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.equal_steps import step_marks
from bfcviz.model.find_steps import events_of
from bfcviz.model.lifetimes import born_of
from bfcviz.model.memory_kinds import UNKNOWN as UNKNOWN_KIND
from bfcviz.model.memory_kinds import MemoryKinds
from bfcviz.stack_frames import place_in_code, told_frames
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# Holder paths: the parts of an op's name, the frames of a stack, and the place in the code of an allocation.

Path = tuple[str | None, ...]
"""The names from the outermost holder to the innermost; None: memory that has no such name."""

DEEPEST: Final = 200
"""Parts of a path; of a longer one the middle is one part."""

_PAREN: Final = re.compile(r"[/()]")


def op_path(name: str) -> Path:
    """To group by op, the parts of a name between slashes, but not in parentheses: `transpose(jvp(a/b))/dot`."""
    parts = [part for part in _group_path_parts(name) if part]
    return _bounded_holder_path(parts, "/") if parts else (name or None,)


def stack_path(stack: str, name: str = "") -> Path:
    """To group by stack, its frames (one a line, the innermost first) from the outermost to the innermost.

    Without those that only record, allocate or pass calls on; `name` stands for a stack of these alone.
    """
    frames = told_frames(stack) or [each for each in [name or place_in_code(stack)] if stack and each]
    return _bounded_holder_path(frames[::-1], " > ") if frames else (None,)


def _group_path_parts(name: str) -> list[str]:
    """The parts of an op's name, for the path of its group."""
    if "(" not in name or "/" not in name:
        return name.split("/")
    parts, depth, start = [], 0, 0
    for found in _PAREN.finditer(name):
        if found[0] == "(":
            depth += 1
        elif found[0] == ")":
            depth -= 1
        elif depth == 0:
            parts.append(name[start : found.start()])
            start = found.end()
    return [*parts, name[start:]] if depth == 0 else name.split("/")


def _bounded_holder_path(parts: list[str], separator: str) -> Path:
    if len(parts) <= DEEPEST:
        return tuple(parts)
    head, tail = DEEPEST // 2, DEEPEST - DEEPEST // 2 - 1
    return (*parts[:head], separator.join(parts[head:-tail]), *parts[-tail:])


# ------------------------------------------------------------------------------
# Phase paths: the phases that were open when a chunk was allocated, from the outermost to the innermost.

_MOST_OPEN: Final = 32
"""Open phases in a path: the outermost ones."""


class _Spans:
    """From which event on which path applies, to group by phase."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.paths: list[int] = []
        self.open: dict[tuple[str, int], None] = {}

    def at(self, born: NDArray[np.uint64]) -> NDArray[np.intp]:
        """The number of the path for each of these events, to group by phase; 0: no phase was open."""
        place = np.searchsorted(np.array(self.seqs, np.uint64), born, side="right")
        found: NDArray[np.intp] = np.append(0, np.array(self.paths, np.intp))[place]
        return found


class PhasePaths:
    """The paths of the phases of one heap, to group by phase.

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
        """The number of the phase's path of each record, by its `born` and `thread`."""
        born = records["born"]
        found = self._any.at(born)
        for thread, spans in self._threads.items():
            mine = np.flatnonzero(records["thread"] == thread)
            own = spans.at(born[mine])
            found[mine] = np.where(own > 0, own, found[mine])
        return found

    def _number(self, spans: _Spans) -> int:
        path: Path = tuple(name for name, _ in islice(spans.open, _MOST_OPEN))
        if not path:
            return 0
        number = self._numbers.get(path)
        if number is None:
            number = self._numbers[path] = len(self.paths)
            self.paths.append(path)
        return number


# ------------------------------------------------------------------------------
# What tells memory without a name apart: its size, and how long it lived.


OF_SIZE: Final = "chunks of "
"""How the name of a holder by size begins; its size as text is the rest."""


class _Sizes:
    """Numbers sizes in the order in which they are first seen, to group by size."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._sizes: list[int] = []

    def numbers(self, records: NDArray[np.void]) -> NDArray[np.intp]:
        """The number of the size of each record."""
        sizes, place = np.unique(records["size"], return_inverse=True)
        for size in sizes.tolist():
            if size not in self._numbers:
                self._numbers[size] = len(self._sizes)
                self._sizes.append(size)
        return np.array([self._numbers[size] for size in sizes.tolist()], np.intp)[place]

    def path(self, number: int) -> Path:
        """The path to group by a size: sizes of the same text are one holder."""
        return (f"{OF_SIZE}{self.text(number)}",)

    def text(self, number: int) -> str:
        """A size as text, to group by it."""
        return format_bytes(self._sizes[number])


_STEPS_LIVED: Final = {
    0: "within one step",
    1: "to the next step",
    10: "2 to 10 steps",
    None: "over 10 steps",
}
"""Steps of the program that memory lives at most -> what its group is called."""

_EVENTS_LIVED: Final = {
    100: "up to 100 events",
    1_000: "up to 1,000 events",
    10_000: "up to 10,000 events",
    100_000: "up to 100,000 events",
    None: "over 100,000 events",
}
"""The same in events, for a program without marks of its steps."""


class _Lifetimes:
    """To group by lifetime: paths of how long memory lived in one heap, and its size; reads all events."""

    def __init__(self, trace: Trace, pool: int) -> None:
        self._sizes = _Sizes()
        _, steps = step_marks(trace, pool)
        lived = _STEPS_LIVED if len(steps) else _EVENTS_LIVED
        kept = "until now" if trace.following else "until the end"
        self._known = not holds_only_states(trace.origin.details)
        self._texts = [kept, *lived.values()]
        most = np.array([each for each in lived if each is not None])
        found = [(np.zeros(0, np.uint64), np.zeros(0, np.uint64))]
        for block in trace.blocks() if self._known else ():
            at = np.flatnonzero((block["kind"] == Kind.FREE) & (block["pool"] == pool))
            found.append((born_of(block, at), block["seq"][at]))
        born, died = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if len(steps):
            length = np.searchsorted(steps, died) - np.searchsorted(steps, born)
        else:
            length = (died - born).astype(np.intp)
        order = np.argsort(born)
        never = np.array([np.iinfo(np.uint64).max], np.uint64)  # after the last one
        self._born = np.concatenate([born[order], never])
        self._class = np.append(1 + np.searchsorted(most, length[order]), 0).astype(np.uint8)

    def numbers(self, records: NDArray[np.void]) -> NDArray[np.intp]:
        """The number of the path of each record in use: a chunk, a lifetime, or an ALLOCATE event."""
        born = records["born"] if "born" in (records.dtype.names or ()) else records["seq"]
        at = np.searchsorted(self._born, born)
        lived = np.where(self._born[at] == born, self._class[at], 0)
        return self._sizes.numbers(records) * len(self._texts) + lived

    def path(self, number: int) -> Path:
        """To group by lifetime: how long memory lived, then its size; (None,) where no history tells it."""
        size, lived = divmod(number, len(self._texts))
        return (self._texts[lived], self._sizes.text(size)) if self._known else (None,)


# ------------------------------------------------------------------------------
# Groupings.

UNNAMED: Final = {
    "op": NO_LABEL,
    "line": "no line of code",
    "stack": "no stack",
    "shape": "no shape",
    "data_type": "no data type",
    "thread": "no thread",
    "stream": "no stream",
    "phase": "no phase",
    "kind": UNKNOWN_KIND,
    "size": "no size",
    "lifetime": "unknown lifetime",
}
"""What holders can be found by -> the name of the holder of all memory without it.

A label may say why it has no stack (`no_stack` of its details): its memory then has that name instead.
"""

SEPARATORS: Final = {"stack": " > ", "phase": " > ", "lifetime": ": "}
"""Between the parts of a path as text; for all others `/`."""


@dataclass(frozen=True)
class Grouping:
    """One way to group records.

    Attributes:
        by: one of `UNNAMED`.
        codes: gives a number for each record, from its label, thread, stream, born or size. Several may have the same
            path.
        path: gives the path of a number.
    """

    by: str
    codes: Callable[[NDArray[np.void]], NDArray[np.integer]]
    path: Callable[[int], Path]

    def text(self, path: Sequence[str | None]) -> str:
        """A path, or a part of it, in one line."""
        return self.separator.join(UNNAMED[self.by] if part is None else part for part in path)

    @property
    def separator(self) -> str:
        """The text between the parts of a grouping's path."""
        return SEPARATORS.get(self.by, "/")

    def grouped(self, records: NDArray[np.void]) -> tuple[NDArray[np.intp], list[Path]]:
        """The number of the holder of each record in a grouping; and the path of each holder, all different."""
        codes = self.codes(records).astype(np.intp)
        present = np.flatnonzero(np.bincount(codes)) if len(codes) else codes
        known: dict[Path, int] = {}
        holders = [known.setdefault(self.path(code), len(known)) for code in present.tolist()]
        lookup = np.zeros(int(present[-1]) + 1 if len(present) else 0, np.intp)
        lookup[present] = holders
        return lookup[codes], list(known)


def grouping(trace: Trace, pool: int, by: str) -> Grouping:
    """The grouping by one of `UNNAMED`; by phase, kind or lifetime it reads all events.

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
    if by == "kind":
        kinds = MemoryKinds(trace, pool)
        return Grouping(by, kinds.of, kinds.path)
    if by == "size":
        sizes = _Sizes()
        return Grouping(by, sizes.numbers, sizes.path)
    if by == "lifetime":
        lifetimes = _Lifetimes(trace, pool)
        return Grouping(by, lifetimes.numbers, lifetimes.path)
    if by in _BY_LABEL:
        labels, path = trace.labels, _BY_LABEL[by]
        return Grouping(by, lambda records: records["label"], lambda number: path(labels, number))
    details = trace.origin.details if by == "thread" else {}
    unknown = by in unknown_of_chunks(trace.origin.details, pool)
    return Grouping(
        by,
        lambda records: records[by],
        lambda number: (None if unknown else _numbered_group_name(by, number, details),),
    )


_groupings: WeakKeyDictionary[Trace, dict[tuple[int, str], tuple[int, Grouping]]] = WeakKeyDictionary()


def grouping_of(trace: Trace, pool: int, by: str) -> Grouping:
    """The grouping, made once for each length of the trace."""
    known = _groupings.setdefault(trace, {})
    found = known.get((pool, by))
    if found is None or found[0] != len(trace):
        found = known[pool, by] = len(trace), grouping(trace, pool, by)
    return found[1]


def _group_by_line(labels: Labels, number: int) -> Path:
    details = labels[number].details
    return (place_in_code(details.get("stack", "")) or details.get("no_stack"),)


def _group_by_stack(labels: Labels, number: int) -> Path:
    name, details = labels[number]
    return (details["no_stack"],) if "no_stack" in details else stack_path(details.get("stack", ""), name)


def _numbered_group_name(what: str, number: int, details: Mapping[str, object]) -> str:
    name = thread_name(details, number)
    return f"{name} ({what} {number})" if name else f"{what} {number}"


_BY_LABEL: Final[dict[str, Callable[[Labels, int], Path]]] = {
    "op": lambda labels, number: op_path(labels.name(number)),
    "line": _group_by_line,
    "stack": _group_by_stack,
    "shape": lambda labels, number: (labels[number].details.get("shape") or None,),
    "data_type": lambda labels, number: (labels[number].details.get("data_type") or None,),
}


# ------------------------------------------------------------------------------
# HolderChoice: the chunks of one holder, such as the one that the user points at or filters by.


@dataclass(frozen=True)
class HolderChoice:
    """The group of a holder and all holders below it.

    Attributes:
        by: what holders are found by, one of `UNNAMED`.
        path: the names from the outermost holder to this one; None: memory without a name. Empty: all memory in use.
    """

    by: str
    path: Path

    def holds(self, path: Path) -> bool:
        """Whether the memory of `path` belongs to the chosen holder."""
        return path[: len(self.path)] == self.path


def members(how: Grouping, choice: HolderChoice) -> Callable[[NDArray[np.void]], NDArray[np.bool_]]:
    """A function that says for each record whether it belongs to `choice`; `how` groups by `choice.by`.

    The records have the fields label, thread, stream, born and size; the caller leaves free chunks out. Keep the
    function for more records: it looks at each path once.
    """
    held = np.zeros(0, np.int8)  # code -> 1: it belongs, 0: it does not, -1: not looked at yet

    def belongs(records: NDArray[np.void]) -> NDArray[np.bool_]:
        nonlocal held
        codes = how.codes(records).astype(np.intp)
        highest = int(codes.max(initial=-1))
        if highest >= len(held):
            held = np.concatenate([held, np.full(highest + 1 - len(held), -1, np.int8)])
        for code in np.unique(codes[held[codes] < 0]).tolist():
            held[code] = choice.holds(how.path(code))
        found: NDArray[np.bool_] = held[codes] == 1
        return found

    return belongs
