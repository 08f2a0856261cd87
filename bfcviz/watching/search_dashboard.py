"""SearchDashboard: a search in the background of a notebook, with its progress and a stop button.

::

    d = bfcviz.follow_search(bfcviz.smallest_limit, trace, "torch")
    d                  # as the last line of a cell: shows it; the kernel is free meanwhile
    await d            # or d.result(): the result when it has ended, or what is known after the stop
"""

import weakref
from collections.abc import Callable, Generator
from html import escape
from typing import Any, Final, Generic, TypeVar

import ipywidgets as widgets

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.renderer import Renderer, Workload
from bfcviz.live.numpy.serve import unserved
from bfcviz.whatif.search.trial import SearchControl

RATE: Final = 4.0
"""Most frames per second."""

T = TypeVar("T")


class SearchDashboard(widgets.VBox, Generic[T]):  # type: ignore[misc]
    """A view of one search, which runs in a thread. `await` it, or call `result()`, for the result.

    Args:
        search: `bfcviz.smallest_limit`, `best_options` or `largest_batch`.
        arguments: of the search.
        options: of the search, without `control`.

    Attributes:
        bar: replays done, of those expected.
        line: what is tried now; at the end, the result as text.
        button: stops the search.
    """

    def __init__(self, search: Callable[..., T], *arguments: Any, **options: Any) -> None:
        self.bar = widgets.IntProgress(layout={"width": "220px"})
        self.line = widgets.HTML()
        self.button = widgets.Button(description="stop", icon="stop", layout={"width": "90px"})
        self._closed = False
        self._told = (0, 1, "reads the requests")
        self._control = SearchControl(self._take)
        row = widgets.HBox([self.bar, self.button], layout={"align_items": "center"})
        super().__init__([row, self.line])
        widget_lifetime.free_unseen(self)
        self.button.on_click(lambda _: self.stop())
        widget_lifetime.route([self])
        self._workload = Workload(
            lambda: search(*arguments, control=self._control, **options), (), lambda: None
        )
        self._renderer = Renderer(_frame_of(self), rate=RATE)
        with unserved():  # what a view allocates does not belong to a watched workload
            self._renderer.start()

    @property
    def running(self) -> bool:
        """Whether the search has not ended."""
        return not self._workload.done

    def stop(self) -> None:
        """End the search before its next replay; its result is what is known so far."""
        self._control.stop()
        self.button.disabled = True

    def result(self, timeout: float | None = None) -> T:
        """Wait at most `timeout` seconds for the end of the search; return its result, or raise its error."""
        found = self._workload.result(timeout)
        self.draw_frame()
        return found

    def __await__(self) -> Generator[Any, None, T]:
        return self._workload.__await__()

    def draw_frame(self) -> bool:
        """Draw what is known, for the renderer; returns whether more may come."""
        if self._closed:
            return False
        running = self.running
        done, expected, text = self._told
        self.bar.max, self.bar.value = expected, done if running else expected
        if running:
            self.line.value = f"<div role='status'>{done:,} of about {expected:,}: {escape(text)}</div>"
            return True
        error = self._workload.error
        said = escape(str(self._workload.result()) if error is None else f"failed: {error}")
        self.line.value = f"<pre role='status' style='white-space:pre-wrap'>{said}</pre>"
        self.bar.bar_style = "success" if error is None else "danger"
        self.button.disabled = True
        return False

    def close(self) -> None:
        """End the search, remove the view from the page, and free its memory."""
        if "_renderer" not in self.__dict__ or self._closed:
            return
        self._control.stop()
        self._renderer.stop()
        self._closed = True
        widget_lifetime.close(self)
        self.set_trait("children", ())

    def _take(self, done: int, expected: int, text: str) -> None:
        self._told = (done, expected, text)


def follow_search(search: Callable[..., T], *arguments: Any, **options: Any) -> "SearchDashboard[T]":
    """Run a search in the background, with a view of its progress and a stop button.

    Args:
        search: `bfcviz.smallest_limit`, `best_options` or `largest_batch`.
        arguments: of the search.
        options: of the search, without `control`.
    """
    return SearchDashboard(search, *arguments, **options)


def _frame_of(dashboard: "SearchDashboard[Any]") -> Callable[[], bool]:
    """`draw_frame` for a renderer; a weak reference, so that its thread does not keep an unused view alive."""
    reference = weakref.ref(dashboard)

    def frame() -> bool:
        alive = reference()
        return alive is not None and alive.draw_frame()

    return frame
