"""The cursor of the region map: the chunk that the arrow keys are at, while the map has the focus.

It is an address, not a chunk: so it keeps its place where steps split, merge and free the chunks around it.
"""

import json
from dataclasses import replace
from typing import Final

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.would_fit import blocker_name
from bfcviz.errors import BfcvizError
from bfcviz.figures.map_rows import Pieces, Rows, rows_of
from bfcviz.figures.text import harmless
from bfcviz.figures.view_options import Look, MapWindow, Selected, Span
from bfcviz.model import Model
from bfcviz.units import format_bytes

_BESIDE: Final = {"left": -1, "right": 1}  # chunks, by address
_ROWS: Final = {"up": -1, "down": 1}


class MapCursor:
    """Where the arrow keys are on the region map; nowhere before the map has the focus.

    Attributes:
        widget: tells the page the boxes of the chunk, and a screen reader what it is.
    """

    def __init__(self) -> None:
        self.widget = widgets.HTML(layout={"display": "none"})
        self._address: int | None = None

    def move(self, model: Model, look: Look, way: str) -> Look:
        """Move the cursor of the map, and show where it is.

        Args:
            model: the heap at the step shown.
            look: the look of the map.
            way: `left` or `right`, to the chunk before or after by address; `up` or `down`, to the nearest chunk of
                another row; `here`, to the selected chunk or the first one on screen; `choose`, select the chunk;
                `leave`, the map has lost the focus.

        Returns:
            The look with the chunk selected, or with a window that has the chunk.

        Raises:
            BfcvizError: there is no such way.
        """
        chunks, rows = model.chunks(), rows_of(model)
        at = _index(chunks, self._address)
        if way == "leave":
            self._address = None
        elif way == "choose":
            look = look if at is None else replace(look, selected=Selected.of(chunks[at]))
        elif way == "here" or way in _BESIDE or way in _ROWS:
            if way == "here" or at is None or self._address is None:
                self._address = _begin(chunks, rows, look)
            elif way in _BESIDE:
                at = min(max(at + _BESIDE[way], 0), len(chunks) - 1)
                self._address = _middle(rows, _pieces(rows, chunks[at]))
            else:
                self._address = _in_other_row(chunks, rows, self._address, _ROWS[way])
            look = _with_address(rows, look, self._address)
        else:
            raise BfcvizError(f"the cursor of the map knows no way {way[:20]!r}")
        self.show(model, look)
        return look

    def show(self, model: Model, look: Look) -> None:
        """Show the chunk at the map's cursor at the model's step."""
        if self._address is None:
            self.widget.value = ""
            return
        chunks, rows = model.chunks(), rows_of(model)
        text, boxes = "no chunk here at this step", []
        if (at := _index(chunks, self._address)) is not None:
            text = _text(model, look, rows, chunks[at], self._address)
            boxes = _boxes(rows, _pieces(rows, chunks[at]))
        self.widget.value = f"<span data-bfcviz-cursor='{json.dumps(boxes)}'>{text}</span>"


def _index(chunks: NDArray[np.void], address: int | None) -> int | None:
    """The index of the chunk that has the byte at an address; None: none has it."""
    if address is None:
        return None
    at = int(np.searchsorted(chunks["address"], np.uint64(address), side="right")) - 1
    return at if at >= 0 and address < int(chunks["address"][at]) + int(chunks["size"][at]) else None


def _pieces(rows: Rows, span: np.void) -> Pieces:
    return rows.pieces(*(np.array([span[name]], np.uint64) for name in ("address", "size")))


def _place(rows: Rows, address: int) -> tuple[int, float]:
    """The row of an address on the map, and its bytes from the left edge."""
    piece = rows.pieces(np.array([address], np.uint64), np.ones(1, np.uint64))
    return int(piece.row[0]), float(piece.left[0])


def _address(rows: Rows, row: int, offset: float) -> int:
    """The address at a place of the map; the last one of the row where it is behind the end of the region."""
    region = int(rows.region_of(np.array([row]))[0])
    from_begin = int(offset) + (row - int(rows.first[region])) * rows.width
    return int(rows.address[region]) + min(from_begin, int(rows.size[region]) - 1)


def _begin(chunks: NDArray[np.void], rows: Rows, look: Look) -> int | None:
    """Where the map's cursor begins: at the selected chunk, else of the first one on screen; None: there is none."""
    if look.selected is not None and _index(chunks, look.selected.address) is not None:
        return look.selected.address
    part = rows.part(look.map_window)
    return _address(rows, part.first, part.left) if len(part) else None


def _middle(rows: Rows, pieces: Pieces) -> int:
    """On the map: the address in the middle of the widest piece of a chunk."""
    widest = int(np.argmax(pieces.right - pieces.left))
    return _address(rows, int(pieces.row[widest]), float(pieces.left[widest] + pieces.right[widest]) / 2)


def _in_other_row(chunks: NDArray[np.void], rows: Rows, address: int, step: int) -> int:
    """On the map: the address above or below, in the nearest row with another chunk there; else the same."""
    row, offset = _place(rows, address)
    here = _index(chunks, address)
    while 0 <= (row := row + step) < len(rows):
        there = _address(rows, row, offset)
        if _index(chunks, there) != here:
            return there
    return address


def _with_address(rows: Rows, look: Look, address: int | None) -> Look:
    """The look, its window of the map moved where it does not have the address."""
    window = look.map_window
    if window is None or address is None:
        return look
    row, offset = _place(rows, address)
    bytes_ = _moved(window.bytes, offset, float(rows.width))
    return replace(look, map_window=MapWindow(bytes_, _moved(window.rows, row + 0.5, float(len(rows)))))


def _moved(ends: Span, place: float, whole: float) -> Span:
    """The ends of a window of the map, with `place` in its middle if it does not have it."""
    low, high = ends
    if low <= place < high:
        return ends
    length = high - low
    low = min(max(place - length / 2, 0.0), max(whole - length, 0.0))
    return low, low + length


def _boxes(rows: Rows, pieces: Pieces) -> list[tuple[float, float, int]]:
    """The boxes of a chunk: left and right end as shares of the map's width, and the row."""
    ends = (pieces.left / rows.width).tolist(), (pieces.right / rows.width).tolist()
    return list(zip(*ends, pieces.row.tolist(), strict=True))


def _text(model: Model, look: Look, rows: Rows, chunk: np.void, address: int) -> str:
    """What a screen reader says of the chunk at the map's cursor."""
    name = harmless(blocker_name(chunk, model.trace.labels)) if chunk["in_use"] else "free"
    row, _ = _place(rows, address)
    selected = ", selected" if look.selected == Selected.of(chunk) else ""
    return f"{name}, {format_bytes(int(chunk['size']))}{selected}, row {row + 1:,} of {len(rows):,}"
