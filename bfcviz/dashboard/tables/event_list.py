"""The list of events: a page of them at a time, searched and filtered, saying always what it leaves out."""

from threading import RLock
from time import monotonic
from typing import Any, Final

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.dashboard.tables.event_columns import COLUMNS, EventRows
from bfcviz.dashboard.tables.list_controls import Questions, Scroller, row, telling
from bfcviz.dashboard.tables.table import ROWS, STYLE, page_html
from bfcviz.errors import BfcvizError
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.browse.filters import EventFilter, matching

_HINTS: Final = {
    Kind.EXTEND: "the sub-allocator granted a region",
    Kind.SPLIT: "a free chunk was cut in two",
    Kind.ALLOCATE: "a chunk was handed out",
    Kind.FREE: "a chunk came back",
    Kind.MERGE: "two free neighbours became one",
    Kind.RELEASE: "a free region went back",
    Kind.OOM: "a request failed",
    Kind.MARK: "the user's own mark",
}
_PATIENCE_S: Final = 0.5
"""Seconds after which a search says how far it is, and again each time."""


class EventList:
    """Events of one pool of a trace.

    Args:
        trace: the events.
        pool: whose.

    Attributes:
        widget: all of it.
        found: `seq` of each event that is listed.
    """

    def __init__(self, trace: Trace, pool: int = 0) -> None:
        self._lock = RLock()  # a kernel with subshells runs callbacks in threads
        self._trace, self._pool = trace, pool
        self._step = 0
        self._filter = EventFilter()
        self._question = 0
        self._hushed = False  # several questions are about to change: one search for all
        self._looked_through = 0
        self._event_rows = EventRows(trace)
        self.found: NDArray[np.unsignedinteger] = np.zeros(0, np.uint32)
        self._build()
        self._search()

    # -- what moves it -----------------------------------------------------------------------------------------

    def show(self, step: int) -> None:
        """Marks the event that led to `step`, and brings it onto the page."""
        with self._lock:
            self._step = step
            self._let_go()
            self._scroller.hold(len(self.found), near=self._place())
            self._draw()

    def scroll(self, rows: int) -> None:
        """Moves the page by so many rows, up where negative."""
        with self._lock:
            self._scroller.move_by(rows)

    def trace_grew(self) -> None:
        """Takes in the events that came since, and lets go of those the trace has let go of."""
        with self._lock:
            stop = len(self._trace)
            start = max(self._looked_through, self._trace.first)
            new = matching(self._trace, self._pool, self._filter, start=start, stop=stop)
            self.found = np.concatenate([self.found, new])
            self._looked_through = stop
            self._let_go()
            self._scroller.hold(len(self.found))
            self._draw()

    # -- what it looks for -------------------------------------------------------------------------------------

    def _asked(self) -> EventFilter:
        kinds = frozenset(kind for kind, button in self.kinds.items() if button.value)
        return EventFilter(kinds=kinds, **self.questions.asked())

    def _search(self) -> None:
        if self._hushed:
            return
        self._question += 1
        question, began = self._question, monotonic()

        def go_on(done: int) -> bool:
            nonlocal began
            if monotonic() - began > _PATIENCE_S:
                began = monotonic()
                self.count.value = telling(f"looked through {done:,} of {len(self._trace):,} events …")
            return self._question == question  # a newer question, from another thread, waits for the lock

        with self._lock:
            if question != self._question:
                return
            asked, stop = self._asked(), len(self._trace)
            try:
                found = matching(self._trace, self._pool, asked, go_on, stop=stop)
            except BfcvizError as error:
                self.count.value = telling(str(error), alert=True)
                return
            if question != self._question:
                return
            self.found, self._filter, self._looked_through = found, asked, stop
            self._scroller.hold(len(found), near=self._place())
            self._draw()

    def _clear(self) -> None:
        self._hushed = True
        for button in self.kinds.values():
            button.value = False
        self.questions.clear()
        self._hushed = False
        self._search()

    def _let_go(self) -> None:
        """Forgets events that the trace, one that is followed, no longer has."""
        gone = self._row_of(self._trace.first)
        if gone:
            self.found = self.found[gone:]
            self._scroller.top -= gone  # the same events stay on the page
            self._scroller.hold(len(self.found))

    # -- what is seen ------------------------------------------------------------------------------------------

    def _place(self) -> int:
        """The row of this step's event, or of the next one listed."""
        return self._row_of(max(self._step - 1, 0))

    def _row_of(self, seq: int) -> int:
        """The row of this event, or of the next one listed."""
        # Of another type, the number would have the whole array copied to that type.
        return int(np.searchsorted(self.found, self.found.dtype.type(seq)))

    def _draw(self) -> None:
        top = self._scroller.top
        here = self._place()
        listed = self._step > 0 and here < len(self.found) and int(self.found[here]) == self._step - 1
        try:
            events = self._events(self.found[top : top + ROWS].tolist())
        except BfcvizError as error:
            self.count.value = telling(str(error), alert=True)
            return
        rows = [
            self._event_rows.row(
                event,
                here=listed and place == here,
                after_here=not listed and place == here and self._step > 0,
            )
            for place, event in enumerate(events, start=top)
        ]
        self.page.value = page_html("events", COLUMNS, rows, length=ROWS)
        self._scroller.show()
        self.count.value = telling(self._count(listed=listed))

    def _events(self, page: list[int]) -> list[dict[str, Any]]:
        """The events with these `seq`s, as fields by name."""
        if page and page[-1] - page[0] < 64 * ROWS:  # near each other: one look
            events = self._trace.read(page[0], page[-1] + 1)[np.array(page) - page[0]]
        else:
            events = [self._trace.read(seq, seq + 1)[0] for seq in page]
        return [dict(zip(event.dtype.names, event.tolist(), strict=True)) for event in events]

    def _count(self, *, listed: bool) -> str:
        first, pools = self._trace.first, self._trace.origin.pools
        total = max(self._looked_through - first, 0)
        reasons = [f"pool '{pools[self._pool].name}'"] if len(pools) > 1 else []
        reasons += self._filter.reasons()
        told = (
            f"{len(self.found):,} of {total:,} events: {', '.join(reasons)}"
            if reasons
            else f"All {total:,} events"
        )
        if first:
            told += f"; the {first:,} before them are no longer kept"
        if self._step > 0 and not listed:
            told += f"; the event that led to step {self._step:,} is not among them"
        return told

    def _moved(self) -> None:
        with self._lock:
            self._let_go()
            self._draw()

    def _build(self) -> None:
        self.kinds = {kind: self._kind(kind) for kind in Kind}
        self.questions = Questions("events", self._search)
        everything = widgets.Button(
            description="show all",
            tooltip="events of every kind, label, size and thread",
            layout={"width": "auto"},
        )
        everything.on_click(lambda _: self._clear())
        self.count = widgets.HTML()
        self.page = widgets.HTML(layout={"width": "100%"})
        self._scroller = Scroller(ROWS, self._moved)
        style = widgets.HTML(STYLE, layout={"display": "none"})
        asking = [row([*self.kinds.values(), everything]), self.questions.widget]
        self.widget = widgets.VBox([style, *asking, self.count, self.page, self._scroller.widget])
        self.widget.add_class("bfcviz-events")

    def _kind(self, kind: Kind) -> widgets.ToggleButton:
        button = widgets.ToggleButton(
            description=kind.name, tooltip=f"{kind.name} only: {_HINTS[kind]}", layout={"width": "auto"}
        )
        button.observe(lambda _: self._search(), "value")
        return button
