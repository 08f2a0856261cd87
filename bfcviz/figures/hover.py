"""What hovering over a chunk says: one text a chunk, found from anywhere inside it.

Polygons of one trace share one text in plotly, so the texts ride on a trace of unseen points: at least one in
every piece of a chunk, and more along a long one, so that the nearest point belongs to what is pointed at.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.events.schema import bin_of
from bfcviz.figures.rows import Rows
from bfcviz.figures.text import exact_bytes, harmless

POINTS_A_ROW = 80
POINTS_IN_ALL = 4096

Points = tuple[NDArray[np.float64], NDArray[np.float64], list[str]]
"""x in bytes from the row's left edge, y in rows, and the text of each point."""


def chunk_texts(chunks: NDArray[np.void], labels: Labels) -> list[str]:
    """The hover text of each chunk."""
    label_text = _label_texts(labels)
    return [_text(row, label_text) for row in _as_dicts(chunks)]


def points_in_pieces(chunks: NDArray[np.void], rows: Rows, labels: Labels) -> Points:
    """Points for a picture of exact rectangles: every piece of every chunk has some."""
    if not len(chunks):
        return np.empty(0), np.empty(0), []
    pieces = rows.pieces(chunks["address"], chunks["size"])
    levels = _levels(len(rows))
    along = np.maximum(np.ceil((pieces.right - pieces.left) / rows.width * POINTS_A_ROW), 1).astype(np.intp)
    piece = np.repeat(np.arange(len(pieces)), along)
    nth = np.arange(len(piece)) - np.repeat(np.cumsum(along) - along, along)
    step = (pieces.right - pieces.left) / along
    x = pieces.left[piece] + (nth + 0.5) * step[piece]
    texts = chunk_texts(chunks, labels)
    text = [texts[i] for i in pieces.source[piece]]
    y = (pieces.row[piece][None, :] + levels[:, None]).ravel()
    return np.tile(x, len(levels)), y.astype(np.float64), text * len(levels)


def points_on_grid(chunks: NDArray[np.void], rows: Rows, labels: Labels) -> Points:
    """Points for a picture made of pixels: an even grid, each saying which chunk lies there."""
    columns = int(np.clip(POINTS_IN_ALL // max(len(rows), 1), 1, POINTS_A_ROW))
    row_region = np.repeat(np.arange(len(rows.size)), np.diff(rows.first))
    x = np.tile((np.arange(columns) + 0.5) * (rows.width / columns), len(rows))
    y = np.repeat(np.arange(len(rows)), columns)
    offset = (y - rows.first[row_region[y]]) * float(rows.width) + x
    inside = offset < rows.size[row_region[y]]
    x, y, offset = x[inside], y[inside], offset[inside]
    address = rows.address[row_region[y]] + offset.astype(np.uint64)
    at = np.searchsorted(chunks["address"], address, side="right") - 1
    shown, back = np.unique(at, return_inverse=True)
    texts = chunk_texts(chunks[shown], labels)
    return x.astype(np.float64), (y + 0.5).astype(np.float64), [texts[i] for i in back]


def _levels(rows: int) -> NDArray[np.float64]:
    """Heights within a row that get points: a row drawn tall needs more than one."""
    count = max(1, min(5, 10 // max(rows, 1)))
    return (np.arange(count) + 0.5) / count


def _as_dicts(chunks: NDArray[np.void]) -> Iterator[dict[str, Any]]:
    names = chunks.dtype.names or ()
    columns = [chunks[name].tolist() for name in names]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _label_texts(labels: Labels) -> Callable[[int], str]:
    known: dict[int, str] = {}

    def text(number: int) -> str:
        if number not in known:
            known[number] = _label_text(labels, number)
        return known[number]

    return text


def _label_text(labels: Labels, number: int) -> str:
    if number == 0:
        return "no label"
    label = labels[number]
    lines = [harmless(label.name)]
    lines += [f"{harmless(key, 30)}: {harmless(value)}" for key, value in label.details.items() if value]
    return "<br>".join(lines)


def _text(chunk: dict[str, Any], label_text: Callable[[int], str]) -> str:
    size, requested = chunk["size"], chunk["requested"]
    where = f"chunk {chunk['handle']} at {chunk['address']:#x}, region {chunk['region']}"
    if not chunk["in_use"]:
        return f"<b>free</b>, {exact_bytes(size)}<br>{where}<br>bin {bin_of(size)}"
    return (
        f"<b>in use</b>, size {exact_bytes(size)}<br>requested {exact_bytes(requested)}, "
        f"waste {exact_bytes(max(size - requested, 0))}<br>{where}<br>{label_text(chunk['label'])}<br>"
        f"allocated at step {chunk['born']:,}, thread {chunk['thread']}, stream {chunk['stream']}"
    )
