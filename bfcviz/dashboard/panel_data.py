"""The data of one heap that the panels are drawn from: the model, and cached series.

Expensive data is computed when a panel that needs it is shown. It is cached until the trace grows or another part of
the trace is shown. A new step only moves the model.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Any, Final, TypeVar

from bfcviz.analysis.search import Search, search_of
from bfcviz.events.origin import holds_only_states
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.active_memory_timeline import (
    INSTEAD_OF_STATE,
    ActiveMemoryWindow,
    active_memory_panel,
    active_memory_window,
    allocation_at,
)
from bfcviz.figures.address_time_map import (
    AddressTimeWindow,
    address_time_panel,
    address_time_window,
    chunk_at_time,
)
from bfcviz.figures.bins import bin_panels
from bfcviz.figures.colouring import Colouring, colouring
from bfcviz.figures.free_chunk_ladder import free_chunk_at, ladder_panel
from bfcviz.figures.panel import Panel
from bfcviz.figures.region_map.figure import LiveMap, chunk_at, live_map_panel, region_panel
from bfcviz.figures.region_map.rows import last_event
from bfcviz.figures.timelines.axis import History, StepAxis, measure_history
from bfcviz.figures.timelines.event_rate import rate_panel
from bfcviz.figures.timelines.fragmentation import fragmentation_panel
from bfcviz.figures.timelines.stats import stats_panel
from bfcviz.figures.timelines.strip import strip_panel, strip_traces
from bfcviz.figures.view_options import Look, MapWindow, Selected, Span, choice_of
from bfcviz.model import Model
from bfcviz.model.navigation import matches

# ------------------------------------------------------------------------------
# The data of one heap that the panels are drawn from: the model, and cached series.

T = TypeVar("T")

TIMELINES = frozenset({"stats", "fragmentation", "rate", "address_time", "lifetimes"})
"""The panels that run over the steps of the window."""

_MOVING = frozenset({"region_map", "strip"})
"""The panels that need not say their step while the map moves: it shows the newest one, the strip marks its own."""

_NO_HISTORY = "no history: how the state is built here"


class PanelData:
    """The data of one heap, and its panels for a look.

    Attributes:
        model: the model at the step shown.
        moving: the heap is active and its newest step is shown: the whole region map is a `LiveMap`, and `search`
            finds nothing.
    """

    def __init__(self, trace: Trace, pool: int) -> None:
        self.model = Model(trace, pool)
        self.moving = False
        self._glance: LiveMap | None = None
        self._cache: dict[str, tuple[Hashable, Any]] = {}

    @property
    def trace(self) -> Trace:
        """The trace."""
        return self.model.trace

    def panels(self, names: Collection[str], look: Look) -> dict[str, Panel]:
        """The panels with these `names`, at the model's step."""
        makers: dict[str, Callable[[], dict[str, Panel]]] = {
            "region_map": lambda: self._region_map(look),
            "strip": lambda: self._strip(look),
            "stats": lambda: _named(stats_panel(self.history(look), self.model.step, look)),
            "fragmentation": lambda: self._fragmentation(look),
            "rate": lambda: _named(rate_panel(self.history(look), self.model.step, look)),
            "ladder": lambda: _named(ladder_panel(self.model, look)),
            "bin_bytes": lambda: self._bins(look),
            "address_time": lambda: _named(
                address_time_panel(self.address_time(look), self.model.step, look)
            ),
            "lifetimes": lambda: _named(active_memory_panel(self.lives(look), self.model.step, look)),
        }
        made: dict[str, Panel] = {}
        self._glance = None
        for name in names:
            if name in makers:
                made |= makers[name]()
        if holds_only_states(self.trace.origin.details):
            made |= {name: replace(made[name], caption=_NO_HISTORY) for name in TIMELINES & made.keys()}
        if self.moving:
            made |= {name: _with_step(made[name], self.model.step) for name in made.keys() - _MOVING}
        return made

    def moving_map_image(self) -> str | None:
        """The moving map's image at the newest event, as a data URI; None: the whole frame must be drawn."""
        glance, trace = self._glance, self.trace
        if not self.moving or glance is None or not glance.moves or glance.step < trace.first:
            return None
        blocks = list(trace.blocks(glance.step))
        if any(len(matches(block, [Kind.EXTEND, Kind.RELEASE], self.model.pool)) for block in blocks):
            return None
        for block in blocks:
            glance.take(block)
        source: str | None = glance.image().get("source")
        return source

    def search(self) -> Search | None:
        """The search made by the operation whose event led to the model's step; None while the map is moving."""
        step = self.model.step
        event = None if self.moving else last_event(self.model)
        if event is None or event["kind"][0] not in (Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE, Kind.OOM):
            return None
        return self._cached("search", step, lambda: search_of(self.trace, step - 1, self.model))

    def clock(self, look: Look) -> StepAxis:
        """The position of each step on the timelines' axis."""
        return self._cached("clock", (len(self.trace), look.axis), lambda: StepAxis.of(self.trace, look.axis))

    def colours(self, look: Look) -> Colouring:
        """The colours of chunks; a label keeps its colour while the trace grows.

        Those by holder are of the model's step.
        """
        if self._glance is not None and look.colour == self._glance.colours.name:
            return self._glance.colours  # the map keeps its colours while only its image changes
        if look.colour == "holder":
            key = (len(self.trace), self.model.step, look.theme)
            return self._cached("colours by holder", key, lambda: self._colours_by_holder(look))
        name = f"colours by {look.colour}"
        return self._cached(
            name, look.theme, lambda: colouring(self.trace, self.model.pool, look.colour, look.paints)
        )

    def _colours_by_holder(self, look: Look) -> Colouring:
        chunks = self.model.in_use() if self.moving else self.model.chunks()
        return colouring(self.trace, self.model.pool, "holder", look.paints, chunks)

    def history(self, look: Look) -> History:
        """The data of the timelines of bytes; if the trace grew, only the new events are read."""
        key = (len(self.trace), look.axis, look.steps, look.wanted)
        before = self._previous("history")
        return self._cached(
            "history", key, lambda: measure_history(self.trace, self.model.pool, look, before)
        )

    def whole_history(self, look: Look) -> History:
        """The history of all steps, whatever the window is."""
        if look.steps is None:
            return self.history(look)
        key = (len(self.trace), look.axis, look.wanted)
        before = self._previous("whole history") or self._previous("history")
        look = replace(look, steps=None)
        return self._cached(
            "whole history", key, lambda: measure_history(self.trace, self.model.pool, look, before)
        )

    def address_time(self, look: Look) -> AddressTimeWindow:
        """The data of the address-time map."""
        colours, look = self.colours(look), replace(look, legend=False)
        key = (len(self.trace), look.axis, look.steps, look.addresses, colours, choice_of(look))
        before, model = self._previous("address_time"), self.model

        def make() -> AddressTimeWindow:
            return address_time_window(
                self.trace, model.pool, look, colours=colours, model=model, before=before
            )

        return self._cached("address_time", key, make)

    def lives(self, look: Look) -> ActiveMemoryWindow:
        """The data of the lifetimes panel. Coloured by holder instead of by state, since all its chunks are in use."""
        colour = INSTEAD_OF_STATE if look.colour == "state" else look.colour
        look = replace(look, colour=colour, legend=False)
        key = (len(self.trace), look.axis, look.steps, self.colours(look), choice_of(look))
        model, colours, before = self.model, self.colours(look), self._previous("lives")

        def make() -> ActiveMemoryWindow:
            series = self.history(look).series
            return active_memory_window(
                self.trace, model.pool, look, colours=colours, series=series, model=model, before=before
            )

        return self._cached("lives", key, make)

    def chosen_at(self, panel: str, x: float, y: float, look: Look) -> tuple[Selected | None, int | None]:
        """What a click on a panel's axes selects: the chunk there, and the step to go to (None: stay)."""
        if panel == "region_map":
            return self._chunk_on_map(x, y, look), None
        if panel == "ladder":
            return free_chunk_at(self.model, x, look), None
        if panel not in TIMELINES | {"strip"}:
            return look.selected, None
        step = self.clock(look).step_at(x)
        if panel == "address_time":
            return chunk_at_time(self.address_time(look), x, y), step
        if panel == "lifetimes":
            return allocation_at(self.lives(look), x, y), step
        return look.selected, step

    def _chunk_on_map(self, x: float, y: float, look: Look) -> Selected | None:
        chunk = chunk_at(self.model, x, y, look)
        if chunk is None:
            return None
        return Selected(int(chunk["address"]), int(chunk["born"]) if chunk["in_use"] else None)

    def handle_and_label(self, chosen: Selected) -> tuple[int | None, int | None]:
        """Handle and label of a selected chunk. None: it does not exist at this step, or has no label."""
        if chosen.born is not None:
            event = self.trace.read(chosen.born, chosen.born + 1)[0]
            return int(event["chunk"]), int(event["label"]) or None
        chunks = self.model.chunks()
        at = chunks["handle"][chunks["address"] == chosen.address]
        return (int(at[0]), None) if len(at) else (None, None)

    def _region_map(self, look: Look) -> dict[str, Panel]:
        look = replace(look, legend=look.colour != "holder")  # the side pane lists the holders
        if self.moving and look.map_window is None:
            self._glance = LiveMap(self.model, self.colours(look), look.paints)
            return _named(live_map_panel(self._glance, self.trace.labels, look))
        return _named(region_panel(self.model, last_event(self.model), look, self.colours(look)))

    def _strip(self, look: Look) -> dict[str, Panel]:
        history = self.whole_history(look)
        key = (len(self.trace), look.axis, look.theme)
        traces = self._cached("strip", key, lambda: strip_traces(history, look))
        return _named(strip_panel(history, traces, self.model.step, look))

    def _fragmentation(self, look: Look) -> dict[str, Panel]:
        return _named(fragmentation_panel(self.history(look), self.model.step, look, brief=True))

    def _bins(self, look: Look) -> dict[str, Panel]:
        panels = bin_panels(self.model, last_event(self.model), look, self.search())
        return {panel.name: panel for panel in panels}

    def _previous(self, name: str) -> Any:
        """The cached value of this name, for any key."""
        return self._cache[name][1] if name in self._cache else None

    def _cached(self, name: str, key: Hashable, make: Callable[[], T]) -> T:
        known = self._cache.get(name)
        if known is None or known[0] != key:
            self._cache[name] = known = (key, make())
        found: T = known[1]
        return found


def _with_step(panel: Panel, step: int) -> Panel:
    """The panel, which says at which step it is drawn."""
    return replace(panel, caption=f"step {step:,}" + f"; {panel.caption}" * bool(panel.caption))


def _named(panel: Panel) -> dict[str, Panel]:
    return {panel.name: panel}


# ------------------------------------------------------------------------------
# Convert a zoom in the page, in a panel's units, to the part of the heap that is shown, and undo it.

_SAME: Final = 1e-3  # of a range: smaller differences are rounding by the page
_BEFORE: Final = 0.1  # of the window: what it shows before a step that it follows


def zoomed(
    look: Look,
    panels: Mapping[str, Panel],
    ranges: Mapping[str, Mapping[str, Sequence[float]]],
    clock: StepAxis,
) -> Look:
    """`look` with new windows of those panels whose ranges in the page differ from the drawn ones.

    Args:
        look: the look that was drawn.
        panels: the panels shown, by name.
        ranges: ranges of the axes in the page, by panel and axis (`x`, `y`).
        clock: maps x of the timelines to steps.
    """
    for name, panel in panels.items():
        now = ranges.get(name)
        if now is None:
            continue
        x, y = _inside(panel.xaxis, now["x"]), _inside(panel.yaxis, now["y"])
        x_changed, y_changed = _changed(panel.xaxis, x), _changed(panel.yaxis, y)
        x_whole, y_whole = _is_whole(panel.xaxis, x), _is_whole(panel.yaxis, y)
        if name == "region_map" and (x_changed or y_changed):
            window = None if x_whole and y_whole else _map_window(panel, x, y)
            look = replace(look, map_window=window)
        if name in TIMELINES and x_changed:
            look = replace(look, steps=None if x_whole else _steps(x, clock))
        if name == "address_time" and y_changed:
            look = replace(look, addresses=None if y_whole else _span(y, panel.y_unit))
    return look


def whole(look: Look, panel: str | None = None) -> Look:
    """`look` without the window of this panel; None: without any window."""
    if panel == "region_map":
        return replace(look, map_window=None)
    if panel == "address_time":
        return replace(look, steps=None, addresses=None)
    if panel in TIMELINES:
        return replace(look, steps=None)
    return replace(look, map_window=None, steps=None, addresses=None) if panel is None else look


def brushed(look: Look, ends: Sequence[float] | None, clock: StepAxis) -> Look:
    """`look` with the window between these positions on the strip's axis; None: without a window."""
    return replace(look, steps=None if ends is None else _steps(sorted(map(float, ends)), clock))


def with_step(look: Look, step: int, last: int) -> Look:
    """`look` with its window of steps moved, where `step` lies outside: to just before it, or just after."""
    if look.steps is None or look.steps[0] <= step <= look.steps[1]:
        return look
    length = look.steps[1] - look.steps[0]
    behind = round(length * (_BEFORE if step > look.steps[1] else 1 - _BEFORE))
    first = max(min(step - behind, last - length), 0)
    return replace(look, steps=(first, first + length))


def unmarked(look: Look) -> Look:
    """`look` without what is hovered, and without the first of what is filtered by, searched and selected.

    What is hovered ends with the next move of the mouse: it must not use up the key that ends a choice.
    """
    if look.holder is not None:
        return replace(look, hovered=None, holder=None)
    if look.search is not None:
        return replace(look, hovered=None, search=None)
    return replace(look, hovered=None, selected=None)


def _inside(axis: Mapping[str, Any], ends: Sequence[float]) -> Sequence[float]:
    """The part of a range that the axis allows; the drawn range if there is none."""
    low, high = float(axis.get("minallowed", -inf)), float(axis.get("maxallowed", inf))
    found = [min(max(float(end), low), high) for end in ends]
    return found if found[0] != found[1] else [float(end) for end in axis["range"]]


def _is_whole(axis: Mapping[str, Any], ends: Sequence[float]) -> bool:
    """Whether a range is all that the axis allows."""
    whole = [float(axis.get("minallowed", -inf)), float(axis.get("maxallowed", inf))]
    return not _changed({"range": whole}, sorted(ends)) if all(map(isfinite, whole)) else False


def _changed(axis: Mapping[str, Any], now: Sequence[float]) -> bool:
    drawn = [float(end) for end in axis["range"]]
    least = _SAME * max(abs(drawn[1] - drawn[0]), 1e-12)
    return any(abs(one - float(other)) > least for one, other in zip(drawn, now, strict=True))


def _map_window(panel: Panel, x: Sequence[float], y: Sequence[float]) -> MapWindow:
    return MapWindow(bytes=_span(x, panel.x_unit), rows=_span(y, panel.y_unit))


def _span(ends: Sequence[float], unit: float) -> Span:
    low, high = sorted(float(end) * unit for end in ends)
    return low, high


def _steps(x: Sequence[float], clock: StepAxis) -> tuple[int, int]:
    first, last = clock.step_at(float(x[0])), clock.step_at(float(x[1]))
    if last <= first:  # a window narrower than an event
        last = min(first + 1, clock.last)
        first = max(last - 1, clock.first)
    return first, last
