"""The one figure of a dashboard: all its panels, changed in place.

Every FigureWidget ships plotly's script (5 MB) to the page once more, so there is one, with everything in it. A
panel joins it when it is first shown and from then on only hides; a step sends only what differs from the step
before, in one message.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

import numpy as np
from plotly.basedatatypes import Undefined

from bfcviz.dashboard.panels.layouts import NARROW_PX, arrange, names_in
from bfcviz.dashboard.panels.plot import Plot
from bfcviz.figures.panel import BESIDE, CONFIG, Page, Panel, Picture, axis_names, compose, lay
from bfcviz.figures.style.fit_width import fitted
from bfcviz.figures.style.theme import Theme

_PAGE_CONFIG: Final = CONFIG | {
    "doubleClick": False,  # page.js tells, and Python draws the whole anew: what was whole may have grown
    "scrollZoom": True,
    "modeBarButtonsToRemove": [*CONFIG["modeBarButtonsToRemove"], "autoScale2d", "resetScale2d", "toImage"],
}

_WIDTH: Final = 1200  # pixels, until the page tells

Spec = Mapping[str, Any]
"""A trace in plotly's words."""


class View:
    """The panels as they stand in the page, and the widget that shows them.

    Attributes:
        widget: plotly's.
        panels: every panel shown so far by its name, in the order of its axes' numbers.
    """

    def __init__(self, panels: Mapping[str, Panel], layout: str, theme: Theme) -> None:
        self.panels = dict(panels)
        self._page = self._lay(layout, theme)
        self.widget = Plot(data=self._page.data, layout=self._page.layout)
        self.widget._config = _PAGE_CONFIG  # noqa: SLF001  plotly has no public way

    def show(self, panels: Mapping[str, Panel], layout: str, theme: Theme, width: int = _WIDTH) -> None:
        """Changes the picture to `panels`, those that the layout names, sending only what differs.

        `width`: pixels of the page.
        """
        self.panels |= panels
        before, self._page = self._page, self._lay(layout, theme, width)
        restyle, changed = restyling(list(zip(before.data, self._page.data, strict=False)))
        relayout = relayouting(before.layout, self._page.layout)
        # What plotly_update does not take: axes that are new, and a template.
        joining = {
            key for key in relayout if key == "template" or (key not in before.layout and "." not in key)
        }
        for key in joining:  # not update_layout: it tells the page of an axis and its parts at once
            self.widget.layout[key] = relayout[key]
        relayout = {key: value for key, value in relayout.items() if key not in joining}
        if changed or relayout:
            # A copy: plotly writes a person's zoom into the very lists that it is given.
            self.widget.plotly_update(restyle, deepcopy(relayout), changed)
        if joined := self._page.data[len(before.data) :]:
            self.widget.add_traces([dict(trace) for trace in joined])

    def take_image(self, name: str, source: str) -> tuple[int, str]:
        """Takes note that the page shows another image in the first trace of the panel called `name`.

        Returns:
            The trace's number and its subplot, by which the page finds it.
        """
        place = list(self.panels).index(name)
        number = sum(len(panel.traces) for panel in list(self.panels.values())[:place])
        traces, data = list(self.panels[name].traces), list(self._page.data)
        traces[0], data[number] = {**traces[0], "source": source}, {**data[number], "source": source}
        self.panels[name] = replace(self.panels[name], traces=traces)
        self._page = replace(self._page, data=data)
        self.widget._data[number]["source"] = source  # noqa: SLF001  what plotly believes the page has
        return number, "".join(axis_names(place + 1))

    def _lay(self, layout: str, theme: Theme, width: int = _WIDTH) -> Page:
        narrow = width < NARROW_PX
        panels = dict(self.panels)
        for name, place in arrange(layout, panels, narrow=narrow).items():
            panels[name] = fitted(panels[name], (place.right - place.left) * (width - BESIDE))
        places = arrange(layout, panels, narrow=narrow)  # once more, for now each has its lines of the legend
        page = lay(list(panels.values()), [places.get(name) for name in panels], theme)
        return Page(page.data, {**page.layout, "autosize": True, "clickanywhere": True})

    def panel_at(self, number: int) -> Panel | None:
        """The panel whose axes have this number, from 1."""
        names = list(self.panels)
        return self.panels[names[number - 1]] if 0 < number <= len(names) else None

    def as_picture(self, layout: str, theme: Theme) -> Picture:
        """The panels of the layout as a figure that is no widget, as on screen."""
        shown = {name: self.panels[name] for name in names_in(layout)}
        places = arrange(layout, shown)
        return compose(list(shown.values()), [places[name] for name in shown], theme)


def restyling(traces: Sequence[tuple[Spec, Spec]]) -> tuple[dict[str, list[Any]], list[int]]:
    """What `plotly_update` needs to turn the first of each pair into the second: values, numbers of traces.

    A key that changes in one trace is sent for every trace that changes at all: where a value is left out,
    the copy of the figure that new views are made from forgets the one it had. It would even hold an empty
    `marker`, on which plotly stumbles: so parts of such a container are sent, never the whole.
    """
    pairs = [
        (before, after) if before is after else (_flat(before), _flat(after)) for before, after in traces
    ]
    changes = [{} if before is after else difference(before, after) for before, after in pairs]
    changed = [number for number, change in enumerate(changes) if change]
    keys = sorted({key for change in changes for key in change})
    values = {key: [pairs[number][1].get(key, Undefined) for number in changed] for key in keys}
    return values, changed


def _flat(trace: Spec) -> Spec:
    """{"line": {"width": 1}} as {"line.width": 1}; `meta` is ours, and plotly knows no parts of it."""
    flat: dict[str, Any] = {}
    for key, value in trace.items():
        if isinstance(value, dict) and key != "meta":
            flat |= {f"{key}.{part}": inner for part, inner in _flat(value).items()}
        else:
            flat[key] = value
    return flat


def difference(before: Spec, after: Spec) -> dict[str, Any]:
    """What of `after` is not the same in `before`."""
    return {key: value for key, value in after.items() if not _same(before.get(key), value)}


def relayouting(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """What `plotly_update` needs to turn one layout into the other: {"xaxis.title.text": ..., "xaxis9": {...}}."""
    found: dict[str, Any] = {}
    for key, value in difference(before, after).items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            found |= relayouting(old, value, f"{path}{key}.")
        else:
            found[path + key] = value
    return found


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        # Bit by bit, at a tenth of the cost of array_equal: a NaN is the same as itself.
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    return bool(type(one) is type(other) and one == other)
