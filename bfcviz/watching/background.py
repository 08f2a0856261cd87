"""`follow_search` and `follow_sweep`: a search or a sweep in the background of a notebook, with a stop button.

::

    d = bfcviz.follow_sweep(paths, ["bfc", "torch"], ["8GiB", "12GiB"], client=client)
    d                  # as the last line of a cell: shows it; the kernel is free meanwhile
    d.results          # those so far
    await d            # or d.result(): the results when it has ended, or what is known after the stop
"""

import threading
from collections.abc import Callable, Generator
from copy import deepcopy
from functools import partial
from html import escape
from typing import Any, Generic, TypeVar

import ipywidgets as widgets

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.figure_widget import OneWayFigureWidget, relayouting, restyling
from bfcviz.dashboard.render_loop import Renderer, Workload
from bfcviz.figures.sweep_heat_map import sweep_heat_map
from bfcviz.figures.theme import ThemeName
from bfcviz.figures.view_options import Look
from bfcviz.live.numpy import unserved
from bfcviz.whatif.policy_table import uncompared
from bfcviz.whatif.search import SearchControl
from bfcviz.whatif.sweep import SweepProgress, SweepResults, sweep

T = TypeVar("T")


class BackgroundDashboard(widgets.VBox, Generic[T]):  # type: ignore[misc]
    """A view of a search or sweep that runs in a background thread. `await` it, or call `result()`, for the result.

    Args:
        workload: the work.
        end: ends it early.
        rate: most frames per second.

    Attributes:
        bar: how much is done.
        line: the same as text; at the end, how it ended.
        button: ends the work early.
    """

    def __init__(self, workload: Workload[T], end: Callable[[], object], rate: float) -> None:
        self.bar = widgets.IntProgress(layout={"width": "220px"})
        self.line = widgets.HTML()
        self.button = widgets.Button(description="stop", icon="stop", layout={"width": "90px"})
        self._workload, self._end = workload, end
        self._lock = threading.RLock()
        self._closed = False
        super().__init__(self._rows())
        widget_lifetime.free_unseen(self)
        self.button.on_click(lambda _: self.stop())
        widget_lifetime.route([self])
        self._renderer = Renderer(widget_lifetime.weakly(self.draw_frame, gone=False), rate=rate)
        with unserved():  # what a view allocates does not belong to a watched workload
            self._renderer.start()

    @property
    def running(self) -> bool:
        """Whether the search or sweep has not ended."""
        return not self._workload.done

    def stop(self) -> None:
        """End a search before its next replay, a sweep after the points that are being served.

        The result is what is known so far.
        """
        self._end()
        self.button.disabled = True

    def result(self, timeout: float | None = None) -> T:
        """Wait at most `timeout` seconds for the end of the search or sweep; return its result, or raise its error."""
        found = self._workload.result(timeout)
        self.draw_frame()
        return found

    def __await__(self) -> Generator[Any, None, T]:
        return self._workload.__await__()

    def draw_frame(self) -> bool:
        """Draw what is known of the search or sweep, for the renderer; returns whether more may come."""
        with self._lock, unserved():
            if self._closed:
                return False
            running = self.running  # before it draws: what comes later is drawn in the next frame
            self._draw(running=running)
            if not running:
                self.button.disabled = True
                self.bar.bar_style = "success" if self._workload.error is None else "danger"
            return running

    def close(self) -> None:
        """End the search or sweep, remove its view from the page, and free its memory."""
        if "_renderer" not in self.__dict__ or self._closed:
            return
        self._end()
        self._renderer.stop()
        with self._lock:
            self._closed = True
            widget_lifetime.close(self)
            self.set_trait("children", ())

    def _rows(self) -> list[widgets.Widget]:
        """The view of the search or sweep, from top to bottom."""
        raise NotImplementedError

    def _draw(self, *, running: bool) -> None:
        """Show what is known of the search or sweep."""
        raise NotImplementedError


class SearchDashboard(BackgroundDashboard[T]):
    """A view of one search: what it tries now, and at the end its result as text; `follow_search` has its arguments."""

    def __init__(self, search: Callable[..., T], *arguments: Any, **options: Any) -> None:
        self._told = (0, 1, "reads the requests")
        control = SearchControl(self._take)
        workload = Workload(partial(search, *arguments, control=control, **options), (), lambda: None)
        super().__init__(workload, control.stop, rate=4.0)

    def _rows(self) -> list[widgets.Widget]:
        return [widgets.HBox([self.bar, self.button], layout={"align_items": "center"}), self.line]

    def _draw(self, *, running: bool) -> None:
        done, expected, text = self._told
        self.bar.max, self.bar.value = expected, done if running else expected
        if running:
            self.line.value = f"<div role='status'>{done:,} of about {expected:,}: {escape(text)}</div>"
            return
        error = self._workload.error
        said = escape(str(self._workload.result()) if error is None else f"failed: {error}")
        self.line.value = f"<pre role='status' style='white-space:pre-wrap'>{said}</pre>"

    def _take(self, done: int, expected: int, text: str) -> None:
        self._told = (done, expected, text)


def follow_search(search: Callable[..., T], *arguments: Any, **options: Any) -> SearchDashboard[T]:
    """Run a search in the background, with a view of its progress and a stop button.

    Args:
        search: `bfcviz.smallest_limit`, `best_options` or `largest_batch`.
        arguments: of the search.
        options: of the search, without `control`.
    """
    return SearchDashboard(search, *arguments, **options)


class SweepDashboard(BackgroundDashboard[SweepResults]):
    """A view of one sweep, with the results so far. For its arguments: `follow_sweep`."""

    def __init__(self, *arguments: Any, theme: ThemeName = "light", **options: Any) -> None:
        self._look = Look(theme=theme)
        self._drawn = -1
        # The newest; `take` does not refer to `self`: a sweep does not keep its view alive.
        told: list[SweepProgress] = []
        self._told = told
        stop = threading.Event()

        def take(progress: SweepProgress) -> None:
            told[:] = [progress]

        with unserved():  # their arrays do not belong to a watched workload
            self._page = _sweep_page_figure(SweepResults([]), self._look)
            self.figure = OneWayFigureWidget(self._page)  # the heat map of the results so far
            served = partial(sweep, *arguments, progress=take, stop=stop, **options)
            workload = Workload(served, (), lambda: None)
        super().__init__(workload, stop.set, rate=2.0)

    @property
    def results(self) -> SweepResults:
        """The results of the sweep so far; all of them when the sweep has ended."""
        if self._workload.done and self._workload.error is None:
            return self._workload.result()
        return self._told[0].results if self._told else SweepResults([], 0)

    def _rows(self) -> list[widgets.Widget]:
        bar = widgets.HBox([self.bar, self.button, self.line], layout={"align_items": "center"})
        return [bar, self.figure]

    def _draw(self, *, running: bool) -> None:
        results = self.results
        self.bar.max, self.bar.value = max(results.asked, 1), len(results)
        self.line.value = f"<div role='status'>{self._progress_line(results, running=running)}</div>"
        if len(results) == self._drawn:
            return
        before, self._page = self._page, _sweep_page_figure(results, self._look)
        restyle, changed = restyling([(before["data"][0], self._page["data"][0])])
        relayout = relayouting(before["layout"], self._page["layout"])
        if changed or relayout:
            self.figure.plotly_update(restyle, deepcopy(relayout), changed)
        self._drawn = len(results)

    def _progress_line(self, results: SweepResults, *, running: bool) -> str:
        if self._workload.error is not None:
            return f"<b>failed:</b> {escape(str(self._workload.error))}"
        if not self._told:
            return "reads the list of points"
        parts = [f"{len(results):,} of {results.asked:,} points"]
        if running:
            rate = self._told[0].points_per_s
            parts.append(f"{rate:,.1f} points/s")
            if rate > 0:
                parts.append(f"about {_sweep_time_left_text((results.asked - len(results)) / rate)} left")
        else:
            parts.append(f"{results.seconds:,.1f} s")
            if not results.complete:
                parts.append(f"not complete: {escape(results.reason)}")
        if errors := len(results.errors):
            parts.append(f"{errors:,} with an error")
        return " · ".join(parts)


def follow_sweep(*arguments: Any, theme: ThemeName = "light", **options: Any) -> SweepDashboard:
    """Run `bfcviz.sweep` in the background, with a view of its progress and of the results so far.

    Args:
        arguments: traces, policies and limits, as `bfcviz.sweep` takes them.
        theme: of the heat map, `light` or `dark`.
        options: the other arguments of `bfcviz.sweep`, without `progress` and `stop`.
    """
    return SweepDashboard(*arguments, theme=theme, **options)


def _sweep_page_figure(results: SweepResults, look: Look) -> dict[str, Any]:
    """The heat map of a sweep that runs, as plain data."""
    remarks = uncompared(point.policy for point in results.points)
    picture = sweep_heat_map(results.to_arrow(), look, remarks)
    layout = {**picture.layout.to_plotly_json(), "autosize": True}
    return {"data": [trace.to_plotly_json() for trace in picture.data], "layout": layout}


def _sweep_time_left_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
