"""The one figure of a dashboard: all its panels, changed in place, and fitted to the width of the page.

A step is one message, with the differences from the step before, and one drawing: so a dashboard has one figure with
all panels. A panel is added when it is first shown; after that it is only hidden.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from html import unescape
from typing import Any, Final, TypeGuard

import numpy as np
from plotly.basedatatypes import Undefined

from bfcviz.dashboard.figure_widget import OneWayFigureWidget
from bfcviz.dashboard.layouts import MARGINS, NARROW_PX, Arrangement, arrange, names_in
from bfcviz.figures.panel import CONFIG, Page, Panel, Picture, axis_names, compose, lay
from bfcviz.figures.text import axis_unit
from bfcviz.figures.view_options import Look

# ------------------------------------------------------------------------------
# Fit a panel into its place on a stage: no text wider than the plot, and no text that another part shows.

_UNIT_IN_TITLE: Final = frozenset({"lifetimes", "stats", "fragmentation", "rate", "bin_bytes", "bin_chunks"})
"""Panels whose title also names what their y axis shows."""

_LISTED_ELSEWHERE: Final = frozenset({"lifetimes", "address_time"})
"""Panels whose colours the side pane or the legend of the region map names."""


_SELDOM: Final = frozenset({"in use, but too narrow to see", "matches of the search", "selected"})
"""Traces of the map that the legend seldom lists: last, so that it has no empty line between others."""

_RANK: Final = 1000  # plotly's default


def slim(panel: Panel) -> Panel:
    """`panel` on a stage: without the titles of axes and the legends that another part of the stage shows."""
    if panel.name == "region_map" or panel.name in _UNIT_IN_TITLE:
        panel = replace(panel, yaxis={**panel.yaxis, "title": {"text": ""}})
    if panel.name in _UNIT_IN_TITLE:  # what they draw fills their height
        panel = replace(panel, yaxis={**panel.yaxis, "fixedrange": True})
    if panel.name == "region_map":
        unit = axis_unit(1024 * panel.x_unit)[1]
        xaxis = {**panel.xaxis, "title": {"text": ""}, "ticksuffix": f" {unit}", "showticksuffix": "first"}
        traces = [
            {**trace, "legendrank": _RANK + 1} if trace.get("name") in _SELDOM else trace
            for trace in panel.traces
        ]
        return replace(panel, xaxis=xaxis, traces=traces)
    return replace(panel, legend=panel.legend and panel.name not in _LISTED_ELSEWHERE)


# Pixels of the widest usual font: the kernel does not know which font the page uses.
_LETTER: Final = 6.4  # of a legend or caption
_BOLD: Final = 8.6  # of a title
_SIGN: Final = 47  # of a legend entry, beside its name
_CAPTION_SPACE: Final = 12  # between title and caption

_FEWEST: Final = 12  # characters of a shortened caption; a shorter one is left out


def fitted(panel: Panel, pixels: float) -> Panel:
    """`panel` with legend and caption no wider than its plot, which is `pixels` wide.

    Every named trace keeps its place in the legend, even if the legend does not show it: so the number of lines
    does not change with every step.
    """
    lines = _lines(panel.traces, pixels)
    if any(trace.get("legend", 0) != line for trace, line in zip(panel.traces, lines, strict=True)):
        traces = [{**trace, "legend": line} for trace, line in zip(panel.traces, lines, strict=True)]
        panel = replace(panel, traces=traces)
    room = int((pixels - _BOLD * _length(panel.title) - _CAPTION_SPACE) / _LETTER)
    if len(panel.caption) <= room:
        return panel
    definition = "<br>".join(text for text in (panel.caption, panel.definition) if text)
    return replace(panel, caption=_cut(panel.caption, room), definition=definition)


def _lines(traces: Sequence[Mapping[str, Any]], pixels: float) -> list[int]:
    """The legend line of each trace: a new line where the panel begins one, or where a line is full."""
    order = sorted(
        (trace.get("legend", 0), trace.get("legendrank", _RANK), number)
        for number, trace in enumerate(traces)
    )
    found, line, before, filled = [0] * len(traces), 0, 0, 0.0
    for legend, _, number in order:
        name = traces[number].get("name", "")
        wide = _SIGN + _LETTER * _length(name) if name else 0.0
        if filled and (legend != before or filled + wide > pixels):
            line, filled = line + 1, 0.0
        found[number], before, filled = line, legend, filled + wide
    return found


def _length(text: str) -> int:
    """The visible characters of a text with markup."""
    return len(unescape(re.sub(r"<[^>]*>", "", text)))


def _cut(text: str, room: int) -> str:
    """The first whole words of `text` and an ellipsis, `room` characters at most; empty if room is too small."""
    words = text[: max(room, 0)].rsplit(" ", 1)[0].rstrip(" ,;:")
    return f"{words}…" if room >= _FEWEST else ""


# ------------------------------------------------------------------------------
# The one figure of a dashboard: all its panels, changed in place, and fitted to the width of the page.

_PAGE_CONFIG: Final = CONFIG | {
    "doubleClick": False,  # page.js sends it, and Python draws the whole range again, which may have grown
    "scrollZoom": True,  # page.js lets only Ctrl+wheel through
    "displayModeBar": False,  # it would lie on the strip; the mouse and the toolbar do what its buttons did
}

_WIDTH: Final = 1200  # pixels, until the page sends its width

Spec = Mapping[str, Any]
"""A trace as plotly's dict."""


class FigureView:
    """The panels as the page shows them, and the widget that shows them.

    Attributes:
        widget: plotly's FigureWidget.
        panels: all panels shown so far, by name, in the order of their axes' numbers.
        stage: where the panels lie, and the room for what is beside them.
    """

    def __init__(
        self, panels: Mapping[str, Panel], layout: str, look: Look, *, step: int | None = None
    ) -> None:
        self.panels = dict(panels)
        self._page, self.stage = self._lay(layout, look)
        self.widget = OneWayFigureWidget(
            data=self._page.data, layout=self._page.layout, config=_PAGE_CONFIG, step=step
        )

    def show(
        self,
        panels: Mapping[str, Panel],
        layout: str,
        look: Look,
        width: int = _WIDTH,
        *,
        step: int | None = None,
    ) -> None:
        """Show `panels`, those that the layout names, at a step; send only what differs.

        `width`: pixels of the page.
        """
        self.panels |= panels
        before = self._page
        self._page, self.stage = self._lay(layout, look, width)
        restyle, changed = restyling(list(zip(before.data, self._page.data, strict=False)))
        relayout = relayouting(before.layout, self._page.layout)
        # plotly_update does not accept new axes and a template, and forgets that a list became longer.
        new_keys = [
            key
            for key, value in relayout.items()
            if key == "template" or ("." not in key and (key not in before.layout or _dicts(value)))
        ]
        with self.widget.changes(step):
            for key in new_keys:  # not update_layout: it sends an axis and its parts separately
                self.widget.layout[key] = relayout[key]
            relayout = {key: value for key, value in relayout.items() if key not in new_keys}
            if changed or relayout:
                # A copy: plotly keeps the lists that it is given.
                self.widget.plotly_update(restyle, deepcopy(relayout), changed)
            if added := self._page.data[len(before.data) :]:
                self.widget.add_traces([dict(trace) for trace in added])

    def show_image(self, name: str, source: str, *, step: int | None = None) -> None:
        """Show another image in the first trace of the panel `name`, and nothing else, at a step."""
        place = list(self.panels).index(name)
        number = sum(len(panel.traces) for panel in list(self.panels.values())[:place])
        traces, data = list(self.panels[name].traces), list(self._page.data)
        traces[0], data[number] = {**traces[0], "source": source}, {**data[number], "source": source}
        self.panels[name] = replace(self.panels[name], traces=traces)
        self._page = replace(self._page, data=data)
        with self.widget.changes(step):
            self.widget.show_image(number, "".join(axis_names(place + 1)), source)

    def _lay(self, layout: str, look: Look, width: int = _WIDTH) -> tuple[Page, Arrangement]:
        narrow = width < NARROW_PX
        panels = dict(self.panels)
        for name in names_in(layout):
            panels[name] = slim(panels[name])
        for name, place in arrange(layout, panels, narrow=narrow).places.items():
            panels[name] = fitted(panels[name], (place.right - place.left) * (width - MARGINS.beside))
        stage = arrange(layout, panels, narrow=narrow)  # again: the height of each legend is known now
        places = [stage.places.get(name) for name in panels]
        page = lay(list(panels.values()), places, look.paints, stage.margins)
        return Page(page.data, {**page.layout, "autosize": True, "clickanywhere": True}), stage

    def panel_at(self, number: int) -> Panel | None:
        """The panel whose axes have this number, from 1; None if there is none."""
        names = list(self.panels)
        return self.panels[names[number - 1]] if 0 < number <= len(names) else None

    def as_picture(self, layout: str, look: Look) -> Picture:
        """The panels of the layout as a figure without widgets."""
        shown = {name: self.panels[name] for name in names_in(layout)}
        stage = arrange(layout, shown, alone=True)
        places = [stage.places[name] for name in shown]
        return compose(list(shown.values()), places, look.paints, stage.margins)


def restyling(traces: Sequence[tuple[Spec, Spec]]) -> tuple[dict[str, list[Any]], list[int]]:
    """Arguments of `plotly_update` that turn the first of each pair into the second: values, numbers of traces.

    A key that changes in one trace is sent for every changed trace: if a value is left out, the copy of the figure
    that new views start from loses its old value. That copy could even contain an empty `marker`, which plotly cannot
    handle: so the parts of such a container are sent, never the whole.
    """
    pairs = {
        number: (_flat(before), _flat(after))
        for number, (before, after) in enumerate(traces)
        if not _same(before, after)
    }
    changes = {number: difference(*pair) for number, pair in pairs.items()}
    changed = [number for number, change in changes.items() if change]
    keys = sorted({key for change in changes.values() for key in change})
    values = {key: [pairs[number][1].get(key, Undefined) for number in changed] for key in keys}
    return values, changed


def _flat(trace: Spec) -> Spec:
    """{"line": {"width": 1}} as {"line.width": 1}; `meta` is our own, and plotly has no keys for its parts."""
    flat: dict[str, Any] = {}
    for key, value in trace.items():
        if isinstance(value, dict) and key != "meta":
            flat |= {f"{key}.{part}": inner for part, inner in _flat(value).items()}
        else:
            flat[key] = value
    return flat


def difference(before: Spec, after: Spec) -> dict[str, Any]:
    """The items of `after` that differ in `before`."""
    return {key: value for key, value in after.items() if not _same(before.get(key), value)}


def relayouting(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The argument of `plotly_update` that turns `before` into `after`: {"xaxis.title.text": ..., "xaxis9": {...}}.

    Of a list of dicts, such as the annotations, it has the parts that differ: for a whole list, plotly draws all of
    them once more.
    """
    found: dict[str, Any] = {}
    for key, value in difference(before, after).items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            found |= relayouting(old, value, f"{path}{key}.")
        elif _dicts(value) and _dicts(old) and len(value) == len(old):
            for number, (one, other) in enumerate(zip(old, value, strict=True)):
                found |= relayouting(one, other, f"{path}{key}[{number}].")
        else:
            found[path + key] = value
    return found


def _dicts(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        # Compare bytes: a tenth of the cost of array_equal, and NaN equals NaN.
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            value is other[key] or _same(value, other[key]) for key, value in one.items()
        )
    return bool(type(one) is type(other) and one == other)
