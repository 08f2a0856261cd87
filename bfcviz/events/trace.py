"""Trace: events, the labels they name, and where they come from; in memory, in a folder or in one file."""

import operator
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bfcviz.errors import FileError, MissingExtra, TraceError
from bfcviz.events.event_source import BLOCK, ArraySource, Source
from bfcviz.events.labels import Labels
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.schema import Events
from bfcviz.events.storage.arrow import SCHEMA, LabelNames, table_of
from bfcviz.events.storage.files import reading
from bfcviz.events.storage.folder_reader import FolderSource
from bfcviz.events.storage.parquet_reader import ParquetSource
from bfcviz.events.storage.parquet_writer import Keyframes, pack

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BLOCK", "Keyframes", "Origin", "Pool", "Status", "Trace"]


class Trace:
    """The events of one or more heaps, in order, wherever they lie.

    Made by `open`, `from_events` or an importer. Events are checked when they are first read, 65,536 at a
    time, so that opening costs the same whatever the length.

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
            labels: the table their `label` points into.
            origin: where they come from; their `pool` points into its pools.

        Raises:
            TraceError: the array is none of events. Events that cannot be right are found by `read`.
        """
        return cls(ArraySource(events, labels, origin))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, check: bool = False) -> "Trace":
        """Open a recording's folder, also while it is recorded, or a packed `.parquet` file.

        Reads no more than it needs to find the end: events are checked when they are read. What ended early
        opens up to there, and `origin` says why.

        Args:
            path: the folder or file.
            check: read everything now, and end the trace before the first event that cannot be right.

        Raises:
            FileError: this is not a trace, or so damaged that nothing can be read.
        """
        path = Path(path)
        with reading(path):
            if not path.exists():
                raise FileError(path, "", "does not exist")
            source: Source = FolderSource(path) if path.is_dir() else ParquetSource(path)
        if check:
            source.cut_at_damage()
        return cls(source)

    @property
    def labels(self) -> Labels:
        """The names that events carry numbers of."""
        return self.source.labels

    @property
    def origin(self) -> Origin:
        """Where the trace comes from and how far it can be trusted, as far as is known now."""
        return self.source.origin

    @property
    def first(self) -> int:
        """The first step that can be seen: 0, but for a window on a heap (`window.follow`), where it moves on.

        Where it is not 0, `keyframe_before(first)` gives the state there.
        """
        return self.source.first

    @property
    def following(self) -> bool:
        """Whether more events may come: `refresh`."""
        return self.source.following

    def __len__(self) -> int:
        return self.source.length

    def __repr__(self) -> str:
        name = f" of {self.origin.source}" if self.origin.source else ""
        return f"<Trace{name}: {len(self)} events, {self.origin.status}>"

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop), read-only; not copied where they lie together in memory.

        Raises:
            TraceError: the trace has no such events, or (in memory) one of them cannot be right.
            FileError: one of them cannot be right, or cannot be decoded.
        """
        start, stop = operator.index(start), operator.index(stop)
        if not self.first <= start <= stop <= len(self):
            raise TraceError(
                f"events [{start}, {stop}) were asked for, of a trace {_extent(self.first, len(self))}"
            )
        return self.source.read(start, stop)

    def blocks(self, start: int | None = None, stop: int | None = None) -> Iterator[Events]:
        """Events [start, stop), by default all there are now, up to 65,536 at a time. Raises as `read`."""
        start = self.first if start is None else start
        stop = len(self) if stop is None else stop
        block = self.source.block
        while start < stop:
            end = min((start // block + 1) * block, stop)
            yield self.read(start, end)
            start = end

    def refresh(self) -> int:
        """Look for events that were recorded since the last look; returns how many steps further it goes.

        Once `following` is false there will be no more. Only folders and windows ever grow.
        """
        return self.source.refresh()

    @property
    def slack(self) -> int | None:
        """Events that may come between two calls of `fetch` before any is lost; None: none ever is."""
        return self.source.slack

    def fetch(self) -> int:
        """Put new events where they are not lost before the next `refresh`, which shows them; returns how many.

        From any thread: nothing that can be seen changes.
        """
        return self.source.fetch()

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        """The last stored keyframe at or before `step`: the step it is the state at, and its bytes."""
        return self.source.keyframe_before(step)

    def save(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, keyframes: Keyframes | None = None
    ) -> Path:
        """Pack the trace into one Parquet file, which pandas, Polars and DuckDB read as it is.

        Args:
            path: ends in `.parquet`.
            overwrite: take the place of a file that is there; it stays as it was if anything fails.
            keyframes: gives the state before each of the steps it is asked for; by default those that this
                trace carries already are kept. Large ones are stored for fewer steps.

        Returns:
            The path.

        Raises:
            FileError: the file is there already, or cannot be written.
            TraceError: the labels do not fit, options of the origin are no JSON, or the trace is a window whose
                first events are gone.
        """
        path = Path(path)
        if self.first:
            raise TraceError(
                f"a trace {_extent(self.first, len(self))} was to be saved; record the heap to a folder to keep all"
            )
        if path.suffix != ".parquet":
            raise FileError(path, "", "a trace is saved as a .parquet file; give it that ending")
        pack(self, path, overwrite=overwrite, keyframes=keyframes)
        return path

    def to_arrow(self) -> pa.Table:
        """All events as one table: the fields of EVENT, `kind_name` and `label_name` (null: no label)."""
        stop = len(self)  # before the labels: each of those events' labels is then in the table
        names = LabelNames(self.labels)
        tables = [table_of(events, names) for events in self.blocks(stop=stop)]
        return pa.concat_tables(tables) if tables else SCHEMA.empty_table()

    def to_pandas(self) -> "pd.DataFrame":
        """The same as a pandas data frame; the names are categories.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415  an extra
        except ImportError as error:
            raise MissingExtra("to_pandas()", "pandas", "lab") from error
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame


def _extent(first: int, length: int) -> str:
    return f"that keeps only events {first} to {length - 1}" if first else f"of {length} events"
