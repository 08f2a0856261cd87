"""A chunk as a row of a table."""

from typing import Final

import numpy as np

from bfcviz.dashboard.tables.table import NOTHING, Column, Row, button, bytes_cell, label_cell
from bfcviz.events.labels import Labels
from bfcviz.events.schema import bin_of

COLUMNS: Final = (
    Column("address", 15, "right", "where it begins"),
    Column("size", 10, "right", "all of it"),
    Column("requested", 10, "right", "what the caller asked for"),
    Column("waste", 10, "right", "size - requested"),
    Column("state", 9, "left", "in use or free"),
    Column("bin", 4, "right", "its size class; only free chunks are really in it"),
    Column("label", 0, "left", "the operation it was handed to"),
    Column("born", 10, "right", "the step at which it was handed out"),
    Column("age", 10, "right", "steps since it was handed out"),
    Column("region", 8, "right", "slot of the region it lies in"),
    Column("thread", 8, "right", "number of the thread that allocated it"),
    Column("stream", 8, "right", "number of the stream"),
)


def chunk_row(chunk: np.void, step: int, labels: Labels, *, here: bool) -> Row:
    """The row of a chunk, of CHUNK, as it is at `step`."""
    fields = dict(zip(chunk.dtype.names or (), chunk.tolist(), strict=True))
    address, size, in_use = fields["address"], fields["size"], fields["in_use"]
    does = {"do": "select", "address": str(address), "born": fields["born"] if in_use else None}
    state = "<u class='in-use'></u>in use" if in_use else "<u></u>free"
    used = _used(fields, step, labels) if in_use else dict.fromkeys(_OF_USE, NOTHING)
    cells = used | {
        "address": f"{address:#x}",
        "size": bytes_cell(size),
        "state": state,
        "bin": f"{bin_of(size)}",
        "region": f"{fields['region']}",
    }
    return Row([cells[column.name] for column in COLUMNS], does, "select this chunk", here)


_OF_USE: Final = ("requested", "waste", "label", "born", "age", "thread", "stream")
"""Cells that free chunks have nothing to put into."""


def _used(fields: dict[str, int], step: int, labels: Labels) -> dict[str, str]:
    born = fields["born"] + 1  # the step that its ALLOCATE led to
    return {
        "requested": bytes_cell(fields["requested"]),
        "waste": bytes_cell(max(fields["size"] - fields["requested"], 0)),
        "label": label_cell(labels, fields["label"]),
        "born": button(
            {"do": "step", "step": born}, f"{born:,}", f"go to step {born:,}, at which it was handed out"
        ),
        "age": f"{step - born:,}",
        "thread": f"{fields['thread']}",
        "stream": f"{fields['stream']}",
    }
