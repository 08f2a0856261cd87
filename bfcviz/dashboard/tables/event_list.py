"""The list of events, one page at a time: filtered; it always says what it leaves out."""

from threading import RLock
from time import monotonic
from typing import Any, Final

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.dashboard.tables.columns import EVENT_COLUMNS, EventRows
from bfcviz.dashboard.tables.list_controls import (
    FilterControls,
    Scroller,
    list_box,
    row,
    show_all,
    status_html,
)
from bfcviz.dashboard.tables.table import ROWS, page_html
from bfcviz.errors import BfcvizError
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.browse.filters import EventFilter, matching

_HINTS: Final = {
    Kind.EXTEND: "the sub-allocator granted a region",
    Kind.SPLIT: "a free chunk was split",
    Kind.ALLOCATE: "a chunk was allocated",
    Kind.FREE: "a chunk was freed",
    Kind.MERGE: "two free neighbours were merged",
    Kind.RELEASE: "a free region was returned to the sub-allocator",
    Kind.OOM: "a request failed",
    Kind.MARK: "the user's own mark",
}
_PROGRESS_S: Final = 0.5
"""Seconds between two progress messages of a search."""


class EventList:
    """The events of one heap of a trace.

    Args:
        trace: the events.
        pool: number of the heap.

    Attributes:
        widget: the whole widget.
        found: `seq` of each listed event.
    """

    def __init__(self, trace: Trace, pool: int = 0) -> None:
        self._lock = RLock()  # a kernel with subshells runs callbacks in threads
        self._trace, self._pool = trace, pool
        self._step = 0
        self._filter = EventFilter()
        self._search_number = 0
        self._clearing = False  # `clear` changes several filters, and searches once
        self._searched = 0
        self._event_rows = EventRows(trace)
        self.found: NDArray[np.unsignedinteger] = np.zeros(0, np.uint32)
        self._build()
        self._search()

    # -- step, order and scrolling -----------------------------------------------------------------------------

    def show(self, step: int) -> None:
        """Mark the event before `step`, and scroll to it."""
        with self._lock:
            self._step = step
            self._drop_old()
            self.scroller.set_count(len(self.found), near=self._place())
            self._draw()

    def scroll(self, rows: int) -> None:
        """Move the page by this number of rows; up if negative."""
        with self._lock:
            self.scroller.move_by(rows)

    def trace_grew(self) -> None:
        """Add new events, and drop those that the trace has dropped."""
        with self._lock:
            stop = len(self._trace)
            start = max(self._searched, self._trace.first)
            new = matching(self._trace, self._pool, self._filter, start=start, stop=stop)
            self.found = np.concatenate([self.found, new])
            self._searched = stop
            self._drop_old()
            self.scroller.set_count(len(self.found))
            self._draw()

    # -- filters -----------------------------------------------------------------------------------------------

    def _new_filter(self) -> EventFilter:
        kinds = frozenset(kind for kind, button in self.kinds.items() if button.value)
        return EventFilter(kinds=kinds, **self.filters.values())

    def _search(self) -> None:
        if self._clearing:
            return
        self._search_number += 1
        number, began = self._search_number, monotonic()

        def progress(done: int) -> bool:
            nonlocal began
            if monotonic() - began > _PROGRESS_S:
                began = monotonic()
                self.count.value = status_html(f"searched {done:,} of {len(self._trace):,} events …")
            return (
                self._search_number == number
            )  # False: a newer search, in another thread, waits for the lock

        with self._lock:
            if number != self._search_number:
                return
            new_filter, stop = self._new_filter(), len(self._trace)
            try:
                found = matching(self._trace, self._pool, new_filter, progress, stop=stop)
            except BfcvizError as error:
                self.count.value = status_html(str(error), alert=True)
                return
            if number != self._search_number:
                return
            self.found, self._filter, self._searched = found, new_filter, stop
            self.scroller.set_count(len(found), near=self._place())
            self._draw()

    def clear(self) -> None:
        """Clear all filters."""
        self._clearing = True
        for button in self.kinds.values():
            button.value = False
        self.filters.clear()
        self._clearing = False
        self._search()

    def _drop_old(self) -> None:
        """Drop listed events that a followed trace no longer has."""
        gone = self._row_of(self._trace.first)
        if gone:
            self.found = self.found[gone:]
            self.scroller.top -= gone  # the same events stay on the page
            self.scroller.set_count(len(self.found))

    # -- rows on the page --------------------------------------------------------------------------------------

    def _place(self) -> int:
        """The row of the event before this step, or of the next listed one."""
        return self._row_of(max(self._step - 1, 0))

    def _row_of(self, seq: int) -> int:
        """The row of this event, or of the next listed one."""
        # With a number of another type, NumPy copies the whole array to that type.
        return int(np.searchsorted(self.found, self.found.dtype.type(seq)))

    def _draw(self) -> None:
        top = self.scroller.top
        here = self._place()
        listed = self._step > 0 and here < len(self.found) and int(self.found[here]) == self._step - 1
        try:
            events = self._events(self.found[top : top + ROWS].tolist())
        except BfcvizError as error:
            self.count.value = status_html(str(error), alert=True)
            return
        rows = [
            self._event_rows.row(
                event,
                here=listed and place == here,
                after_here=not listed and place == here and self._step > 0,
            )
            for place, event in enumerate(events, start=top)
        ]
        self.page.value = page_html("events", EVENT_COLUMNS, rows, length=ROWS)
        self.scroller.show()
        self.count.value = status_html(self._count(listed=listed))

    def _events(self, page: list[int]) -> list[dict[str, Any]]:
        """The events with these `seq`s, as fields by name."""
        if page and page[-1] - page[0] < 64 * ROWS:  # close together: one read
            events = self._trace.read(page[0], page[-1] + 1)[np.array(page) - page[0]]
        else:
            events = [self._trace.read(seq, seq + 1)[0] for seq in page]
        return [dict(zip(event.dtype.names, event.tolist(), strict=True)) for event in events]

    def _count(self, *, listed: bool) -> str:
        first, pools = self._trace.first, self._trace.origin.pools
        total = max(self._searched - first, 0)
        reasons = [f"pool '{pools[self._pool].name}'"] if len(pools) > 1 else []
        reasons += self._filter.reasons()
        text = f"All {total:,} events"
        if reasons:
            text = f"{len(self.found):,} of {total:,} events: {', '.join(reasons)}"
        if first:
            text += f"; the {first:,} before them are no longer kept"
        if self._step > 0 and not listed:
            text += f"; the event that led to step {self._step:,} is not among them"
        return text

    def _moved(self) -> None:
        with self._lock:
            self._drop_old()
            self._draw()

    def _build(self) -> None:
        self.kinds = {kind: self._kind(kind) for kind in Kind}
        self.filters = FilterControls("events", self._search)
        self.count, self.page = widgets.HTML(), widgets.HTML(layout={"width": "100%"})
        self.scroller = Scroller(ROWS, self._moved)
        everything = show_all("events of every kind, label, size and thread", self.clear)
        controls = [row([*self.kinds.values(), everything]), self.filters.widget]
        self.widget = list_box("bfcviz-events", [*controls, self.count, self.page, self.scroller.widget])

    def _kind(self, kind: Kind) -> widgets.ToggleButton:
        button = widgets.ToggleButton(
            description=kind.name, tooltip=f"{kind.name} only: {_HINTS[kind]}", layout={"width": "auto"}
        )
        button.observe(lambda _: self._search(), "value")
        return button
