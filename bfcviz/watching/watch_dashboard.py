"""WatchDashboard: a live dashboard that also shows how the frameworks are watched, and the alerts that went off."""

from collections.abc import Sequence
from html import escape
from typing import Any, Final

import ipywidgets as widgets

from bfcviz.dashboard import LiveDashboard
from bfcviz.dashboard.live_dashboard import RingReader
from bfcviz.dashboard.toolbar import numbered
from bfcviz.events.trace import Trace
from bfcviz.model.trace_from_source import source_name

_MAX_NOTICES: Final = 5  # the dashboard shows the newest notices, at most this many

_FULL_WIDTH: Final = {"flex": "1 1 100%"}
_LINE_STYLE: Final = "line-height: 1.45"


class WatchDashboard(LiveDashboard):
    """The dashboard of a `Watch`.

    Args:
        traces: the traces of the heaps.
        says: how they are watched, as text.
        options: the options of LiveDashboard.

    Attributes:
        notices: every notice, the newest last.
        says_line: the widget that shows how the heaps are watched.
        notice_box: the widget that shows the newest notices.
    """

    def __init__(self, traces: Sequence[Trace], says: str, **options: Any) -> None:
        self.notices: list[str] = []
        self.says_line = widgets.HTML(_watch_line_html(says), layout=_FULL_WIDTH)
        self.notice_box = widgets.HTML(layout=_FULL_WIDTH)
        self.says_line.add_class("bfcviz-way")
        self.notice_box.add_class("bfcviz-notices")
        super().__init__(list(traces), **options)
        self.bar.children = (*self.bar.children, self.says_line, self.notice_box)

    def end(self, says: str, error: BaseException | None = None) -> None:
        """Show the last state of the watch, and how the watch has ended; `error`: what ended it."""
        if self.closed:
            return
        self.stop()
        self.resume()
        self.status_line.ending = _watch_dashboard_ending(error)
        self.refresh()
        self.says_line.value = _watch_line_html(says)
        self.show_end()

    def add_trace(self, trace: Trace) -> None:
        """Add the trace of a later heap to the menu of the watch. Any thread may call this."""
        with self.inspector.lock:
            if self.closed:
                return
            self.traces.append(trace)
            running = self._ring_reader.running
            self._ring_reader.stop()
            self._ring_reader = RingReader(self.traces)
            if running:
                self._start_readers()
            names = [source_name(each, each) for each in self.traces]
            with self.menu.hold_trait_notifications():  # setting the options selects the first
                chosen, self.menu.options = self.menu.value, numbered(names)
                self.menu.value = chosen
            if self.menu not in self.bar.children:
                first, *others = self.bar.children
                self.bar.children = (first, self.menu, *others)

    def notice(self, text: str) -> None:
        """Show a notice of the watch at the top, below the earlier ones. Any thread may call this."""
        self.notices.append(text)
        lines = "".join(f"<div>⚠ {escape(line)}</div>" for line in self.notices[-_MAX_NOTICES:])
        earlier = len(self.notices) - _MAX_NOTICES
        if earlier > 0:
            lines = f"<div>({earlier:,} earlier notices)</div>{lines}"
        style = f"{_LINE_STYLE}; color: var(--jp-error-color1, #c62828)"
        self.notice_box.value = f"<div role='alert' style='{style}'>{lines}</div>"


def _watch_dashboard_ending(error: BaseException | None) -> str:
    """How a watch ended, in the status line of its dashboard."""
    if error is None:
        return "ended"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"


def _watch_line_html(text: str) -> str:
    return f"<div role='status' style='{_LINE_STYLE}'>{escape(text)}</div>"
