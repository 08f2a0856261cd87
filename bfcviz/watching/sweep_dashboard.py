"""SweepDashboard: a sweep in the background of a notebook, with its progress, a stop button and the results so far.

::

    d = bfcviz.follow_sweep(paths, ["bfc", "torch"], ["8GiB", "12GiB"], client=client)
    d                  # as the last line of a cell: shows it; the kernel is free meanwhile
    d.results          # those so far
    await d            # or d.result(): the results, when it has ended
"""

import threading
import weakref
from collections.abc import Callable, Generator
from copy import deepcopy
from html import escape
from typing import Any, Final

import ipywidgets as widgets

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.figure_widget import OneWayFigureWidget, relayouting, restyling
from bfcviz.dashboard.renderer import Renderer, Workload
from bfcviz.figures.sweep_heat_map import sweep_heat_map
from bfcviz.figures.theme import ThemeName
from bfcviz.figures.view_options import Look
from bfcviz.live.numpy.serve import unserved
from bfcviz.whatif.policy_table import uncompared
from bfcviz.whatif.sweep.sweep import SweepProgress, SweepResults, sweep

RATE: Final = 2.0
"""Most frames per second."""


class SweepRun:
    """A sweep in a thread, and how far it is.

    Args:
        arguments: the positional arguments of `bfcviz.sweep`.
        options: the others, without `progress` and `stop`.

    Attributes:
        progress: the newest; None: it has not begun.
        stop: set it to end the sweep.
        workload: the thread.
    """

    def __init__(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.progress: SweepProgress | None = None
        self.stop = threading.Event()
        self.workload = Workload(self._work, (arguments, options), lambda: None)

    def _work(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> SweepResults:
        return sweep(*arguments, progress=self._take, stop=self.stop, **options)

    def _take(self, progress: SweepProgress) -> None:
        self.progress = progress

    @property
    def results(self) -> SweepResults:
        """What is known."""
        if self.workload.done and self.workload.error is None:
            return self.workload.result()
        return SweepResults([], 0) if self.progress is None else self.progress.results


class SweepDashboard(widgets.VBox):  # type: ignore[misc]
    """A view of one sweep, which runs in a thread. `await` it, or call `result()`, for the results.

    Args:
        arguments: the positional arguments of `bfcviz.sweep`.
        theme: of the heat map, `light` or `dark`.
        options: the other arguments of `bfcviz.sweep`, without `progress` and `stop`.

    Attributes:
        bar: how many points have a result.
        line: the same as text, with the rate and the time left.
        button: stops the sweep.
        figure: the heat map of the results so far.
    """

    def __init__(self, *arguments: Any, theme: ThemeName = "light", **options: Any) -> None:
        self.bar = widgets.IntProgress(layout={"width": "220px"})
        self.line = widgets.HTML()
        self.button = widgets.Button(description="stop", icon="stop", layout={"width": "90px"})
        self._look = Look(theme=theme)
        self._drawn = -1
        self._lock = threading.RLock()
        self._closed = False
        with unserved():  # their arrays do not belong to a watched workload
            self._page = _sweep_page_figure(SweepResults([]), self._look)
            self.figure = OneWayFigureWidget(self._page)
            self._run = SweepRun(arguments, options)
        row = widgets.HBox([self.bar, self.button, self.line], layout={"align_items": "center"})
        super().__init__([row, self.figure])
        widget_lifetime.free_unseen(self)
        self.button.on_click(lambda _: self.stop())
        widget_lifetime.route([self])
        self._renderer = Renderer(_frame_of(self), rate=RATE)
        with unserved():
            self._renderer.start()

    @property
    def results(self) -> SweepResults:
        """Those so far; all of them when the sweep has ended."""
        return self._run.results

    @property
    def running(self) -> bool:
        """Whether the sweep has not ended."""
        return not self._run.workload.done

    def stop(self) -> None:
        """End the sweep after the points that are being served; the results so far stay."""
        self._run.stop.set()
        self.button.disabled = True

    def result(self, timeout: float | None = None) -> SweepResults:
        """Wait at most `timeout` seconds for the end of the sweep; return its results, or raise its error."""
        found = self._run.workload.result(timeout)
        self.draw_frame()
        return found

    def __await__(self) -> Generator[Any, None, SweepResults]:
        return self._run.workload.__await__()

    def draw_frame(self) -> bool:
        """Draw what is known, for the renderer; returns whether more may come."""
        with self._lock, unserved():
            if self._closed:
                return False
            running = self.running  # before the results: what comes later is drawn in the next frame
            progress, results = self._run.progress, self.results
            self.bar.max, self.bar.value = max(results.asked, 1), len(results)
            self.line.value = f"<div role='status'>{_sweep_progress_line(self._run, progress, results)}</div>"
            if len(results) != self._drawn:
                self._draw(results)
            if not running:
                self.button.disabled = True
                self.bar.bar_style = "success" if self._run.workload.error is None else "danger"
            return running

    def close(self) -> None:
        """End the sweep, remove the view from the page, and free its memory."""
        if "_renderer" not in self.__dict__ or self._closed:
            return
        self._run.stop.set()
        self._renderer.stop()
        with self._lock:
            self._closed = True
            widget_lifetime.close(self)
            self.set_trait("children", ())

    def _draw(self, results: SweepResults) -> None:
        """Send what differs from the picture before."""
        before, self._page = self._page, _sweep_page_figure(results, self._look)
        restyle, changed = restyling([(before["data"][0], self._page["data"][0])])
        relayout = relayouting(before["layout"], self._page["layout"])
        if changed or relayout:
            self.figure.plotly_update(restyle, deepcopy(relayout), changed)
        self._drawn = len(results)


def follow_sweep(*arguments: Any, theme: ThemeName = "light", **options: Any) -> SweepDashboard:
    """Run `bfcviz.sweep` in the background, with a view of its progress and of the results so far.

    Args:
        arguments: traces, policies and limits, as `bfcviz.sweep` takes them.
        theme: of the heat map, `light` or `dark`.
        options: the other arguments of `bfcviz.sweep`, without `progress` and `stop`.
    """
    return SweepDashboard(*arguments, theme=theme, **options)


def _sweep_page_figure(results: SweepResults, look: Look) -> dict[str, Any]:
    """The heat map as plain data."""
    remarks = uncompared(point.policy for point in results.points)
    picture = sweep_heat_map(results.to_arrow(), look, remarks)
    layout = {**picture.layout.to_plotly_json(), "autosize": True}
    return {"data": [trace.to_plotly_json() for trace in picture.data], "layout": layout}


def _sweep_progress_line(run: SweepRun, progress: SweepProgress | None, results: SweepResults) -> str:
    if run.workload.error is not None:
        return f"<b>failed:</b> {escape(str(run.workload.error))}"
    if progress is None:
        return "reads the list of points"
    parts = [f"{len(results):,} of {results.asked:,} points"]
    errors = len(results.errors)
    if not run.workload.done:
        parts.append(f"{progress.points_per_s:,.1f} points/s")
        if progress.points_per_s > 0:
            parts.append(
                f"about {_sweep_time_left_text((results.asked - len(results)) / progress.points_per_s)} left"
            )
    else:
        parts.append(f"{results.seconds:,.1f} s")
        if not results.complete:
            parts.append(f"not complete: {escape(results.reason)}")
    if errors:
        parts.append(f"{errors:,} with an error")
    return " · ".join(parts)


def _sweep_time_left_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _frame_of(dashboard: SweepDashboard) -> Callable[[], bool]:
    """`draw_frame` for a renderer; a weak reference, so that its thread does not keep an unused view alive."""
    reference = weakref.ref(dashboard)

    def frame() -> bool:
        alive = reference()
        return alive is not None and alive.draw_frame()

    return frame
