"""Trace: events, their labels and their origin; in memory, in a folder or in one file."""

import operator
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.answers import TableAnswer
from bfcviz.errors import FileError, TraceError
from bfcviz.events.event_source import BLOCK, ArraySource, Source
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin, Pool, Status, holds_only_states
from bfcviz.events.schema import Events
from bfcviz.events.storage.blocks import MAGIC, BlockSource, Describe, write_blocks
from bfcviz.events.storage.files import open_regular, reading_file, replacing
from bfcviz.events.storage.folder import FolderSource
from bfcviz.extras import arrow
from bfcviz.units import format_bytes

if TYPE_CHECKING:
    from pyarrow import Table

Keyframes = Callable[["Trace", list[int]], Iterable[bytes]]
"""Given a trace and ascending steps, returns the state before each, one at a time."""

__all__ = ["BLOCK", "Keyframes", "Origin", "Pool", "Status", "Trace"]

_MOST_HEAPS: Final = 10
"""Heaps that the text of a trace names."""


class Trace(TableAnswer):
    """The events of one or more heaps, in order.

    `open`, `from_events` and the importers create traces. Events are checked when they are first read, 65,536 at a
    time, so the cost of opening does not depend on the length.

    Attributes:
        source: reads the events from where they are stored.
        path: of the file or folder that it was opened from, absolute; None for events in memory.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.path = None if source.path is None else source.path.absolute()

    @classmethod
    def from_events(cls, events: Events, labels: Labels, origin: Origin) -> "Trace":
        """A trace of events in memory, or mapped from a file; they are not copied and must not change.

        Args:
            events: shape (n,), dtype EVENT; `seq` counts from 0.
            labels: the table that their `label` indexes.
            origin: where they come from; their `pool` indexes its pools.

        Raises:
            TraceError: the array does not hold events. `read` finds invalid events.
        """
        return cls(ArraySource(events, labels, origin))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, check: bool = False) -> "Trace":
        """Open a recording's folder, also during recording, or a packed `.parquet` file.

        Opening reads only what it needs to find the end: events are checked when they are read. A trace that ended
        early opens up to that point, and `origin` says why.

        Args:
            path: the folder or file.
            check: read everything now, and end the trace before the first invalid event.

        Raises:
            FileError: this is not a trace, or nothing of it can be read.
        """
        path = Path(path)
        with reading_file(path):
            if not path.exists():
                raise FileError(path, "", "does not exist")
            source: Source = FolderSource(path) if path.is_dir() else _saved_trace_source(path)
        if check:
            source.cut_at_damage()
        return cls(source)

    @property
    def labels(self) -> Labels:
        """The table of labels; events hold numbers of it."""
        return self.source.labels

    @property
    def origin(self) -> Origin:
        """Where the trace comes from and how reliable it is, as far as known now."""
        return self.source.origin

    @property
    def first(self) -> int:
        """The first step of a trace that can be read: 0, except where `bfcviz record --keep` dropped old events.

        If it is not 0, `keyframe_before(first)` returns the state there.
        """
        return self.source.first

    @property
    def following(self) -> bool:
        """Whether `refresh` may find more events of the trace."""
        return self.source.following

    @property
    def place(self) -> str:
        """Where the events of the trace are: the name of its file without the folder, or the heap of this process."""
        if name := PurePath(str(self.path or self.origin.source or "")).name:
            return name
        pools = self.origin.pools
        heap = f"heap {pools[0].name}" if len(pools) == 1 else f"{len(pools):,} heaps"
        return f"{heap} of this process" if self.source.of_process else "not from a file"

    def __len__(self) -> int:
        return self.source.length

    def __repr__(self) -> str:
        name = f" of {self.origin.source}" if self.origin.source else ""
        return f"<Trace{name}: {len(self):,} events, {self.origin.status}>"

    def __str__(self) -> str:
        origin = self.origin
        heaps = ", ".join(
            f"{pool.name} of at most {format_bytes(pool.limit)}" if pool.limit else pool.name
            for pool in origin.pools[:_MOST_HEAPS]
        )
        more = f", {len(origin.pools) - _MOST_HEAPS:,} more" if len(origin.pools) > _MOST_HEAPS else ""
        first = f"{origin.source or 'Trace'}: {len(self):,} events, {origin.status}"
        return "\n".join([first, f"heaps: {heaps}{more}", *origin.reasons])

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop) of the trace, read-only; a view if they are contiguous in memory.

        Raises:
            TraceError: the range is outside of the trace, or (in memory) one of the events is invalid.
            FileError: one of them is invalid, or cannot be decoded.
        """
        start, stop = operator.index(start), operator.index(stop)
        if not self.first <= start <= stop <= len(self):
            raise TraceError(
                f"events [{start}, {stop}) were requested from a trace {_trace_extent_text(self.first, len(self))}"
            )
        return self.source.read(start, stop)

    def blocks(self, start: int | None = None, stop: int | None = None) -> Iterator[Events]:
        """Events [start, stop) of the trace, by default all, up to 65,536 at a time. Raises as `read`."""
        start = self.first if start is None else start
        stop = len(self) if stop is None else stop
        block = self.source.block
        while start < stop:
            end = min((start // block + 1) * block, stop)
            yield self.read(start, end)
            start = end

    def refresh(self) -> int:
        """Add the events recorded since the last call to the trace; returns how many steps longer it is.

        Once `following` is false there will be no more. Only folders and windows grow.
        """
        return self.source.refresh()

    @property
    def slack(self) -> int | None:
        """Events that may arrive between two calls of `fetch` without loss; None: no event is ever lost."""
        return self.source.slack

    def fetch(self) -> int:
        """Copy new events of a trace before they are lost; the next `refresh` shows them. Returns how many.

        Any thread may call it: the visible events do not change.
        """
        return self.source.fetch()

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        """The last stored keyframe of a trace at or before `step`: its step and its bytes."""
        return self.source.keyframe_before(step)

    def index_entries(self) -> list[bytes] | None:
        """What a trace has stored for the index of all events, by block; None where some of it is missing."""
        return self.source.index_entries()

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        keyframes: Keyframes | None = None,
        describe: Describe | None = None,
    ) -> Path:
        """Pack the trace into one file: Parquet, which pandas, Polars and DuckDB can read, or the smaller `.bfc`.

        Args:
            path: ends in `.parquet` or `.bfc`.
            overwrite: replace an existing file; if anything fails, that file is not changed.
            keyframes: returns the state before each of the given steps; by default the keyframes that this trace
                already has are kept. Large ones are stored for fewer steps. For `.parquet`.
            describe: returns what is stored with each block, in place of `keyframes`; for `.bfc`.

        Returns:
            The path.

        Raises:
            FileError: the file exists, or cannot be written.
            TraceError: the labels do not fit, options of the origin are not JSON values, or the trace is a window
                whose first events were dropped.
        """
        path = Path(path)
        if path.suffix == ".bfc":
            with replacing(path, overwrite=overwrite) as made:
                write_blocks(self.source, made, describe)
            return path
        if self.first:
            raise TraceError(
                f"cannot save a trace {_trace_extent_text(self.first, len(self))} as Parquet: it would begin without "
                "its keyframe; save it as .bfc"
            )
        if path.suffix != ".parquet":
            others = "bfcviz.export(trace, path) writes other formats"
            raise FileError(path, "", f"a trace is saved as .parquet or .bfc; {others}")
        from bfcviz.events.storage.parquet import write_parquet  # noqa: PLC0415  pyarrow, an extra

        with replacing(path, overwrite=overwrite) as made:
            write_parquet(self.source, made, None if keyframes is None else partial(keyframes, self))
        return path

    def to_arrow(self) -> "Table":
        """All events as one table: the fields of EVENT, `kind_name` and `label_name` (null: no label).

        Raises:
            MissingExtra: pyarrow is not installed.
        """
        pa = arrow("to_arrow()")
        from bfcviz.events.storage.parquet import SCHEMA, ParquetLabelNames, parquet_table  # noqa: PLC0415  pyarrow, an extra

        stop = len(self)  # read before the labels: the table then has the labels of all these events
        names = ParquetLabelNames(self.labels)
        tables = [parquet_table(events, names) for events in self.blocks(stop=stop)]
        return pa.concat_tables(tables) if tables else SCHEMA.empty_table()

    @property
    def drawn_trace(self) -> "Trace":
        """The trace that `figure` draws."""
        return self


def _saved_trace_source(path: Path) -> Source:
    """The source of a trace in one file, for `Trace.open`."""
    with open_regular(path) as file:
        head = file.read(len(MAGIC))
    if head == MAGIC:
        return BlockSource(path)
    from bfcviz.events.storage.parquet import ParquetSource  # noqa: PLC0415  pyarrow, an extra

    return ParquetSource(path)


def _trace_extent_text(first: int, length: int) -> str:
    return f"that keeps only events {first} to {length - 1}" if first else f"of {length} events"


def event_times(trace: Trace, seqs: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The times of a trace's events, in nanoseconds; reads only their blocks.

    Events that the trace no longer has get the time of its first event.
    """
    seqs = np.maximum(seqs, np.uint64(trace.first))
    blocks = seqs // np.uint64(BLOCK)
    found = np.zeros(len(seqs), np.int64)
    for block in np.unique(blocks).tolist():
        at = np.flatnonzero(blocks == block)
        first = max(block * BLOCK, trace.first)
        events = trace.read(first, min((block + 1) * BLOCK, len(trace)))
        found[at] = events["time"][(seqs[at] - np.uint64(first)).astype(np.intp)]
    return found


def check_history(trace: Trace, what: str) -> None:
    """Check that the events of a trace tell a history.

    Raises:
        TraceError: they only build the state of one moment.
    """
    if holds_only_states(trace.origin.details):
        raise TraceError(
            f"{what} were asked for, but {trace.origin.source or 'the trace'} holds the state of one moment and no "
            "history: when each chunk was allocated is not known; record the run (bfcviz record, or a profile)"
        )
