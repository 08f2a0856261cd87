"""The columns of the table of chunks, and the row of a chunk."""

from typing import Final

import numpy as np

from bfcviz.dashboard.tables.table import NOTHING, Column, Row, button, bytes_cell, label_cell
from bfcviz.events.labels import Labels
from bfcviz.events.schema import bin_of

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
