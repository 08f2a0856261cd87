"""WatchDashboard: a live dashboard that also says which way a framework is watched, and what its alerts found."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final, TypeVar

import ipywidgets as widgets

from bfcviz.dashboard import LiveDashboard
from bfcviz.dashboard.background.ring_reader import RingReader
from bfcviz.dashboard.background.workload import Workload
from bfcviz.dashboard.live import numbered
from bfcviz.dashboard.sources import name_of
from bfcviz.events.trace import Trace
from bfcviz.live.numpy.serve import unserved

T = TypeVar("T")

_MOST: Final = 5
"""Notices that are shown; the newest."""

_WIDE: Final = {"flex": "1 1 100%"}
_LINE: Final = "line-height: 1.45"


class WatchDashboard(LiveDashboard):
    """The dashboard of a `Watch`.

    Args:
        traces: of the heaps.
        says: which way they are watched.
        options: of LiveDashboard.
    """

    def __init__(self, traces: Sequence[Trace], says: str, **options: Any) -> None:
        self._said: list[str] = []
        self._way = widgets.HTML(_line(says), layout=_WIDE)
        self._notices = widgets.HTML(layout=_WIDE)
        self._way.add_class("bfcviz-way")
        self._notices.add_class("bfcviz-notices")
        super().__init__(list(traces), **options)
        self._bar.children = (*self._bar.children, self._way, self._notices)

    # Whoever starts it or looks at it may be served: its arrays are not the workload's all the same.

    def start(self) -> None:
        """Draw beside whatever runs, in a thread."""
        with unserved():
            super().start()

    def run(self, function: Callable[..., T], *arguments: Any) -> Workload[T]:
        """Run a workload in a thread of its own, which is watched as this one is; see LiveDashboard."""
        with unserved():
            self._ring_reader.start()
        return super().run(function, *arguments)

    def _show(self, *, now: bool) -> bool:
        with unserved():
            return super()._show(now=now)

    def _complete_frame(self) -> None:
        with unserved():
            super()._complete_frame()

    def end(self, says: str) -> None:
        """Show where it all stands, and say that no more will come."""
        if self.closed:
            return
        self.stop()
        self.status_line.hurry()
        self.refresh()
        self._way.value = _line(says)
        if self.trace.following:  # a ring goes on, as long as arrays live in its heap; nobody looks at it
            self.status.value = _line(f"ended: {len(self.trace):,} events")

    def join(self, trace: Trace) -> None:
        """Take in the trace of a heap that came later; it can be chosen in the menu. From any thread."""
        with self.inspector.lock:
            if self.closed:
                return
            self.traces.append(trace)
            running = self._ring_reader.running
            self._ring_reader.stop()
            self._ring_reader = RingReader(self.traces)
            if running:
                self._ring_reader.start()
            names = [name_of(each, each) for each in self.traces]
            with self.menu.hold_trait_notifications():  # new options alone choose the first of them
                chosen, self.menu.options = self.menu.value, numbered(names)
                self.menu.value = chosen
            if self.menu not in self._bar.children:
                first, *others = self._bar.children
                self._bar.children = (first, self.menu, *others)

    def notice(self, text: str) -> None:
        """Say something at the top, after what was said before. From any thread."""
        self._said.append(text)
        lines = "".join(f"<div>⚠ {escape(line)}</div>" for line in self._said[-_MOST:])
        more = len(self._said) - _MOST
        if more > 0:
            lines = f"<div>({more:,} more before these)</div>{lines}"
        self._notices.value = (
            f"<div role='alert' style='{_LINE}; color: var(--jp-error-color1, #c62828)'>{lines}</div>"
        )


def _line(text: str) -> str:
    return f"<div role='status' style='{_LINE}'>{escape(text)}</div>"
