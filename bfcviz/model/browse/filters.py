"""What can be asked of events and of chunks, and which events of a trace are among those asked for.

Events are looked through a block at a time: no more memory than a block and the answer. Chunks are in
`chunk_order`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.units import format_bytes

State = Literal["all", "in use", "free"]

Progress = Callable[[int], bool]
"""Told how many events were looked through; says whether to go on."""


class LabelSearch:
    """Which labels say `text` in their name or in a detail (a call stack, a shape), in capitals or not.

    What it found is kept, and labels that were added since are looked at when it is asked again.
    """

    def __init__(self, labels: Labels, text: str) -> None:
        self.text = text
        self._labels = labels
        self._folded = text.casefold()
        self._hits = np.zeros(0, np.bool_)

    def hits(self) -> NDArray[np.bool_]:
        """Whether each label says it, by number."""
        known, count = len(self._hits), len(self._labels)
        if count > known:
            new = np.fromiter((self._says_it(number) for number in range(known, count)), np.bool_)
            self._hits = np.concatenate([self._hits, new])
        return self._hits

    def _says_it(self, number: int) -> bool:
        label = self._labels[number]
        if self._folded in label.name.casefold():
            return True
        return any(self._folded in detail.casefold() for detail in label.details.values())


@dataclass(frozen=True)
class Filter:
    """What events and chunks alike can be asked for; what is not given lets all through.

    Attributes:
        text: in the label's name or details, in capitals or not; `0x...` instead: memory that holds this address.
        least_size: bytes, as are all sizes.
        most_size: the largest that is let through.
        thread: number of the thread that allocated it, or acted.
    """

    text: str = ""
    least_size: int | None = None
    most_size: int | None = None
    thread: int | None = None

    @property
    def address(self) -> int | None:
        """The address that `text` is, if it is one."""
        try:
            number = int(self.text, 16) if self.text[:2].lower() == "0x" else -1
        except ValueError:
            return None
        return number if 0 <= number < 1 << 64 else None

    def reasons(self) -> list[str]:
        """What is asked for, in plain words; empty where all are let through."""
        told = []
        if self.address is not None:
            told.append(f"address {self.address:#x} lies in it")
        elif self.text:
            told.append(f"label contains '{self.text}'")
        if self.least_size is not None:
            told.append(f"size at least {format_bytes(self.least_size)}")
        if self.most_size is not None:
            told.append(f"size at most {format_bytes(self.most_size)}")
        if self.thread is not None:
            told.append(f"thread {self.thread}")
        return told

    def fits(
        self, rows: NDArray[np.void], sizes: NDArray[np.uint64], search: LabelSearch
    ) -> NDArray[np.bool_]:
        """Which rows, of EVENT or CHUNK, fit.

        Args:
            rows: what to look at, shape (n,).
            sizes: of each row, shape (n,), bytes.
            search: for `text` in the labels of the rows.
        """
        fits = np.ones(len(rows), np.bool_)
        if self.address is not None:
            # Below the row's start the difference wraps and is larger than any size.
            fits &= np.uint64(self.address) - rows["address"] < sizes
        elif self.text:
            fits &= search.hits()[rows["label"]]
        if self.least_size is not None:
            fits &= sizes >= self.least_size
        if self.most_size is not None:
            fits &= sizes <= self.most_size
        if self.thread is not None:
            fits &= rows["thread"] == self.thread
        return fits


@dataclass(frozen=True)
class EventFilter(Filter):
    """Which events are asked for. The size of an OOM is what was asked for; marks have neither size nor address.

    Attributes:
        kinds: of the event; none given: all.
    """

    kinds: frozenset[Kind] = frozenset()

    def reasons(self) -> list[str]:
        """What is asked for, in plain words; empty where all are let through."""
        kinds = " or ".join(kind.name for kind in sorted(self.kinds))
        return [f"kind {kinds}" if kinds else "", *super().reasons()][not kinds :]

    def among(self, events: Events, pool: int, search: LabelSearch) -> NDArray[np.intp]:
        """Places of the events of this pool that fit."""
        fits = self._kind_fits()[events["kind"]] & (events["pool"] == pool)
        if not super().reasons():
            return np.flatnonzero(fits)
        at = np.flatnonzero(fits)
        # Columns of the few, not whole records: copying those would cost more than all that is asked.
        names = ("address", "label", "thread", "kind", "size", "requested")
        rows = np.empty(len(at), [(name, events.dtype[name]) for name in names])
        for name in names:
            rows[name] = events[name][at]
        sizes = np.where(rows["kind"] == Kind.OOM, rows["requested"], rows["size"])
        return at[self.fits(rows, sizes, search)]

    def _kind_fits(self) -> NDArray[np.bool_]:
        kinds = self.kinds or frozenset(Kind)
        if self.least_size is not None or self.most_size is not None:
            kinds -= {Kind.MARK}
        if self.address is not None:
            kinds -= {Kind.MARK, Kind.OOM}
        return np.isin(np.arange(256), [int(kind) for kind in kinds])


@dataclass(frozen=True)
class ChunkFilter(Filter):
    """Which chunks are asked for. Free chunks have no label and no thread: asking for either leaves them out.

    Attributes:
        state: of the chunk.
    """

    state: State = "all"

    def reasons(self) -> list[str]:
        """What is asked for, in plain words; empty where all are let through."""
        return [self.state, *super().reasons()][self.state == "all" :]

    def among(self, chunks: NDArray[np.void], search: LabelSearch) -> NDArray[np.intp]:
        """Places of the chunks that fit."""
        if not self.reasons():
            return np.arange(len(chunks))
        fits = self.fits(chunks, chunks["size"], search)
        if self.state != "all":
            fits &= chunks["in_use"] == (self.state == "in use")
        if self.thread is not None:
            fits &= chunks["in_use"]
        return np.flatnonzero(fits)


def matching(  # noqa: PLR0913  where to look, what for, and from where to where
    trace: Trace,
    pool: int,
    wanted: EventFilter,
    progress: Progress | None = None,
    *,
    start: int | None = None,
    stop: int | None = None,
) -> NDArray[np.unsignedinteger]:
    """The `seq` of each event of `pool` that fits, ascending, shape (n,), as uint32 where that holds them.

    Args:
        trace: where to look.
        pool: whose events.
        wanted: which of them.
        progress: called after each block with the number of events looked through; where it returns False,
            what was found so far is the answer.
        start: the first event to look at; None: the first there is.
        stop: the event not looked at any more; None: the end.
    """
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    dtype = np.uint32 if stop < 1 << 32 else np.uint64
    if not wanted.reasons() and len(trace.origin.pools) == 1:  # nothing need be read
        return np.arange(start, stop, dtype=dtype)
    search = LabelSearch(trace.labels, wanted.text)
    found: list[NDArray[np.unsignedinteger]] = [np.zeros(0, dtype)]
    for block in trace.blocks(start, stop):
        found.append((wanted.among(block, pool, search) + start).astype(dtype))
        start += len(block)
        if progress is not None and not progress(start):
            break
    return np.concatenate(found)
