"""WorkersDashboard: a row for each worker that records into a folder, and `follow_workers`, which makes it."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anywidget
import ipywidgets as widgets
import numpy as np
import traitlets
from numpy.typing import NDArray

from bfcviz.dashboard import LiveDashboard, widget_lifetime
from bfcviz.dashboard.render_loop import Renderer
from bfcviz.errors import BfcvizError
from bfcviz.events.origin import Status
from bfcviz.events.storage.folder import recordings_in
from bfcviz.events.trace import Trace
from bfcviz.figures.worker_rows import (
    ORDERS,
    STYLE,
    WorkerRow,
    WorkerRowState,
    ordered_worker_rows,
    workers_html,
)
from bfcviz.live.numpy import unserved
from bfcviz.model.timelines import TimeTimeline

# ------------------------------------------------------------------------------
# WorkerTraces: the workers that record, or recorded, into a folder, and the numbers of each over time.


class WorkerTrace:
    """One worker that the dashboard follows: the trace of its recording, and its totals over time."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name  # of its folder
        self.path = path  # of its folder
        self.trace = Trace.open(path)  # what it has recorded
        self.timeline = TimeTimeline()  # its totals by time, as far as they were read
        self.problem = ""  # why no more of them can be read

    @property
    def state(self) -> WorkerRowState:
        """Whether the worker records, has ended, or was lost before it could end."""
        origin = self.trace.origin
        if origin.status == Status.RECORDING:
            return WorkerRowState.LIVE
        return WorkerRowState.ENDED if origin.has_ended_whole else WorkerRowState.LOST

    def update(self) -> bool:
        """Read the worker's new events, a limited number; returns whether more wait, or may come."""
        if self.problem:
            return False
        try:
            self.trace.refresh()
            waiting = self.timeline.extend(self.trace)
        except BfcvizError as error:
            self.problem = str(error)
            return False
        return waiting or self.trace.following

    def row(self) -> WorkerRow:
        """The worker's numbers now and over time, for the figure."""
        series = self.timeline.series
        last = series[-1] if len(series) else None
        started = self.trace.origin.details.get("started_ns")
        begin = 0 if isinstance(started, int) else self.timeline.begin_ns or 0
        times: NDArray[np.float64] = (series["time"] - begin) / 1e9
        return WorkerRow(
            name=self.name,
            state=self.state,
            in_use=0 if last is None else int(last["bytes_in_use_last"]),
            pool=0 if last is None else int(last["pool_bytes_last"]),
            free=0 if last is None else int(last["free_bytes_last"]),
            largest_free=0 if last is None else int(last["largest_free_chunk_last"]),
            limit=self.trace.origin.pools[0].limit,
            failed=self.timeline.failed,
            started_s=started / 1e9 if isinstance(started, int) else None,
            times=times,
            in_use_most=series["bytes_in_use_max"],
            pool_most=series["pool_bytes_max"],
            problem=self.problem,
        )


class WorkerTraces:
    """The workers of a folder; `refresh` finds new ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # has a recording in each subfolder
        self.workers: list[WorkerTrace] = []  # in the order of their names; none is ever removed

    def refresh(self) -> int:
        """Add the recordings that have begun since the last call; returns how many."""
        before, known = len(self.workers), {each.path for each in self.workers}
        for name, path in recordings_in(self.folder).items():
            if path not in known:
                with suppress(BfcvizError):  # it is being made, or removed: the next call looks again
                    self.workers.append(WorkerTrace(name, path))
        return len(self.workers) - before


# ------------------------------------------------------------------------------
# The page's side of the view of all workers: shows HTML, and sends which row was clicked.

_SCRIPT: Final = """
export default {
  render({ model, el }) {
    const removed = new AbortController();
    el.classList.add("bfcviz-workers");
    el.dataset.lmSuppressShortcuts = "true"; // else JupyterLab handles Enter and the arrows
    const named = (node) => node?.closest?.("[data-worker]")?.dataset.worker;
    const show = () => {
      const focused = el.contains(document.activeElement) ? named(document.activeElement) : undefined;
      el.innerHTML = model.get("html");
      if (focused === undefined) return;
      for (const row of el.querySelectorAll("[data-worker]")) {
        if (row.dataset.worker === focused) row.focus({ preventScroll: true });
      }
    };
    const open = (event) => {
      const name = named(event.target);
      if (name === undefined || (event.type === "keydown" && !["Enter", " "].includes(event.key))) return;
      event.preventDefault();
      model.send({ worker: name });
    };
    // The row may be replaced between the press and the release of the button: then there is no click.
    el.addEventListener("mousedown", open, { signal: removed.signal });
    el.addEventListener("keydown", open, { signal: removed.signal });
    model.on("change:html", show);
    show();
    return () => {
      removed.abort();
      model.off("change:html", show);
    };
  },
};
"""


class WorkersPage(anywidget.AnyWidget):
    """The part of the page that has a row for each worker: shows `html`.

    Args:
        chosen: called with the name of a worker whose row was clicked.
    """

    _esm = _SCRIPT
    _css = STYLE
    html = traitlets.Unicode().tag(sync=True)

    def __init__(self, chosen: Callable[[str], object]) -> None:
        super().__init__()
        self.on_msg(lambda _, message, __: self._receive(message, chosen))

    @staticmethod
    def _receive(message: Any, chosen: Callable[[str], object]) -> None:
        name = message.get("worker") if isinstance(message, dict) else None
        if isinstance(name, str):
            chosen(name)


# ------------------------------------------------------------------------------
# WorkersDashboard, and `follow_workers`, which makes it

RATE: Final = 2.0
"""Most frames per second."""

_RESORT_S: Final = 3.0  # seconds for which the rows keep their order, so that a row can be clicked

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
        self.renderer = Renderer(widget_lifetime.weakly(self.draw_frame, gone=False), rate=RATE)
        self.bar = widgets.HBox([self.order, self.menu], layout={"flex_flow": "row wrap"})
        super().__init__([self.bar, self.page])
        widget_lifetime.free_unseen(self)
        self.order.observe(lambda _: self._order_changed(), "value")
        self.menu.observe(lambda _: self._menu_changed(), "value")
        widget_lifetime.route([self])
        self.refresh()
        if start:
            self.start()

    @property
    def closed(self) -> bool:
        """Whether the view of the workers was closed."""
        return self._closed

    def start(self) -> None:
        """Start to draw the workers in a thread."""
        with unserved():  # the arrays of pictures do not belong to a workload in this process
            self.renderer.start()

    def stop(self) -> None:
        """Stop drawing the workers until `start`."""
        self.renderer.stop()

    def refresh(self) -> None:
        """Read all events of the workers that there are, and draw."""
        with unserved(), self.lock:
            while self.draw_frame() and any(
                len(each.trace) > each.timeline.step and not each.problem for each in self.traces.workers
            ):
                pass

    def draw_frame(self) -> bool:
        """Read the workers' new events and draw a frame, for the renderer; returns whether more may come."""
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
        """Close the view of the workers: stop drawing, remove it from the page, and free its memory."""
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
            self._sorted = [row.name for row in ordered_worker_rows([*rows.values()], self.order.value)]
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


def follow_workers(path: str | os.PathLike[str], **options: Any) -> WorkersDashboard:
    """The view of all processes that record into a folder: the ranks of `torchrun`, the workers of multiprocessing.

    Args:
        path: the folder of `bfcviz record -o`, or of `watch_workers(path=...)`.
        options: arguments of the LiveDashboard that shows one of them.
    """
    return WorkersDashboard(path, **options)
