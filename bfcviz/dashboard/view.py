"""The one figure of the Inspector: five sets of axes, changed in place.

Every FigureWidget ships plotly's script (5 MB) to the page once more, so there is one, with everything in it;
a step sends only what differs from the step before.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.basedatatypes import Undefined

from bfcviz.figures.panel import BELOW, CONFIG, LEGEND, TITLE, Panel, Picture, Place, axis_names, compose
from bfcviz.figures.theme import Theme

_MAP_HEIGHT: Final = 300
_LOW_HEIGHT: Final = 165
_FIRST: Final = TITLE + LEGEND
_SECOND: Final = _FIRST + _MAP_HEIGHT + BELOW + TITLE + 2 * LEGEND
_THIRD: Final = _SECOND + _LOW_HEIGHT + BELOW + TITLE + LEGEND

PLACES: Final = (
    Place(0.0, 1.0, _FIRST, _MAP_HEIGHT),
    Place(0.0, 0.56, _SECOND, _LOW_HEIGHT),
    Place(0.0, 0.56, _THIRD, _LOW_HEIGHT),
    Place(0.64, 1.0, _SECOND, _LOW_HEIGHT),
    Place(0.64, 1.0, _THIRD, _LOW_HEIGHT),
)
"""Region map across the top; under it the two timelines, and the two bin panels beside them."""


def page(panels: Sequence[Panel], theme: Theme) -> Picture:
    """The panels as one figure that is no widget, as on screen."""
    return compose(panels, PLACES, theme)


Spec = Mapping[str, Any]
"""A trace in plotly's words."""


class View:
    """The panels as they stand in the page, and the widget that shows them."""

    def __init__(self, panels: Sequence[Panel], theme: Theme) -> None:
        self._panels = list(panels)
        self.widget = go.FigureWidget(page(panels, theme))
        self.widget.layout.autosize = True
        self.widget._config = CONFIG  # noqa: SLF001  plotly has no public way

    def show(self, panels: Sequence[Panel]) -> None:
        """Changes the picture to `panels`, in one message, sending only what differs."""
        traces = [
            (old, new)
            for before, after in self._pairs(panels)
            for old, new in zip(before.traces, after.traces, strict=True)
        ]
        restyle, changed = restyling(traces)
        relayout: dict[str, Any] = {}
        for number, (before, after) in enumerate(self._pairs(panels), start=1):
            x, y = axis_names(number)
            relayout |= _dotted(f"xaxis{x[1:]}", difference(before.xaxis, after.xaxis))
            relayout |= _dotted(f"yaxis{y[1:]}", difference(before.yaxis, after.yaxis))
        if changed or relayout:
            self.widget.plotly_update(restyle, relayout, changed)
        self._panels = list(panels)

    def _pairs(self, panels: Sequence[Panel]) -> list[tuple[Panel, Panel]]:
        return list(zip(self._panels, panels, strict=True))


def restyling(traces: Sequence[tuple[Spec, Spec]]) -> tuple[dict[str, list[Any]], list[int]]:
    """What `plotly_update` needs to turn the first of each pair into the second: values, numbers of traces.

    A key that changes in one trace is sent for every trace that changes at all: where a value is left out,
    the copy of the figure that new views are made from forgets the one it had.
    """
    changes = [difference(before, after) for before, after in traces]
    changed = [number for number, change in enumerate(changes) if change]
    keys = sorted({key for change in changes for key in change})
    values = {key: [traces[number][1].get(key, Undefined) for number in changed] for key in keys}
    return values, changed


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What of `after` is not the same in `before`."""
    return {key: value for key, value in after.items() if not _same(before.get(key), value)}


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return bool(type(one) is type(other) and one == other)


def _dotted(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` of `name` as plotly's `relayout` takes them: {"xaxis.title.text": ...}."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = _dotted(key, value) if isinstance(value, Mapping) else {key: value}
        flat |= {f"{name}.{path}": deep for path, deep in inner.items()}
    return flat
