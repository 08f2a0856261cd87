"""The columns of the tables of chunks and of events, and the row of a chunk or of an event."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np

from bfcviz.dashboard.tables.table import NOTHING, Column, Row, button, bytes_cell, hinted, label_cell
from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.model.explain.text.short_event import short_words

CHUNK_COLUMNS: Final = (
    Column("label", 0, "left", "the operation that allocated it"),
    Column("size", 9, "right", "allocated size, including waste"),
    Column("requested", 11, "right", "the size that the caller requested"),
    Column("waste", 9, "right", "size - requested"),
    Column("state", 9, "left", "in use or free"),
    Column("address", 15, "right", "its first byte"),
    Column("born", 9, "right", "the step at which it was allocated"),
    Column("age", 9, "right", "steps since it was allocated"),
    Column("bin", 4, "right", "its size class; bins hold only free chunks", wide=True),
    Column("region", 7, "right", "number of its region", wide=True),
    Column("thread", 7, "right", "number of the thread that allocated it", wide=True),
    Column("stream", 7, "right", "number of the stream", wide=True),
)


class ChunkTableRows:
    """Makes rows of chunks at one step.

    Args:
        step: the step.
        labels: the names of their `label` numbers.
        search: text to mark in labels.
    """

    def __init__(self, step: int, labels: Labels, search: str = "") -> None:
        self._step, self._labels, self._search = step, labels, search

    def row(self, chunk: np.void, *, here: bool = False, selected: bool = False) -> Row:
        """The row of a chunk, a record of dtype CHUNK; `here`: the event before the step touched it."""
        fields = dict(zip(chunk.dtype.names or (), chunk.tolist(), strict=True))
        address, size, in_use = fields["address"], fields["size"], fields["in_use"]
        does = {"do": "select", "address": str(address), "born": fields["born"] if in_use else None}
        state = "<u class='in-use'></u>in use" if in_use else "<u></u>free"
        used = self._used(fields) if in_use else dict.fromkeys(_IN_USE_ONLY, NOTHING)
        cells = used | {
            "address": f"{address:#x}",
            "size": bytes_cell(size),
            "state": state,
            "bin": f"{bin_of(size)}",
            "region": f"{fields['region']}",
        }
        return Row([cells[column.name] for column in CHUNK_COLUMNS], does, here, selected=selected)

    def _used(self, fields: dict[str, int]) -> dict[str, str]:
        born = fields["born"] + 1  # the step after its ALLOCATE
        hint = f"go to step {born:,}, at which it was allocated"
        return {
            "requested": bytes_cell(fields["requested"]),
            "waste": bytes_cell(max(fields["size"] - fields["requested"], 0)),
            "label": label_cell(self._labels, fields["label"], self._search),
            "born": button({"do": "step", "step": born}, f"{born:,}", hint),
            "age": f"{self._step - born:,}",
            "thread": f"{fields['thread']}",
            "stream": f"{fields['stream']}",
        }


_IN_USE_ONLY: Final = ("requested", "waste", "label", "born", "age", "thread", "stream")
"""Columns that are empty for free chunks."""


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


class EventRows:
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
