"""The list of events, filtered; it always says what it leaves out, and makes only rows that are near those in sight."""

from time import monotonic
from typing import Any, Final

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.event_text import short_words
from bfcviz.dashboard.table import (
    NOTHING,
    Column,
    Row,
    RowsInView,
    TableConditions,
    TableFilters,
    TableHtml,
    bytes_cell,
    hinted,
    label_cell,
    list_box,
    row,
    show_all,
    status_html,
    thread_cell,
)
from bfcviz.errors import BfcvizError
from bfcviz.events.origin import unknown_of_chunks
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.view_options import PLAIN, Look, Selected
from bfcviz.model.filters import EventFilter, matching
from bfcviz.unwatched import UnwatchedLock

EVENT_COLUMNS: Final = (
    Column("step", 9, "right", "number of events applied after this one"),
    Column("time", 13, "right", "time since the start of the trace"),
    Column("kind", 9, "left", "what happened"),
    Column("label", 0, "left", "the operation that allocated the chunk"),
    Column("size", 9, "right", "size of the memory at the address"),
    Column("requested", 11, "right", "the size that the caller requested"),
    Column("what happened", 26, "left", "a short description"),
    Column(
        "address",
        15,
        "right",
        "of the chunk or region; SPLIT: of the remainder; MERGE: of the absorbed chunk",
        wide=True,
    ),
    Column(
        "thread", 7, "right", "number of the thread that allocated the chunk, or caused the event", wide=True
    ),
    Column("stream", 7, "right", "number of the stream", wide=True),
)

_PLACED: Final = frozenset(Kind) - {Kind.OOM, Kind.MARK}  # kinds whose address and size are those of memory

_REQUESTED: Final = frozenset({Kind.ALLOCATE, Kind.FREE, Kind.OOM})
"""Kinds with a requested size, even if it is 0."""


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
_PROGRESS_S: Final = 0.5  # seconds between two progress messages of a search

_CLOSE: Final = 1024  # events that are read at once to show some of them

_TABLE: Final = TableHtml("events", EVENT_COLUMNS, "go to this step")


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
        self._lock = UnwatchedLock()  # a kernel with subshells runs callbacks in threads
        self._trace, self._pool = trace, pool
        self._step, self._look = 0, PLAIN
        self._view, self._view_filter = RowsInView(), TableConditions()
        self._filter = EventFilter()
        self._search_number = 0
        self._clearing = False  # `clear` changes several filters, and searches once
        self._searched = 0
        self.found: NDArray[np.unsignedinteger] | range = range(0)
        self._build()
        self._search()

    # -- step, order and scrolling -----------------------------------------------------------------------------

    def show(self, step: int, look: Look = PLAIN) -> None:
        """In the list of events, mark the one before `step`, and scroll to it; mark those of the selected chunk."""
        with self._lock:
            self._step, self._look = step, look
            if self._view_filter.update(self._trace, self._pool, look):
                self._search()
                return
            self._drop_old()
            self._view.set_count(len(self.found), near=self._place())
            self._draw()

    def scroll(self, top: int) -> None:
        """Take in that the list of events was scrolled to row `top`."""
        with self._lock:
            if self._drop_old() + self._view.scrolled_to(top):
                self._draw()

    def trace_grew(self) -> None:
        """Add new events to the list, and drop those that the trace has dropped."""
        with self._lock:
            stop = len(self._trace)
            start = max(self._searched, self._trace.first)
            new = matching(self._trace, self._pool, self._filter, start=start, stop=stop)
            if isinstance(new, range):
                self.found = range(new.start - len(self.found), new.stop)
            else:
                self.found = np.concatenate([np.asarray(self.found, new.dtype), new])
            self._searched = stop
            self._drop_old()
            self._view.set_count(len(self.found))
            self._draw()

    # -- filters -----------------------------------------------------------------------------------------------

    def _new_filter(self) -> EventFilter:
        kinds = frozenset(kind for kind, button in self.kinds.items() if button.value)
        return EventFilter(kinds=kinds, also=self._view_filter.conditions, **self.filters.values())

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
            # False: a newer search, in another thread, waits for the lock.
            return self._search_number == number

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
            self._view.set_count(len(found), near=self._place())
            self._draw()

    def clear(self) -> None:
        """Clear all filters of the list of events."""
        self._clearing = True
        for button in self.kinds.values():
            button.value = False
        self.filters.clear()
        self._clearing = False
        self._search()

    def _drop_old(self) -> int:
        """Drop listed events that a followed trace no longer has; return how many."""
        gone = self._row_of(self._trace.first)
        if gone:
            self.found = self.found[gone:]
            self._view.drop(gone)
        return gone

    # -- rows on the page --------------------------------------------------------------------------------------

    def _place(self) -> int:
        """In the list of events: the row of the one before this step, or of the next listed one."""
        return self._row_of(max(self._step - 1, 0))

    def _row_of(self, seq: int) -> int:
        """In the list of events: the row of this one, or of the next listed one."""
        if isinstance(self.found, range):
            return min(max(seq - self.found.start, 0), len(self.found))
        # With a number of another type, NumPy copies the whole array to that type.
        return int(np.searchsorted(self.found, self.found.dtype.type(seq)))

    def _draw(self) -> None:
        made = self._view.made
        here = self._place()
        listed = self._step > 0 and here < len(self.found) and int(self.found[here]) == self._step - 1
        try:
            events = self._events([int(seq) for seq in self.found[made.start : made.stop]])
        except BfcvizError as error:
            self.count.value = status_html(str(error), alert=True)
            return
        rows = [
            self._row(event, here=place == here, listed=listed)
            for place, event in zip(made, events, strict=True)
        ]
        self.page.value = _TABLE.draw(rows, self._view)
        self.count.value = status_html(self._count(listed=listed), self._view_filter.links)

    def _row(self, event: dict[str, Any], *, here: bool, listed: bool) -> Row:
        """The row of an event; `here`: its step is the one shown or, where that is not `listed`, the next one."""
        kind, step = Kind(event["kind"]), event["seq"] + 1
        placed, requested = kind in _PLACED, kind in _REQUESTED or event["requested"]
        labels, words = self._trace.labels, short_words(event, self._trace.labels)
        unknown = unknown_of_chunks(self._trace.origin.details, event["pool"])
        if kind is Kind.OOM:  # every file of a failure says what was asked for
            unknown -= {"requested"}
        cells = (
            f"{step:,}",
            f"{event['time'] / 1e6:,.3f} ms",
            kind.name,
            label_cell(labels, event["label"], self._look.search or ""),
            bytes_cell(event["size"]) if placed else NOTHING,
            bytes_cell(event["requested"]) if requested and "requested" not in unknown else NOTHING,
            hinted(words, words),
            f"{event['address']:#x}" if placed else NOTHING,
            NOTHING if "thread" in unknown else thread_cell(self._trace, event["thread"]),
            NOTHING if "stream" in unknown else f"{event['stream']}",
        )
        after_here = here and not listed and self._step > 0
        return Row(cells, {"do": "step", "step": step}, here and listed, after_here, self._is_selected(event))

    def _is_selected(self, event: dict[str, Any]) -> bool:
        """Whether the event allocated or freed the selected chunk."""
        chosen = self._look.selected
        if chosen is None or chosen.born is None or event["address"] != chosen.address:
            return False
        if event["kind"] == Kind.ALLOCATE:
            return bool(event["seq"] == chosen.born)
        if event["kind"] != Kind.FREE or event["seq"] < chosen.born:
            return False
        return bool(event["other"] == self._allocation(chosen))

    def _allocation(self, chosen: Selected) -> int:
        """The id of the allocation of a chunk, which its ALLOCATE and its FREE have."""
        born = chosen.born
        if born is None or not self._trace.first <= born < len(self._trace):
            return -1
        return int(self._trace.read(born, born + 1)["other"][0])

    def _events(self, page: list[int]) -> list[dict[str, Any]]:
        """The events with these `seq`s, as fields by name."""
        if page and page[-1] - page[0] < _CLOSE:  # close together: one read
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

    def _build(self) -> None:
        self.kinds = {kind: self._kind(kind) for kind in Kind}
        self.filters = TableFilters("events", self._search)
        self.count, self.page = widgets.HTML(), widgets.HTML(layout={"width": "100%"})
        everything = show_all("events of every kind, label, size and thread", self.clear)
        controls = [row([*self.kinds.values(), everything]), row(self.filters.inputs)]
        self.widget = list_box("bfcviz-events", controls, self.count, self.page)

    def _kind(self, kind: Kind) -> widgets.ToggleButton:
        button = widgets.ToggleButton(
            description=kind.name, tooltip=f"{kind.name} only: {_HINTS[kind]}", layout={"width": "auto"}
        )
        button.observe(lambda _: self._search(), "value")
        return button
