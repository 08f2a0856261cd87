"""A menu of traces with an Inspector: `RanksView` of the ranks of a job, `LiveSeries` of a growing list."""

import threading
from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets as widgets

from bfcviz.analysis.ranks import RankSet
from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.inspector import Inspector
from bfcviz.errors import BfcvizError
from bfcviz.events.trace import Trace
from bfcviz.figures.text import harmless
from bfcviz.model.find_steps import opening


class InspectorMenu(widgets.VBox):  # type: ignore[misc]
    """A menu of traces, and below it the Inspector of the chosen one; one is open at a time.

    Args:
        menu: the menu.
        text: beside the menu, as HTML.
        above: what is above the menu.
        options: arguments of the Inspector.

    Attributes:
        menu, status: the menu, and the text beside it.
        inspector: that of the chosen trace; None: there is none, or it cannot be opened.
    """

    def __init__(
        self, menu: widgets.Dropdown, text: str = "", above: Sequence[widgets.Widget] = (), **options: Any
    ) -> None:
        self.inspector: Inspector | None = None
        self._options = options
        self._closed = False
        self.menu, self.status = menu, widgets.HTML(text)
        self._above = [*above, widgets.HBox([self.menu, self.status])]
        super().__init__(self._above)

    def _put(self, inspector: Inspector | None) -> None:
        """Show an Inspector below the menu in place of the one before, which is closed."""
        before, self.inspector = self.inspector, inspector
        self.children = [*self._above, *([] if inspector is None else [inspector])]
        if before is not None:
            before.close()

    def close(self) -> None:
        """Close the menu and its Inspector: remove both from the page and free its memory."""
        if "_above" not in self.__dict__ or self._closed:  # __init__ raised
            return
        self._closed = True
        if self.inspector is not None:
            self.inspector.close()
            self.inspector = None
        widget_lifetime.close(self)
        self.set_trait("children", ())


class RanksView(InspectorMenu):
    """A menu of the ranks of one job, a table, the worst first, and the chosen one at its first failure or its peak."""

    def __init__(self, ranks: RankSet, **options: Any) -> None:
        self.ranks = ranks  # those that can be chosen, and those that cannot be read
        names = [rank.name for rank in ranks.known if rank.has_heap]
        menu = widgets.Dropdown(options=names, value=ranks.worst_heap.name, description="rank")
        self.table = widgets.HTML(ranks.html)  # the table of all ranks
        super().__init__(menu, above=[self.table], **options)
        self.menu.observe(lambda _: self.show(self.menu.value), "value")
        self.show(self.menu.value)

    def show(self, name: str) -> None:
        """Open a rank by its name; where it cannot be opened, say why beside the menu."""
        if self._closed:
            return
        self.menu.value = name
        made, said = None, ""
        try:
            trace = self.ranks.open(name)
            pool, step = opening(trace)
            made = Inspector(trace, step=step, pool=pool, **self._options)
        except BfcvizError as error:  # the file may have changed since its summary was made
            said = harmless(str(error), 1000)
        self.status.value = said
        self._put(made)


class LiveSeries(InspectorMenu):
    """A menu of a growing list of traces. It shows the newest until the user chooses an earlier one.

    Args:
        name: what one trace is called.

    Attributes:
        traces: all traces so far.
        ended: set when it is closed, for a thread that reads traces for it.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.traces: list[Trace] = []
        self.ended = threading.Event()
        self._shown: int | None = None
        self._adding = False
        menu = widgets.Dropdown(options=[], description=name)
        super().__init__(menu, f"waiting for the first {escape(name)}", **options)
        self.menu.observe(lambda _: self._choose(), "value")

    @property
    def trace(self) -> Trace | None:
        """The trace of the menu that is shown; None while there is none."""
        return None if self._shown is None else self.traces[self._shown]

    def add(self, name: str, trace: Trace, *, is_last: bool = True) -> None:
        """Add a trace to the menu; it is shown if the one before it was, and none is added next: `is_last`."""
        if self._closed:
            return
        newest = len(self.traces)
        chosen = newest if self._shown in {None, newest - 1} else self._shown
        self.traces.append(trace)
        self._adding = True
        self.menu.options = [*self.menu.options, (name, newest)]  # new options make the menu choose the first
        self.menu.value = chosen
        self._adding = False
        self._shown = chosen
        if is_last and chosen == newest:
            self._show(newest)
        self.say("")

    def say(self, text: str) -> None:
        """Show a text beside the menu."""
        self.status.value = escape(text)

    def close(self) -> None:
        """Close the menu and its Inspector: remove both from the page and free its memory."""
        self.ended.set()
        self.traces, self._shown = [], None
        super().close()

    def _choose(self) -> None:
        if not self._adding and self.menu.value is not None:
            self._show(self.menu.value)

    def _show(self, number: int) -> None:
        self._shown = number
        self._put(Inspector(self.traces[number], **self._options))
