"""The list of chunks at this step: sorted, searched and filtered, saying always what it leaves out."""

from threading import RLock
from typing import Final

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.dashboard.tables.chunk_columns import COLUMNS, chunk_row
from bfcviz.dashboard.tables.list_controls import Questions, Scroller, row, telling
from bfcviz.dashboard.tables.table import ROWS, STYLE, Order, page_html
from bfcviz.errors import BfcvizError
from bfcviz.events.trace import Trace
from bfcviz.figures.style.view_options import PLAIN, Look, Selected
from bfcviz.model import CHUNK, Model
from bfcviz.model.browse.chunk_order import ChunkFilter, ChunkRows, chunk_rows
from bfcviz.model.browse.filters import LabelSearch

_LARGEST_FIRST: Final = frozenset({"size", "requested", "waste", "age"})
"""What is looked at, as a rule, from the largest down."""


class ChunkList:
    """Chunks of one heap at one step; none before `show`.

    Args:
        trace: whose heap.
        pool: which of its heaps.

    Attributes:
        widget: all of it.
        listed: the chunks that are listed, in order.
    """

    def __init__(self, trace: Trace, pool: int = 0) -> None:
        self._lock = RLock()  # a kernel with subshells runs callbacks in threads
        self._chunks: NDArray[np.void] = np.zeros(0, CHUNK)
        self._labels, self._step = trace.labels, 0
        self._heap = _heap_words(trace, pool)
        self._selected: Selected | None = None
        self._filter, self._search = ChunkFilter(), LabelSearch(self._labels, "")
        self._hushed = False  # several questions are about to change: one answer to all
        self.listed: ChunkRows = chunk_rows(self._chunks, self._labels, self._filter)
        self._build()
        self._ask()

    # -- what moves it -----------------------------------------------------------------------------------------

    def show(self, model: Model, look: Look = PLAIN) -> None:
        """Lists the chunks at the model's step, and marks the selected one; a new selection comes onto the page."""
        with self._lock:
            self._chunks, self._step = model.chunks(), model.step
            self._heap = _heap_words(model.trace, model.pool)
            if self._labels is not model.trace.labels:
                self._labels = model.trace.labels
                self._search = LabelSearch(self._labels, self._filter.text)
            new = look.selected != self._selected
            self._selected = look.selected
            self._arrange(follow=new)

    def sort(self, by: str) -> None:
        """Sorts by one of `SORTS`; by what it is sorted by already: the other way.

        Raises:
            BfcvizError: chunks have no such thing.
        """
        names = [column.name for column in COLUMNS]
        if by not in names:
            raise BfcvizError(f"chunks cannot be sorted by {by!r}; there are: {', '.join(names)}")
        now = self._order()
        descending = not now.descending if now.by == by else by in _LARGEST_FIRST
        self.order.value = (by, descending)

    def scroll(self, rows: int) -> None:
        """Moves the page by so many rows, up where negative."""
        with self._lock:
            self._scroller.move_by(rows)

    # -- what it looks for -------------------------------------------------------------------------------------

    def _ask(self) -> None:
        if self._hushed:
            return
        with self._lock:
            self._filter = ChunkFilter(state=self.state.value, **self.questions.asked())
            if self._filter.text != self._search.text:
                self._search = LabelSearch(self._labels, self._filter.text)
            self._arrange(follow=True)

    def _clear(self) -> None:
        self._hushed = True
        self.state.value = "all"
        self.questions.clear()
        self._hushed = False
        self._ask()

    def _order(self) -> Order:
        return Order(*self.order.value)

    def _arrange(self, *, follow: bool) -> None:
        order = self._order()
        self.listed = chunk_rows(
            self._chunks,
            self._labels,
            self._filter,
            order.by,
            descending=order.descending,
            search=self._search,
        )
        self._scroller.hold(len(self.listed), near=self._selected_place() if follow else None)
        self._draw()

    # -- what is seen ------------------------------------------------------------------------------------------

    def _selected_place(self) -> int | None:
        """The row of the selected chunk, if it is listed."""
        if self._selected is None:
            return None
        place = self.listed.place_of(self._selected.address)
        return (
            place if place is not None and self._is_selected(self.listed.page(place, place + 1)[0]) else None
        )

    def _is_selected(self, chunk: np.void) -> bool:
        born = int(chunk["born"]) if chunk["in_use"] else None
        return self._selected == Selected(int(chunk["address"]), born)

    def _draw(self) -> None:
        top = self._scroller.top
        page = self.listed.page(top, top + ROWS)
        rows = [chunk_row(chunk, self._step, self._labels, here=self._is_selected(chunk)) for chunk in page]
        self.page.value = page_html("chunks", COLUMNS, rows, self._order(), ROWS)
        self._scroller.show()
        self.count.value = telling(self._count())

    def _count(self) -> str:
        total, reasons = len(self._chunks), self._filter.reasons()
        told = f"All {total:,} chunks{self._heap}"
        if reasons:
            told = f"{len(self.listed):,} of {total:,} chunks{self._heap}: {', '.join(reasons)}"
        if self._selected is not None and self._selected_place() is None:
            told += "; the selected chunk is not among them"
        return told

    def _moved(self) -> None:
        with self._lock:
            self._draw()

    def _reordered(self) -> None:
        with self._lock:
            self._arrange(follow=False)

    def _build(self) -> None:
        self.state = widgets.ToggleButtons(
            options=["all", "in use", "free"], tooltips=_STATES, style={"button_width": "auto"}
        )
        self.state.observe(lambda _: self._ask(), "value")
        self.order = widgets.Dropdown(
            options=_ORDERS,
            description="order",
            tooltip="what the chunks are sorted by",
            layout={"width": "auto"},
            style={"description_width": "initial"},
        )
        self.order.observe(lambda _: self._reordered(), "value")
        self.questions = Questions("chunks", self._ask)
        everything = widgets.Button(
            description="show all",
            tooltip="chunks of every state, label, size and thread",
            layout={"width": "auto"},
        )
        everything.on_click(lambda _: self._clear())
        self.count = widgets.HTML()
        self.page = widgets.HTML(layout={"width": "100%"})
        self._scroller = Scroller(ROWS, self._moved)
        style = widgets.HTML(STYLE, layout={"display": "none"})
        asking = [row([self.state, self.order, everything]), self.questions.widget]
        self.widget = widgets.VBox([style, *asking, self.count, self.page, self._scroller.widget])
        self.widget.add_class("bfcviz-chunks")


def _heap_words(trace: Trace, pool: int) -> str:
    """Which heap it is, where there are several."""
    pools = trace.origin.pools
    return f" of pool '{pools[pool].name}'" if len(pools) > 1 else ""


_STATES: Final = [
    "free chunks and chunks in use",
    "chunks that were handed out",
    "chunks that can be handed out",
]

_ORDERS: Final = [
    (f"by {column.name}, {'descending' if descending else 'ascending'}", (column.name, descending))
    for column in COLUMNS
    for descending in (False, True)
]
