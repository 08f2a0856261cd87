"""One of two compared recordings: its trace, its heap, all its allocations, and how reliable it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.origin import Status
from bfcviz.events.origin_details import holds_only_states
from bfcviz.events.row_copy import joined
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.holders.grouping import Grouping, grouping
from bfcviz.model.state.model import Model

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
