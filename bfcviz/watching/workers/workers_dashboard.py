"""WorkersDashboard: all workers that record into a folder, live, the worst first; a click opens one of them."""

import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import ipywidgets as widgets

from bfcviz.dashboard import LiveDashboard, notebook, widget_lifetime
from bfcviz.dashboard.background.renderer import BUDGET, Renderer
from bfcviz.figures.comparison.workers import ORDERS, ordered, workers_html
from bfcviz.live.numpy.serve import unserved
from bfcviz.watching.workers.worker_traces import WorkerTraces
from bfcviz.watching.workers.workers_page import WorkersPage

RATE: Final = 2.0
"""Most frames per second."""

_RESORT_S: Final = 3.0
"""Seconds for which the rows keep their order, so that a row can be clicked."""

_NONE: Final = "all workers"


class WorkersDashboard(widgets.VBox):  # type: ignore[misc]
    """A view of the workers that record, or have recorded, into a folder.

    ::

        bfcviz.follow_workers("run.bfc")   # beside `bfcviz record -o run.bfc -- torchrun train.py`

    A thread reads new events, each once, at most a million of a worker between two frames, and draws at most two
    frames per second. The cost of a frame depends on the number of workers, not on their events.

    Args:
        folder: has the recording of one worker in each subfolder; more may come.
        start: whether to start now; else call `start()`.
        options: arguments of the LiveDashboard that shows one worker.

    Attributes:
        traces: the workers and their numbers.
        page: the picture of all workers.
        order: the menu of measures that say which worker is the worst.
        menu: the menu of workers.
        detail: the LiveDashboard of the chosen worker; None: there is none.
        renderer: draws the frames.
    """

    def __init__(self, folder: str | os.PathLike[str], *, start: bool = True, **options: Any) -> None:
        self.traces = WorkerTraces(Path(folder))
        self.detail: LiveDashboard | None = None
        self.lock = threading.RLock()
        self._options = options
        self._closed = False
        self._sorted: list[str] = []
        self._resort_at = 0.0
        self.page = WorkersPage(self.show)
        self.order = widgets.Dropdown(options=[*ORDERS], description="worst first")
        self.menu = widgets.Dropdown(options=[_NONE], description="show")
        self.renderer = Renderer(_frame_of(self), rate=RATE, budget=BUDGET)
        self.bar = widgets.HBox([self.order, self.menu], layout={"flex_flow": "row wrap"})
        super().__init__([self.bar, self.page])
        widget_lifetime.free_unseen(self)
        self.order.observe(lambda _: self._order_changed(), "value")
        self.menu.observe(lambda _: self._menu_changed(), "value")
        notebook.route([self])
        self.refresh()
        if start:
            self.start()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def start(self) -> None:
        """Start to draw in a thread."""
        with unserved():  # the arrays of pictures do not belong to a workload in this process
            self.renderer.start()

    def stop(self) -> None:
        """Stop drawing until `start`."""
        self.renderer.stop()

    def refresh(self) -> None:
        """Read all events that there are, and draw."""
        with unserved(), self.lock:
            while self.draw_frame() and any(
                len(each.trace) > each.timeline.step and not each.problem for each in self.traces.workers
            ):
                pass

    def draw_frame(self) -> bool:
        """Read new events and draw a frame, for the renderer; returns whether more may come."""
        with self.lock:
            if self._closed:
                return False
            if self.traces.refresh():
                self._name_workers()
            for each in self.traces.workers:
                each.update()
            self._draw()
        return True  # a worker may join at any time

    def show(self, name: str | None) -> None:
        """Open one worker below the picture of all; None: none."""
        if name is None or name in [each.name for each in self.traces.workers]:
            self.menu.value = _NONE if name is None else name

    def close(self) -> None:
        """Close it: stop drawing, remove it from the page, and free its memory."""
        if "page" not in self.__dict__ or self._closed:
            return
        self.renderer.stop()
        with self.lock:
            self._closed = True
            self._open(None)
            widget_lifetime.close(self, self.menu, self.order)
            self.set_trait("children", ())

    @property
    def shown(self) -> str | None:
        """The name of the worker that is open; None: none."""
        return None if self.menu.value == _NONE else self.menu.value

    def _draw(self) -> None:
        rows = {each.name: each.row() for each in self.traces.workers}
        if time.monotonic() >= self._resort_at or {*self._sorted} != {*rows}:
            self._sorted = [row.name for row in ordered([*rows.values()], self.order.value)]
            self._resort_at = time.monotonic() + _RESORT_S
        self.page.html = workers_html([rows[name] for name in self._sorted], self.shown)

    def _name_workers(self) -> None:
        with self.menu.hold_trait_notifications():  # new options choose the first
            chosen = self.menu.value
            self.menu.options = [_NONE, *(each.name for each in self.traces.workers)]
            self.menu.value = chosen

    def _order_changed(self) -> None:
        with self.lock:
            self._resort_at = 0.0
            self._draw()

    def _menu_changed(self) -> None:
        with self.lock:
            self._open(self.shown)
            self._draw()

    def _open(self, name: str | None) -> None:
        before, self.detail = self.detail, None
        if name is not None:
            path = next(each.path for each in self.traces.workers if each.name == name)
            with unserved():
                self.detail = LiveDashboard(path, **self._options)
        if not self._closed:
            self.children = [self.bar, self.page, *([] if self.detail is None else [self.detail])]
        if before is not None:
            before.close()


def _frame_of(dashboard: WorkersDashboard) -> Callable[[], bool]:
    """`draw_frame` for a renderer; a weak reference, so that its thread does not keep an unused dashboard alive."""
    reference = weakref.ref(dashboard)

    def frame() -> bool:
        alive = reference()
        return alive is not None and alive.draw_frame()

    return frame


def follow_workers(path: str | os.PathLike[str], **options: Any) -> WorkersDashboard:
    """The view of all processes that record into a folder: the ranks of `torchrun`, the workers of multiprocessing.

    Args:
        path: the folder of `bfcviz record -o`, or of `watch_workers(path=...)`.
        options: arguments of the LiveDashboard that shows one of them.
    """
    return WorkersDashboard(path, **options)
