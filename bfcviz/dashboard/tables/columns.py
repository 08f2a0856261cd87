"""The columns of the tables of chunks and of events, and the row of a chunk or of an event."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from bfcviz.dashboard.tables.table import NOTHING, Column, Row, button, bytes_cell, hinted, label_cell
from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.model.explain.text.short_event import short_words

CHUNK_COLUMNS: Final = (
    Column("address", 15, "right", "its first byte"),
    Column("size", 10, "right", "allocated size, including waste"),
    Column("requested", 10, "right", "the size that the caller requested"),
    Column("waste", 10, "right", "size - requested"),
    Column("state", 9, "left", "in use or free"),
    Column("bin", 4, "right", "its size class; bins hold only free chunks"),
    Column("label", 0, "left", "the operation that allocated it"),
    Column("born", 10, "right", "the step at which it was allocated"),
    Column("age", 10, "right", "steps since it was allocated"),
    Column("region", 8, "right", "number of its region"),
    Column("thread", 8, "right", "number of the thread that allocated it"),
    Column("stream", 8, "right", "number of the stream"),
)


def chunk_row(chunk: np.void, step: int, labels: Labels, *, here: bool) -> Row:
    """The row of a chunk, a record of dtype CHUNK, at `step`."""
    fields = dict(zip(chunk.dtype.names or (), chunk.tolist(), strict=True))
    address, size, in_use = fields["address"], fields["size"], fields["in_use"]
    does = {"do": "select", "address": str(address), "born": fields["born"] if in_use else None}
    state = "<u class='in-use'></u>in use" if in_use else "<u></u>free"
    used = _used(fields, step, labels) if in_use else dict.fromkeys(_IN_USE_ONLY, NOTHING)
    cells = used | {
        "address": f"{address:#x}",
        "size": bytes_cell(size),
        "state": state,
        "bin": f"{bin_of(size)}",
        "region": f"{fields['region']}",
    }
    return Row([cells[column.name] for column in CHUNK_COLUMNS], does, "select this chunk", here)


_IN_USE_ONLY: Final = ("requested", "waste", "label", "born", "age", "thread", "stream")
"""Columns that are empty for free chunks."""


def _used(fields: dict[str, int], step: int, labels: Labels) -> dict[str, str]:
    born = fields["born"] + 1  # the step after its ALLOCATE
    return {
        "requested": bytes_cell(fields["requested"]),
        "waste": bytes_cell(max(fields["size"] - fields["requested"], 0)),
        "label": label_cell(labels, fields["label"]),
        "born": button(
            {"do": "step", "step": born}, f"{born:,}", f"go to step {born:,}, at which it was allocated"
        ),
        "age": f"{step - born:,}",
        "thread": f"{fields['thread']}",
        "stream": f"{fields['stream']}",
    }


EVENT_COLUMNS: Final = (
    Column("step", 10, "right", "number of events applied after this one"),
    Column("time", 14, "right", "time since the start of the trace"),
    Column("kind", 9, "left", "what happened"),
    Column(
        "address",
        15,
        "right",
        "of the chunk or region; SPLIT: of the remainder; MERGE: of the absorbed chunk",
    ),
    Column("size", 10, "right", "size of the memory at the address"),
    Column("requested", 10, "right", "the size that the caller requested"),
    Column("label", 0, "left", "the operation that allocated the chunk"),
    Column("thread", 7, "right", "number of the thread that allocated the chunk, or caused the event"),
    Column("stream", 7, "right", "number of the stream"),
    Column("what happened", 28, "left", "a short description"),
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

    def row(self, event: Mapping[str, Any], *, here: bool, after_here: bool) -> Row:
        """The row of an event; `event`: its fields by name, as Python numbers."""
        kind, step = Kind(event["kind"]), event["seq"] + 1
        placed, requested = kind in _PLACED, kind in _REQUESTED or event["requested"]
        words = short_words(event)
        cells = (
            f"{step:,}",
            f"{event['time'] / 1e6:,.3f} ms",
            kind.name,
            f"{event['address']:#x}" if placed else NOTHING,
            bytes_cell(event["size"]) if placed else NOTHING,
            bytes_cell(event["requested"]) if requested else NOTHING,
            label_cell(self._labels, event["label"]),
            self._thread(event["thread"]),
            f"{event['stream']}",
            hinted(words, words),
        )
        return Row(cells, {"do": "step", "step": step}, f"go to step {step:,}", here, after_here)

    def _thread(self, number: int) -> str:
        name = self._threads.get(str(number))
        return f"{number}" if name is None else hinted(f"{number}", f"{number}: {name}")
