"""The list of chunks at one step: sorted and filtered; it always says what it leaves out."""

from dataclasses import replace
from threading import RLock
from typing import Final

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.dashboard.table import (
    NOTHING,
    Column,
    FilterControls,
    ListHtml,
    Order,
    Row,
    RowsInView,
    ViewFilter,
    button,
    bytes_cell,
    label_cell,
    list_box,
    row,
    show_all,
    status_html,
)
from bfcviz.errors import BfcvizError
from bfcviz.events.labels import Labels
from bfcviz.events.schema import bin_of
from bfcviz.events.trace import Trace
from bfcviz.figures.region_map.rows import last_event, touched
from bfcviz.figures.view_options import PLAIN, Look, Selected
from bfcviz.model import CHUNK, Model
from bfcviz.model.filters import ChunkFilter, ChunkOrder, LabelSearch, order_chunks

# ------------------------------------------------------------------------------
# The columns of the table of chunks, and the row of a chunk.

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


# ------------------------------------------------------------------------------
# The list of chunks at one step: sorted and filtered; it always says what it leaves out.

_LARGEST_FIRST: Final = frozenset({"size", "requested", "waste", "age"})
"""Columns that are sorted in descending order first."""

_TABLE: Final = ListHtml("chunks", CHUNK_COLUMNS, "select this chunk")


class ChunkList:
    """The chunks of one heap at one step; empty before `show`.

    Args:
        trace: the trace of the heap.
        pool: number of the heap.

    Attributes:
        widget: the whole widget.
        listed: the listed chunks, in order.
    """

    def __init__(self, trace: Trace, pool: int = 0) -> None:
        self._lock = RLock()  # a kernel with subshells runs callbacks in threads
        self._chunks: NDArray[np.void] = np.zeros(0, CHUNK)
        self._labels, self._step = trace.labels, 0
        self._pool_text = _pool_text(trace, pool)
        self._look, self._selected = PLAIN, PLAIN.selected
        self._touched: frozenset[int] = frozenset()  # addresses of the chunks of the event before the step
        self._order = Order("size", descending=True)
        self._view, self._view_filter = RowsInView(), ViewFilter()
        self._filter, self._search = ChunkFilter(), LabelSearch(self._labels, "")
        self._clearing = False  # `clear` changes several filters, and lists once
        self.listed: ChunkOrder = order_chunks(self._chunks, self._labels, self._filter)
        self._build()
        self._apply_filters()

    # -- step, order and scrolling -----------------------------------------------------------------------------

    def show(self, model: Model, look: Look = PLAIN) -> None:
        """List the chunks at the model's step and mark the selected one; scroll to a new selection."""
        with self._lock:
            self._chunks, self._step = model.chunks(), model.step
            self._pool_text = _pool_text(model.trace, model.pool)
            if self._labels is not model.trace.labels:
                self._labels = model.trace.labels
                self._search = LabelSearch(self._labels, self._filter.text)
            new = look.selected != self._selected
            self._look, self._selected = look, look.selected
            spans = touched(last_event(model), self._chunks, model.regions())
            self._touched = frozenset(spans["address"].tolist())
            if self._view_filter.update(model.trace, model.pool, look):
                self._filter = replace(self._filter, also=self._view_filter.conditions)
                new = True
            self._arrange(follow=new)

    def sort(self, by: str) -> None:
        """Sort by a column and show the first rows; if it is sorted by this column already, reverse the order.

        Raises:
            BfcvizError: there is no such column.
        """
        names = [column.name for column in CHUNK_COLUMNS]
        if by not in names:
            raise BfcvizError(f"chunks have no column {by!r} to sort by; choose one of {', '.join(names)}")
        with self._lock:
            now = self._order
            self._order = Order(by, not now.descending if now.by == by else by in _LARGEST_FIRST)
            self._view.move_to(0)
            self._arrange(follow=False)

    def scroll(self, top: int) -> None:
        """Take in that the page was scrolled to row `top`."""
        with self._lock:
            if self._view.scrolled_to(top):
                self._draw()

    # -- filters -----------------------------------------------------------------------------------------------

    def _apply_filters(self) -> None:
        if self._clearing:
            return
        with self._lock:
            also = self._view_filter.conditions
            self._filter = ChunkFilter(state=self.state.value, also=also, **self.filters.values())
            if self._filter.text != self._search.text:
                self._search = LabelSearch(self._labels, self._filter.text)
            self._arrange(follow=True)

    def clear(self) -> None:
        """Clear all filters of this table."""
        self._clearing = True
        self.state.value = "all"
        self.filters.clear()
        self._clearing = False
        self._apply_filters()

    def _arrange(self, *, follow: bool) -> None:
        order = self._order
        self.listed = order_chunks(
            self._chunks,
            self._labels,
            self._filter,
            order.by,
            descending=order.descending,
            search=self._search,
        )
        self._view.set_count(len(self.listed), near=self._selected_place() if follow else None)
        self._draw()

    # -- rows on the page --------------------------------------------------------------------------------------

    def _selected_place(self) -> int | None:
        """The row of the selected chunk; None if it is not listed."""
        if self._selected is None:
            return None
        place = self.listed.place_of(self._selected.address)
        if place is None or not self._is_selected(self.listed.page(place, place + 1)[0]):
            return None
        return place

    def _is_selected(self, chunk: np.void) -> bool:
        born = int(chunk["born"]) if chunk["in_use"] else None
        return self._selected == Selected(int(chunk["address"]), born)

    def _draw(self) -> None:
        view = self._view
        makes = ChunkTableRows(self._step, self._labels, self._look.search or "")
        rows = [
            makes.row(chunk, here=int(chunk["address"]) in self._touched, selected=self._is_selected(chunk))
            for chunk in self.listed.page(view.made.start, view.made.stop)
        ]
        self.page.value = _TABLE.draw(rows, view, self._order)
        self.count.value = status_html(self._count(), self._view_filter.links)

    def _count(self) -> str:
        total, reasons = len(self._chunks), self._filter.reasons()
        text = f"All {total:,} chunks{self._pool_text}"
        if reasons:
            text = f"{len(self.listed):,} of {total:,} chunks{self._pool_text}: {', '.join(reasons)}"
        if self._selected is not None and self._selected_place() is None:
            text += "; the selected chunk is not among them"
        return text

    def _build(self) -> None:
        self.state = widgets.ToggleButtons(
            options=["all", "in use", "free"], tooltips=_STATES, style={"button_width": "auto"}
        )
        self.state.observe(lambda _: self._apply_filters(), "value")
        self.filters = FilterControls("chunks", self._apply_filters)
        self.count, self.page = widgets.HTML(), widgets.HTML(layout={"width": "100%"})
        everything = show_all("chunks of every state, label, size and thread", self.clear)
        controls = row([self.state, *self.filters.inputs, everything])
        self.widget = list_box("bfcviz-chunks", [controls], self.count, self.page)


def _pool_text(trace: Trace, pool: int) -> str:
    """The name of the heap, if the trace has several; else empty."""
    pools = trace.origin.pools
    return f" of pool '{pools[pool].name}'" if len(pools) > 1 else ""


_STATES: Final = [
    "free chunks and chunks in use",
    "allocated chunks",
    "chunks that can be allocated",
]
