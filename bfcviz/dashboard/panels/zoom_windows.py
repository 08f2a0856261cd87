"""Convert a zoom in the page, in a panel's units, to the part of the heap that is shown, and undo it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Any, Final

from bfcviz.dashboard.panels.panel_data import TIMELINES
from bfcviz.figures.panel import Panel
from bfcviz.figures.style.view_options import Look, MapWindow, Span
from bfcviz.figures.timelines.axis import StepAxis

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
