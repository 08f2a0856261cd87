"""The columns of the table of chunks, and the row of a chunk."""

from typing import Final

import numpy as np

from bfcviz.dashboard.tables.table import NOTHING, Column, Row, button, bytes_cell, label_cell
from bfcviz.events.labels import Labels
from bfcviz.events.schema import bin_of

COLUMNS: Final = (
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
    return Row([cells[column.name] for column in COLUMNS], does, "select this chunk", here)


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
