"""Series: traces that come one after the other, each with its Inspector; the newest, unless somebody looks back."""

from html import escape
from typing import Any

import ipywidgets as widgets

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.inspector import Inspector
from bfcviz.events.trace import Trace


class Series(widgets.VBox):  # type: ignore[misc]
    """One Inspector, of one trace out of a growing number.

    Args:
        name: what one of them is called.
        options: of the Inspector.

    Attributes:
        traces: those that came.
        inspector: the view of the one that is chosen, None while there is none.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self._options = options
        self.traces: list[Trace] = []
        self.inspector: Inspector | None = None
        self._shown: int | None = None
        self._adding = False
        self._menu = widgets.Dropdown(options=[], description=name)
        self._words = widgets.HTML(f"waiting for the first {escape(name)}")
        self._bar = widgets.HBox([self._menu, self._words])
        super().__init__([self._bar])
        self._menu.observe(lambda _: self._choose(), "value")

    @property
    def trace(self) -> Trace | None:
        """What is shown."""
        return None if self._shown is None else self.traces[self._shown]

    def add(self, name: str, trace: Trace) -> None:
        """One more; it is shown, if the one before it was."""
        newest = len(self.traces)
        chosen = newest if self._shown in {None, newest - 1} else self._shown
        self.traces.append(trace)
        self._adding = True
        self._menu.options = [*self._menu.options, (name, newest)]  # with it the menu goes to the first
        self._menu.value = chosen
        self._adding = False
        if chosen == newest:
            self._show(newest)
        self.say("")

    def say(self, text: str) -> None:
        """Tell something beside the menu."""
        self._words.value = escape(text)

    def close(self) -> None:
        """End it: the page forgets it, and what it kept is freed."""
        if "_bar" not in self.__dict__:
            return
        self.traces, self._shown = [], None
        if self.inspector is not None:
            self.inspector.close()
            self.inspector = None
        widget_lifetime.close(self)
        self.set_trait("children", ())

    def _choose(self) -> None:
        if not self._adding and self._menu.value is not None:
            self._show(self._menu.value)

    def _show(self, number: int) -> None:
        self._shown = number
        before, self.inspector = self.inspector, Inspector(self.traces[number], **self._options)
        self.children = [self._bar, self.inspector]
        if before is not None:
            before.close()
