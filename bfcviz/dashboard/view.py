"""The one figure of the Inspector: five sets of axes, changed in place.

Every FigureWidget ships plotly's script (5 MB) to the page once more, so there is one, with everything in it;
a step sends only what differs from the step before.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from bfcviz.figures.panel import BELOW, LEGEND, TITLE, Panel, Picture, Place, axis_names, compose
from bfcviz.figures.theme import Theme

_MAP_HEIGHT: Final = 300
_LOW_HEIGHT: Final = 165
_FIRST: Final = TITLE + LEGEND
_SECOND: Final = _FIRST + _MAP_HEIGHT + BELOW + TITLE + 2 * LEGEND
_THIRD: Final = _SECOND + _LOW_HEIGHT + BELOW + TITLE + 2 * LEGEND

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


class View:
    """The panels as they stand in the page, and the widget that shows them."""

    def __init__(self, panels: Sequence[Panel], theme: Theme) -> None:
        self._panels = list(panels)
        self.widget = go.FigureWidget(page(panels, theme))
        self.widget.layout.autosize = True

    def show(self, panels: Sequence[Panel]) -> None:
        """Changes the picture to `panels`, in one message, sending only what differs."""
        with self.widget.batch_update():
            first = 0
            for number, (old, new) in enumerate(zip(self._panels, panels, strict=True), start=1):
                for offset, (before, after) in enumerate(zip(old.traces, new.traces, strict=True)):
                    changed = difference(before, after)
                    if changed:
                        self.widget.data[first + offset].update(changed)
                self._move_axes(number, old, new)
                first += len(new.traces)
        self._panels = list(panels)

    def _move_axes(self, number: int, old: Panel, new: Panel) -> None:
        x, y = axis_names(number)
        for axis, before, after in ((x, old.xaxis, new.xaxis), (y, old.yaxis, new.yaxis)):
            changed = difference(before, after)
            if changed:
                self.widget.layout[f"{axis[0]}axis{axis[1:]}"].update(changed)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What of `after` is not the same in `before`."""
    return {key: value for key, value in after.items() if not _same(before.get(key), value)}


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return bool(type(one) is type(other) and one == other)
