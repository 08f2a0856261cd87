"""The columns of the table of events, and the row of an event."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from bfcviz.dashboard.tables.table import NOTHING, Column, Row, bytes_cell, hinted, label_cell
from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.explain.text.short_event import short_words

EVENT_COLUMNS: Final = (
    Column("step", 9, "right", "number of events applied after this one"),
    Column("time", 13, "right", "time since the start of the trace"),
    Column("kind", 9, "left", "what happened"),
    Column("label", 0, "left", "the operation that allocated the chunk"),
    Column("size", 9, "right", "size of the memory at the address"),
    Column("requested", 11, "right", "the size that the caller requested"),
    Column("what happened", 26, "left", "a short description"),
    Column(
        "address",
        15,
        "right",
        "of the chunk or region; SPLIT: of the remainder; MERGE: of the absorbed chunk",
        wide=True,
    ),
    Column(
        "thread", 7, "right", "number of the thread that allocated the chunk, or caused the event", wide=True
    ),
    Column("stream", 7, "right", "number of the stream", wide=True),
)

_PLACED: Final = frozenset(Kind) - {Kind.OOM, Kind.MARK}
"""Kinds whose address and size are those of memory."""

_REQUESTED: Final = frozenset({Kind.ALLOCATE, Kind.FREE, Kind.OOM})
"""Kinds with a requested size, even if it is 0."""


class EventTableRows:
    """Makes rows of the events of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._labels: Labels = trace.labels
        names = trace.origin.details.get("threads")
        self._threads: Mapping[str, object] = names if isinstance(names, dict) else {}

    def row(
        self,
        event: Mapping[str, Any],
        mark: Literal["here", "after-here", ""],
        *,
        selected: bool,
        search: str,
    ) -> Row:
        """The row of an event.

        Args:
            event: its fields by name, as Python numbers.
            mark: whether its step is the one shown, or the first listed one after it.
            selected: whether it allocated or freed the selected chunk.
            search: text to mark in its label.
        """
        kind, step = Kind(event["kind"]), event["seq"] + 1
        placed, requested = kind in _PLACED, kind in _REQUESTED or event["requested"]
        words = short_words(event)
        cells = (
            f"{step:,}",
            f"{event['time'] / 1e6:,.3f} ms",
            kind.name,
            label_cell(self._labels, event["label"], search),
            bytes_cell(event["size"]) if placed else NOTHING,
            bytes_cell(event["requested"]) if requested else NOTHING,
            hinted(words, words),
            f"{event['address']:#x}" if placed else NOTHING,
            self._thread(event["thread"]),
            f"{event['stream']}",
        )
        does = {"do": "step", "step": step}
        return Row(cells, does, mark == "here", mark == "after-here", selected)

    def _thread(self, number: int) -> str:
        name = self._threads.get(str(number))
        return f"{number}" if name is None else hinted(f"{number}", f"{number}: {name}")
