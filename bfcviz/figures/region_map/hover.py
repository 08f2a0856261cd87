"""Hover texts of the region map, for the chunks on screen.

In plotly the polygons of one trace share one text. So the texts belong to a trace of invisible points: at least one
in every piece of a chunk, more along a long piece and near its ends, so that the point nearest to the mouse belongs
to the chunk under it. The text of each chunk and of each label is stored once, in the trace's `meta`; the
`hovertemplate` of each point refers to it.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.code_places import telling_lines
from bfcviz.events.labels import Labels
from bfcviz.events.schema import bin_of
from bfcviz.figures.region_map.rows import Pieces, Rows, VisibleRows
from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.units import format_bytes

MOST_TEXTS: Final = 1000
"""Chunks with a full text, at most; if there are more, the narrowest get a short one."""

MOST_FRAMES: Final = 8
"""Frames of a stack in a text, the most telling first."""

_MOST_POINTS = 3000
_POINTS_ON_GRID = 800
_ROWS_ON_GRID = 250
_APART = 0.06  # of the screen's width: the greatest distance between points of a long piece
_CLOSEST = 0.015  # the same: the least distance
_SQUARE = 0.24  # the usual height of a map, as a part of its width
_INSIDE = 0.01  # of the screen's width: from the ends of a long piece


def points_in_pieces(
    chunks: NDArray[np.void], pieces: Pieces, part: VisibleRows, labels: Labels, step: int
) -> dict[str, Any]:
    """Points for exact rectangles: at least one per piece.

    Returns:
        `x` in bytes from the row's left edge, `y` in rows, `hovertemplate` and `meta` of a plotly trace.
    """
    left = np.maximum(pieces.left, part.left)
    right = np.minimum(pieces.right, part.right)
    screen = max(part.right - part.left, 1e-9)
    inner = np.maximum(right - left - 2 * _INSIDE * screen, 0.0)
    # No farther apart than rows are high: else the nearest point could be in the next row.
    rows = max(len(part), 1)
    apart = max(min(_SQUARE / rows, _APART), _CLOSEST, rows / _MOST_POINTS) * screen
    along = np.where(inner > 0, np.ceil(inner / apart) + 1, 1).astype(np.intp)
    piece = np.repeat(np.arange(len(pieces)), along)
    nth = np.arange(len(piece)) - np.repeat(np.cumsum(along) - along, along)
    first = np.where(along > 1, left + _INSIDE * screen, (left + right) / 2)
    x = first[piece] + nth * (inner / np.maximum(along - 1, 1))[piece]
    full = np.zeros(len(chunks), dtype=bool)
    full[pieces.source[np.argsort(left - right, kind="stable")[:MOST_TEXTS]]] = True
    at, level = _spread(along[piece] == 1, _levels(len(part)))
    templates, meta = _texts(chunks, full, labels, step)
    texts = [templates[i] for i in pieces.source[piece[at]].tolist()]
    return {"x": x[at], "y": pieces.row[piece[at]] + level, "hovertemplate": texts, "meta": meta}


def points_on_grid(
    chunks: NDArray[np.void], rows: Rows, part: VisibleRows, labels: Labels, step: int
) -> dict[str, Any]:
    """Points for an image: an even grid, each point with the text of the chunk at its address."""
    lines = min(len(part), _ROWS_ON_GRID)
    columns = max(_POINTS_ON_GRID // lines, 1)
    line = np.unique(np.linspace(part.first, part.stop, lines, endpoint=False).astype(np.intp))
    x = np.tile(part.left + (np.arange(columns) + 0.5) * ((part.right - part.left) / columns), len(line))
    row = np.repeat(line, columns)
    region = rows.region_of(row)
    offset = (row - rows.first[region]) * float(rows.width) + x
    inside = offset < rows.size[region]
    x, row, region, offset = x[inside], row[inside], region[inside], offset[inside]
    address = rows.address[region] + offset.astype(np.uint64)
    at = np.searchsorted(chunks["address"], address, side="right") - 1
    shown, back = np.unique(at, return_inverse=True)
    templates, meta = _texts(chunks[shown], np.ones(len(shown), dtype=bool), labels, step)
    return {"x": x, "y": row + 0.5, "hovertemplate": [templates[i] for i in back.tolist()], "meta": meta}


def _levels(rows: int) -> NDArray[np.float64]:
    """Heights (0..1) within a row that get points: a tall row needs more than one."""
    count = max(1, min(5, 10 // max(rows, 1)))
    return (np.arange(count) + 0.5) / count


def _spread(
    narrow: NDArray[np.bool_], levels: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Indices of points and their heights: each point at all heights; narrow ones at one if there are many."""
    every = np.arange(len(narrow))
    if len(every) * len(levels) <= _MOST_POINTS:
        return np.tile(every, len(levels)), np.repeat(levels, len(every))
    wide, thin = every[~narrow], every[narrow]
    return (
        np.concatenate([np.tile(wide, len(levels)), thin]),
        np.concatenate([np.repeat(levels, len(wide)), levels[thin % len(levels)]]),
    )


def _texts(
    chunks: NDArray[np.void], full: NDArray[np.bool_], labels: Labels, step: int
) -> tuple[list[str], list[str]]:
    """The template of each chunk; and the texts they refer to: one per chunk, then the labels."""
    used, place = np.unique(chunks["label"], return_inverse=True)
    columns = [chunks[name].tolist() for name in _FIELDS]
    meta = [
        _text(row, step) if whole else _short(row)
        for whole, *row in zip(full.tolist(), *columns, strict=True)
    ]
    named = (full & chunks["in_use"]).tolist()
    templates = [
        f"%{{meta[{i}]}}<br>%{{meta[{len(meta) + label}]}}<extra></extra>"
        if name
        else f"%{{meta[{i}]}}<extra></extra>"
        for i, (name, label) in enumerate(zip(named, place.tolist(), strict=True))
    ]
    return templates, meta + [_label_text(labels, number) for number in used.tolist()]


_FIELDS = ("in_use", "address", "size", "requested", "handle", "region", "born", "thread", "stream")


def _text(row: Sequence[Any], step: int) -> str:
    in_use, address, size, requested, handle, region, born, thread, stream = row
    place = f"bin {bin_of(size)}, chunk {handle} at {address:#x}, region {region}"
    if not in_use:
        return f"<b>free</b>, {exact_bytes(size)}<br>{place}"
    return (
        f"<b>in use</b>, size {exact_bytes(size)}<br>requested {exact_bytes(requested)}, "
        f"waste {exact_bytes(max(size - requested, 0))}<br>{place}<br>"
        f"allocated at step {born + 1:,}, {step - born - 1:,} steps ago; thread {thread}, stream {stream}"
    )


def _short(row: Sequence[Any]) -> str:
    in_use, address, size, _, handle, *_ = row
    state = "in use" if in_use else "free"
    return f"<b>{state}</b>, {format_bytes(size)}<br>chunk {handle} at {address:#x}<br>zoom in for details"


def _label_text(labels: Labels, number: int) -> str:
    if number == 0:
        return "no label"
    label = labels[number]
    lines = [harmless(label.name)]
    for key, value in label.details.items():
        if key == "stack":
            lines += _stack_lines(value)
        elif value:
            lines.append(f"{harmless(key, 30)}: {harmless(value)}")
    return "<br>".join(lines)


def _stack_lines(stack: str) -> list[str]:
    """The most telling frames of a stack (one frame per line)."""
    frames, others = telling_lines(stack, MOST_FRAMES)
    return [harmless(frame) for frame in frames] + [f"… {others:,} more"] * (others > 0)
