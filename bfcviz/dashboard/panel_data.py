"""The panels of a dashboard: those of its views, of one heap; and what clicks and zooms on them mean."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Any, Final

from bfcviz.events.origin import holds_only_states
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import Colouring
from bfcviz.figures.map_image import LiveMap
from bfcviz.figures.panel import Panel, panel_at_step
from bfcviz.figures.region_map import image_panel, map_panel
from bfcviz.figures.timeline_parts import StepAxis
from bfcviz.figures.view import VIEWS, HeapData, View, view_of
from bfcviz.figures.view_options import Look, MapWindow, Selected, Span
from bfcviz.model import Model
from bfcviz.model.find_steps import matches
from bfcviz.model.trace_index import index_of

_NO_HISTORY: Final = "no history: how the state is built here"


class PanelData(HeapData):
    """The data of one heap, and the panels of its views for a look.

    Attributes:
        live_map: the map of the last panels, where the heap moves and its whole map is shown; else None.
    """

    def __init__(self, trace: Trace, pool: int) -> None:
        index = index_of(trace, pool)
        super().__init__(Model(trace, pool, None if index is None else index.rolling.snapshots()), brief=True)
        self.live_map: LiveMap | None = None

    def panels(self, names: Collection[str], look: Look) -> dict[str, Panel]:
        """The panels of all views of a dashboard that have one of these `names`, at the model's step."""
        made: dict[str, Panel] = {}
        self.live_map = None
        for view in [view for view in VIEWS.values() if not set(names).isdisjoint(view.names)]:
            made |= {panel.name: panel for panel in self._panels_of(view, look)}
        return made

    def _panels_of(self, view: View[Any], look: Look) -> list[Panel]:
        if view.name == "region_map" and self.moving and look.map_window is None and look.since is None:
            self.live_map = LiveMap(self.model, self.colours(look), look.paints)
            return [map_panel(self, look, self.live_map)]
        panels = list(view.panels(view.data(self, look), self, look))
        if "steps" in view.windows and holds_only_states(self.trace.origin.details):
            panels = [replace(panel, caption=_NO_HISTORY) for panel in panels]
        # Above the tabs, the map shows the newest step and the strip marks its own.
        if self.moving and view.dashboard is not None and view.dashboard.tab is not None:
            panels = [panel_at_step(panel, self.step) for panel in panels]
        return panels

    def held_map(self, look: Look) -> dict[str, Panel]:
        """The map at the model's step, without what costs most: the only panel that follows while a key is held."""
        return {"region_map": image_panel(self.model, replace(look, legend=False), self.colours(look))}

    def map_alone(self, look: Look) -> dict[str, Panel]:
        """The map at the model's step, whose legend names the colours: beside a picture no list does."""
        return {"region_map": map_panel(HeapData(self.model), look)}

    def moving_map_image(self) -> str | None:
        """The moving map's image at the newest event, as a data URI; None: the whole frame must be drawn."""
        live, trace = self.live_map, self.trace
        if not self.moving or live is None or not live.moves or live.step < trace.first:
            return None
        blocks = list(trace.blocks(live.step))
        if any(len(matches(block, [Kind.EXTEND, Kind.RELEASE], self.model.pool)) for block in blocks):
            return None
        for block in blocks:
            live.take(block)
        source: str | None = live.image().get("source")
        return source

    def colours(self, look: Look) -> Colouring:
        """The colours of chunks, as for any heap; the map keeps its colours while only its image changes."""
        if self.live_map is not None and look.colour == self.live_map.colours.name:
            return self.live_map.colours
        return super().colours(look)

    def chosen_at(self, panel: str, x: float, y: float, look: Look) -> tuple[Selected | None, int | None]:
        """What a click on a panel's axes selects: the chunk there, and the step to go to (None: stay)."""
        view, chosen = view_of(panel), look.selected
        if view.at is not None:
            chosen = view.at(view.data(self, look), self, look, x, y)
        over_steps = "steps" in view.windows or panel == "strip"
        return chosen, self.clock(look).step_at(x) if over_steps else None

    def handle_and_label(self, chosen: Selected) -> tuple[int | None, int | None]:
        """Handle and label of the chunk that a click selected. None: it is not there at this step, or has no label."""
        if chosen.born is not None:
            event = self.trace.read(chosen.born, chosen.born + 1)[0]
            return int(event["chunk"]), int(event["label"]) or None
        chunks = self.model.chunks()
        at = chunks["handle"][chunks["address"] == chosen.address]
        return (int(at[0]), None) if len(at) else (None, None)


# ------------------------------------------------------------------------------
# Convert a zoom in the page, in a panel's units, to the part of the heap that is shown, and undo it.

_SAME: Final = 1e-3  # of a range: smaller differences are rounding by the page


def zoomed(
    look: Look,
    panels: Mapping[str, Panel],
    ranges: Mapping[str, Mapping[str, Sequence[float]]],
    clock: StepAxis,
) -> Look:
    """What a zoom means: `look` with new windows of those panels whose ranges in the page differ from the drawn ones.

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
        x, y = _allowed_zoom_range(panel.xaxis, now["x"]), _allowed_zoom_range(panel.yaxis, now["y"])
        x_changed, y_changed = _zoom_range_changed(panel.xaxis, x), _zoom_range_changed(panel.yaxis, y)
        x_whole, y_whole = _is_whole_zoom_range(panel.xaxis, x), _is_whole_zoom_range(panel.yaxis, y)
        windows = view_of(name).windows
        if "map_window" in windows and (x_changed or y_changed):
            window = MapWindow(bytes=_zoomed_span(x, panel.x_unit), rows=_zoomed_span(y, panel.y_unit))
            look = replace(look, map_window=None if x_whole and y_whole else window)
        if "steps" in windows and x_changed:
            look = replace(look, steps=None if x_whole else _zoomed_steps(x, clock))
        if "addresses" in windows and y_changed:
            look = replace(look, addresses=None if y_whole else _zoomed_span(y, panel.y_unit))
    return look


def whole(look: Look, panel: str | None = None) -> Look:
    """What the end of a zoom means: `look` without the zoom of this panel; None: without any zoom."""
    windows = ("map_window", "steps", "addresses") if panel is None else view_of(panel).windows
    nothing: dict[str, Any] = dict.fromkeys(windows)
    return replace(look, **nothing)


def brushed(look: Look, ends: Sequence[float] | None, clock: StepAxis) -> Look:
    """What a brush on the strip means: `look` zoomed to the steps between these positions; None: without a window."""
    return replace(look, steps=None if ends is None else _zoomed_steps(sorted(map(float, ends)), clock))


def _allowed_zoom_range(axis: Mapping[str, Any], ends: Sequence[float]) -> Sequence[float]:
    """The part of a zoom's range that the axis allows; the drawn range if there is none."""
    low, high = float(axis.get("minallowed", -inf)), float(axis.get("maxallowed", inf))
    found = [min(max(float(end), low), high) for end in ends]
    return found if found[0] != found[1] else [float(end) for end in axis["range"]]


def _is_whole_zoom_range(axis: Mapping[str, Any], ends: Sequence[float]) -> bool:
    """Whether a zoom's range is all that the axis allows."""
    whole = [float(axis.get("minallowed", -inf)), float(axis.get("maxallowed", inf))]
    return not _zoom_range_changed({"range": whole}, sorted(ends)) if all(map(isfinite, whole)) else False


def _zoom_range_changed(axis: Mapping[str, Any], now: Sequence[float]) -> bool:
    """Whether the page's range of a panel's axis differs from the drawn one."""
    drawn = [float(end) for end in axis["range"]]
    least = _SAME * max(abs(drawn[1] - drawn[0]), 1e-12)
    return any(abs(one - float(other)) > least for one, other in zip(drawn, now, strict=True))


def _zoomed_span(ends: Sequence[float], unit: float) -> Span:
    low, high = sorted(float(end) * unit for end in ends)
    return low, high


def _zoomed_steps(x: Sequence[float], clock: StepAxis) -> tuple[int, int]:
    first, last = clock.step_at(float(x[0])), clock.step_at(float(x[1]))
    if last <= first:  # a window narrower than an event
        last = min(first + 1, clock.last)
        first = max(last - 1, clock.first)
    return first, last
