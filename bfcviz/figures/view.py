"""View: one picture of a heap, whole: what it computes, how it is drawn, its table, and its place in a dashboard.

`bfcviz.draw`, `bfcviz export`, the export menu and the tabs of a dashboard know only the registry `VIEWS`: a new
picture is one file with a `View`, and one line in `bfcviz/figures/__init__.py`.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final, Generic, Literal, TypeVar

import pyarrow as pa

from bfcviz.analysis.free_chunk_search import EventSearch, search_of
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import Colouring, colouring, growth_colouring
from bfcviz.figures.panel import Page, Panel, Picture, Place, below_each_other, panels_page, panels_picture
from bfcviz.figures.text import picture_facts
from bfcviz.figures.timeline_parts import History, StepAxis, measure_history
from bfcviz.figures.view_options import PLAIN, Look, Selected
from bfcviz.model import Model
from bfcviz.model.find_steps import last_event

D = TypeVar("D")
T = TypeVar("T")


class HeapData:
    """The data of one heap that views are drawn from: the model, and cached series.

    Expensive data is computed when a view needs it, and cached until the trace grows or another part of the trace is
    shown. A new step only moves the model.

    Args:
        model: the heap; it moves to the step shown.
        brief: for a dashboard: pictures leave out what it shows beside them.

    Attributes:
        model, brief: the arguments.
        moving: the heap is active and its newest step is shown: pictures leave out what costs most, and `search` finds
            nothing.
    """

    def __init__(self, model: Model, *, brief: bool = False) -> None:
        self.model, self.brief = model, brief
        self.moving = False
        self._cache: dict[str, tuple[Hashable, Any]] = {}

    @property
    def trace(self) -> Trace:
        """The trace that views are drawn from."""
        return self.model.trace

    @property
    def step(self) -> int:
        """The step that views show."""
        return self.model.step

    @property
    def last_event(self) -> Events | None:
        """The event that led to the model's step, as an array of one; None at the first step."""
        return last_event(self.model)

    def search(self) -> EventSearch | None:
        """The search made by the operation whose event led to the model's step; None while the map is moving."""
        event = None if self.moving else self.last_event
        if event is None or event["kind"][0] not in (Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE, Kind.OOM):
            return None
        return self.cached("search", self.step, lambda: search_of(self.trace, self.step - 1, self.model))

    def clock(self, look: Look) -> StepAxis:
        """The position of each step on the axis of all views of timelines."""
        return self.cached("clock", (len(self.trace), look.axis), lambda: StepAxis.of(self.trace, look.axis))

    def colours(self, look: Look) -> Colouring:
        """The colours of chunks in all views; a label keeps its colour while the trace grows.

        Those by holder are of the model's step.
        """
        key: Hashable = look.theme
        if (since := look.since) is not None:
            key = (since, len(self.trace), look.theme)
            return self.cached(
                "colours of growth", key, lambda: growth_colouring(self.model, since, look.paints)
            )
        if look.colour == "holder":
            key = (len(self.trace), self.step, look.theme)

        def make() -> Colouring:
            chunks = None
            if look.colour == "holder":
                chunks = self.model.in_use() if self.moving else self.model.chunks()
            return colouring(self.trace, self.model.pool, look.colour, look.paints, chunks)

        return self.cached(f"colours by {look.colour}", key, make)

    def history(self, look: Look) -> History:
        """The data of the timelines of bytes; if the trace grew, only the new events are read."""
        key = (len(self.trace), look.axis, look.steps, look.wanted)
        before = self.previous("history")
        return self.cached("history", key, lambda: measure_history(self.trace, self.model.pool, look, before))

    def whole_history(self, look: Look) -> History:
        """The history of all steps, whatever the window is."""
        if look.steps is None:
            return self.history(look)
        key, whole = (len(self.trace), look.axis, look.wanted), replace(look, steps=None)
        before = self.previous("whole history") or self.previous("history")
        pool = self.model.pool
        return self.cached("whole history", key, lambda: measure_history(self.trace, pool, whole, before))

    def previous(self, name: str) -> Any:
        """The value that a view cached by this name, for any key; None: there is none."""
        return self._cache[name][1] if name in self._cache else None

    def cached(self, name: str, key: Hashable, make: Callable[[], T]) -> T:
        """The value that a view cached by this name and key; if there is none, it is made."""
        known = self._cache.get(name)
        if known is None or known[0] != key:
            self._cache[name] = known = (key, make())
        found: T = known[1]
        return found


@dataclass(frozen=True)
class ViewTab:
    """The tab of a dashboard that a view is in."""

    name: str  # its name, a value of `Inspector.views`
    text: str  # its text
    was: str = ""  # the name it had in earlier versions, which stays valid
    folded: bool = False  # it is not offered as a tab; `everything` and its name show it
    # made of a trace and a pool, it says at any moment whether a folded tab is offered after all
    when: Callable[[Trace, int], Callable[[], bool]] | None = None


@dataclass(frozen=True)
class DashboardPlace:
    """The place of a view in a dashboard."""

    # the tab that shows it; views of the same tab stand side by side. None: it is above the tabs.
    tab: ViewTab | None
    height: int = 165  # of a plot, in pixels
    below: int = 40  # pixels under a plot: ticks, and the title of the axis


@dataclass(frozen=True, kw_only=True)
class View(Generic[D]):
    """One picture of a heap at a step.

    Attributes:
        name: its name in code and on the command line.
        title: its name in texts.
        data: computes what it shows, from the heap at its step and a look.
        panels: draws it: one or more panels from the data, hover texts included, the first on top.
        table: its numbers, for CSV and Parquet; None: it is only a part of dashboards.
        height: of each plot as a figure of its own, in pixels; or computes them, from the data and the look.
        panel_names: the names of its panels; empty: one panel, of the view's name.
        at: what a click on `x`, `y` of its first panel selects; None: a click selects nothing.
        windows: the fields of `Look` that a zoom sets. With `steps`, its x axis runs over the steps of the trace.
        dashboard: its place in a dashboard; None: dashboards do not show it.
    """

    name: str
    title: str
    data: Callable[[HeapData, Look], D]
    panels: Callable[[D, HeapData, Look], Sequence[Panel]]
    table: Callable[[D], pa.Table] | None = None
    height: int | Callable[[D, Look], Sequence[int]] = 300
    panel_names: tuple[str, ...] = ()
    at: Callable[[D, HeapData, Look, float, float], Selected | None] | None = None
    windows: tuple[Literal["map_window", "steps", "addresses"], ...] = ()
    dashboard: DashboardPlace | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the panels of a view."""
        return self.panel_names or (self.name,)

    def draw(self, model: Model, look: Look = PLAIN) -> Picture:
        """The picture of a view of a heap at its step, with its numbers and the facts of the heap."""
        data, panels, places = self._laid_out(HeapData(model), look)
        picture = panels_picture(panels, places, look.paints).with_facts(picture_facts(model))
        return picture if self.table is None else picture.with_table(self.table(data))

    def page(self, heap: HeapData, look: Look = PLAIN, highest: int | None = None) -> Page:
        """The picture of a view as plain data; each plot is at most `highest` pixels high."""
        _, panels, places = self._laid_out(heap, look, highest)
        return panels_page(panels, places, look.paints)

    def _laid_out(
        self, heap: HeapData, look: Look, highest: int | None = None
    ) -> tuple[D, Sequence[Panel], list[Place]]:
        def of_pixels(height: int) -> Look:
            return replace(look, map_pixels=(look.map_pixels[0], height))

        most = inf if highest is None else highest
        if isinstance(self.height, int):
            heights = [int(min(self.height, most))] * len(self.names)
            data = self.data(heap, of_pixels(heights[0]))
        else:
            data = self.data(heap, look)
            heights = [int(min(height, most)) for height in self.height(data, look)]
        look = of_pixels(heights[0])
        panels = self.panels(data, heap, look)
        return data, panels, below_each_other(panels, heights)


def plot_pixels(view: View[Any], heap: HeapData, look: Look) -> tuple[int, int]:
    """Width and height of the plot of a view; that in a dashboard, where the look has those of the map, is about it."""
    if not heap.brief or view.dashboard is None:
        return look.map_pixels
    return PLAIN.map_pixels[0], view.dashboard.height


VIEWS: Final[dict[str, View[Any]]] = {}
"""Name -> view, in the order of menus and tabs."""

FIGURES: Final[dict[str, View[Any]]] = {}
"""Name -> view, of those that are figures of their own."""


def add_view(view: View[Any]) -> None:
    """Add a view: `bfcviz.draw`, `bfcviz export`, export menus and dashboards then have it."""
    VIEWS[view.name] = view
    if view.table is not None:
        FIGURES[view.name] = view


def view_of(panel: str) -> View[Any]:
    """The view that has a panel of this name."""
    return next(view for view in VIEWS.values() if panel in view.names)
