"""Views of what another process records: `follow`, a LiveDashboard of one recording; `Series`, a menu of traces."""

import os
from html import escape
from pathlib import Path
from typing import Any, Final

import ipywidgets as widgets

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.inspector import Inspector
from bfcviz.dashboard.live import LiveDashboard
from bfcviz.events.storage.recording_set import await_recording
from bfcviz.events.trace import Trace


class Series(widgets.VBox):  # type: ignore[misc]
    """The Inspector of one trace of a growing list. It shows the newest until the user chooses an earlier one.

    Args:
        name: what one trace is called.
        options: arguments of the Inspector.

    Attributes:
        traces: all traces so far.
        inspector: the Inspector of the chosen trace; None while there is no trace.
        menu, status: the menu of traces, and the text beside it.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self._options = options
        self.traces: list[Trace] = []
        self.inspector: Inspector | None = None
        self._shown: int | None = None
        self._adding = False
        self.menu = widgets.Dropdown(options=[], description=name)
        self.status = widgets.HTML(f"waiting for the first {escape(name)}")
        self._bar = widgets.HBox([self.menu, self.status])
        super().__init__([self._bar])
        self.menu.observe(lambda _: self._choose(), "value")

    @property
    def trace(self) -> Trace | None:
        """The trace shown; None while there is none."""
        return None if self._shown is None else self.traces[self._shown]

    def add(self, name: str, trace: Trace) -> None:
        """Add a trace; it is shown if the one before it was."""
        newest = len(self.traces)
        chosen = newest if self._shown in {None, newest - 1} else self._shown
        self.traces.append(trace)
        self._adding = True
        self.menu.options = [*self.menu.options, (name, newest)]  # new options make the menu choose the first
        self.menu.value = chosen
        self._adding = False
        if chosen == newest:
            self._show(newest)
        self.say("")

    def say(self, text: str) -> None:
        """Show a text beside the menu."""
        self.status.value = escape(text)

    def close(self) -> None:
        """Close it: remove it from the page and free its memory."""
        if "_bar" not in self.__dict__:
            return
        self.traces, self._shown = [], None
        if self.inspector is not None:
            self.inspector.close()
            self.inspector = None
        widget_lifetime.close(self)
        self.set_trait("children", ())

    def _choose(self) -> None:
        if not self._adding and self.menu.value is not None:
            self._show(self.menu.value)

    def _show(self, number: int) -> None:
        self._shown = number
        before, self.inspector = self.inspector, Inspector(self.traces[number], **self._options)
        self.children = [self._bar, self.inspector]
        if before is not None:
            before.close()


WAIT_S: Final = 30.0


def follow(path: str | os.PathLike[str], *, wait_s: float = WAIT_S, **options: Any) -> LiveDashboard:
    """The dashboard of another process's heap, live, from its recording.

    ::

        bfcviz.follow("run.bfc")    # beside `bfcviz record -o run.bfc -- python train.py`

    It shows the events recorded so far, follows new ones, and says when the process ended or was killed.

    Args:
        path: the recording's folder.
        wait_s: seconds to wait for a recording that has not started.
        options: arguments of LiveDashboard.

    Raises:
        FileError: the path is not a recording.
        BfcvizError: no recording started within `wait_s`.
    """
    await_recording(Path(path), wait_s)
    return LiveDashboard(path, **options)
