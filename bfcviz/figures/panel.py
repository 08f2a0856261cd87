"""One set of axes as plain data, and the page that several of them are put on.

A picture is first made as `Panel`s, plain dictionaries in plotly's words. So the same panels become a figure
of their own or one view among others, and an update is the difference between two of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import plotly.graph_objects as go
import pyarrow as pa

from bfcviz.figures.style.theme import Theme, template

TITLE: Final = 24
"""Pixels over a plot for its title."""
LEGEND: Final = 19
"""Pixels for each line of its legend, which lies between title and plot."""
BELOW: Final = 46
"""Pixels under each plot for the ticks and the name of its x axis."""

# Fixed, for margins that plotly finds by itself move with every longer tick, and legends do not follow them.
_LEFT: Final = 88
_RIGHT: Final = 20
BESIDE: Final = _LEFT + _RIGHT
"""Pixels of a page's width that are no plot's."""
_NOWHERE: Final = [0.0, 0.0005]  # plotly takes no narrower domain for one
_FOOT: Final = 68  # under the last plot, whose ticks may be slanted

CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "responsive": True,  # follow the width of the page, and what dashboard/fit.py tells
    # plotly offers to send the figure to its cloud: what is on these pictures stays here.
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "typesetMath": False,  # a label in dollar signs is no formula, and formulas can carry links
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],  # they select points, which mean nothing here
}
"""What plotly's script is told, wherever a figure is shown."""


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        name: what the panel is called in code; one of a page has it.
        title: what is shown, with its unit where one holds for all.
        caption: how to read it, in one line.
        definition: what is shown, exactly, for who points at the title; lines apart by `<br>`.
        traces: plotly traces, without axes; their number and order never change for one kind of panel.
            `legend` is the line of the legend a trace is named in, from 0, where it is not the first.
        xaxis: plotly's settings of the axis.
        yaxis: likewise.
        x_unit: bytes, steps or nanoseconds that 1 on the x axis stands for.
        y_unit: likewise, of the y axis.
    """

    name: str
    title: str
    caption: str
    traces: Sequence[Mapping[str, Any]]
    xaxis: Mapping[str, Any]
    yaxis: Mapping[str, Any]
    x_unit: float = 1.0
    y_unit: float = 1.0
    definition: str = ""

    @property
    def above(self) -> int:
        """Pixels needed over the plot."""
        return TITLE + LEGEND * (1 + self.legend_lines)

    @property
    def legend_lines(self) -> int:
        """Lines of the legend after the first."""
        return max(int(trace.get("legend", 0)) for trace in self.traces)


@dataclass(frozen=True)
class Place:
    """Where a panel goes: parts (0..1) of the page's width, and pixels from its top for its plot."""

    left: float
    right: float
    top: int
    height: int


class Picture(go.Figure):  # type: ignore[misc]
    """A figure that knows the numbers it was drawn from."""

    _table: pa.Table | None = None

    def with_table(self, table: pa.Table) -> "Picture":
        """Keeps `table` as what `export` writes for `.csv`; returns itself."""
        self._table = table
        return self

    @property
    def table(self) -> pa.Table | None:
        """The numbers drawn, one row a chunk, bin or point."""
        return self._table

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Shows the figure as plotly does, with `CONFIG`."""
        super().show(*args, **{**kwargs, "config": CONFIG | kwargs.get("config", {})})

    def _ipython_display_(self) -> None:
        self.show()


@dataclass(frozen=True)
class Page:
    """A whole figure as plain data: what plotly calls its data and its layout."""

    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]


@dataclass(frozen=True)
class _Sheet:
    """What the panels lie on: pixels over the first plot, pixels in all, colours."""

    margin: int
    height: int
    theme: Theme

    def up(self, pixels: float) -> float:
        """Pixels as a part of the plots' height, as plotly counts."""
        return pixels / (self.height - self.margin - _FOOT)


def lay(panels: Sequence[Panel], places: Sequence[Place | None], theme: Theme) -> Page:
    """The page with each panel in its place; one without a place is there, but not to be seen."""
    shown = [place for place in places if place is not None]
    height = max(place.top + place.height for place in shown) + _FOOT
    sheet = _Sheet(min(place.top for place in shown), height, theme)
    layout: dict[str, Any] = {
        "template": template(theme),
        "height": height,
        "margin": {"l": _LEFT, "r": _RIGHT, "t": sheet.margin, "b": _FOOT, "autoexpand": False},
        "hovermode": "closest",
        "hoverdistance": 60,
        "annotations": [],
        "bargap": 0.15,
        "uirevision": "kept",
    }
    data: list[dict[str, Any]] = []
    for number, (panel, place) in enumerate(zip(panels, places, strict=True), start=1):
        axes = _hidden(number) if place is None else _placed(panel, number, place, sheet)
        title = axes.pop("title")
        layout |= axes
        layout["annotations"].append(title)
        data += _traces(panel, number, visible=place is not None)
    return Page(data, layout)


def compose(panels: Sequence[Panel], places: Sequence[Place], theme: Theme) -> Picture:
    """The page with each panel in its place, as a figure."""
    page = lay(panels, places, theme)
    return Picture(data=page.data, layout=page.layout)


def _traces(panel: Panel, number: int, *, visible: bool) -> list[dict[str, Any]]:
    x, y = axis_names(number)
    found = []
    for trace in panel.traces:
        legend = _legend_name(number, trace.get("legend", 0))
        hidden = {} if visible else {"visible": False}
        found.append({"visible": True, **trace, **hidden, "xaxis": x, "yaxis": y, "legend": legend})
    return found


def _placed(panel: Panel, number: int, place: Place, sheet: _Sheet) -> dict[str, Any]:
    """Axes, legends and title of a panel that is shown."""
    top = 1 - sheet.up(place.top - sheet.margin)
    bottom = max(top - sheet.up(place.height), 0.0)
    x, y = axis_names(number)
    found: dict[str, Any] = {
        f"xaxis{x[1:]}": {"visible": True, **panel.xaxis, "domain": [place.left, place.right], "anchor": y},
        f"yaxis{y[1:]}": {"visible": True, **panel.yaxis, "domain": [bottom, min(top, 1.0)], "anchor": x},
        "title": _title(panel, x, y, sheet.theme),
    }
    for line in range(panel.legend_lines + 1):
        above = top + sheet.up(LEGEND * (panel.legend_lines - line))
        found[_legend_name(number, line)] = _legend(place.left, above, sheet.theme)
    return found


def _hidden(number: int) -> dict[str, Any]:
    x, y = axis_names(number)
    return {
        # Out of the way: plotly paints a plot's ground, even an empty one's, over those it overlaps.
        f"xaxis{x[1:]}": {"visible": False, "domain": _NOWHERE},
        f"yaxis{y[1:]}": {"visible": False, "domain": _NOWHERE},
        "title": {"text": "", "showarrow": False, "visible": False},
    }


def single(panel: Panel, height: int, theme: Theme) -> Picture:
    """The panel as a figure of its own; `height` is its plot's, in pixels."""
    return compose([panel], [Place(0.0, 1.0, panel.above, height)], theme)


def axis_names(number: int) -> tuple[str, str]:
    """Plotly's short names for the axes of the panel at this place, from 1."""
    suffix = "" if number == 1 else str(number)
    return f"x{suffix}", f"y{suffix}"


def _legend_name(number: int, line: int) -> str:
    place = 10 * line + number  # any numbers do, as long as each legend has its own
    return "legend" if place == 1 else f"legend{place}"


def _legend(left: float, bottom: float, theme: Theme) -> dict[str, Any]:
    return {
        "orientation": "h",
        "x": left,
        "xanchor": "left",
        "y": bottom,
        "yanchor": "bottom",
        "itemwidth": 30,
        "bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 11, "color": theme.text},
    }


def _title(panel: Panel, x: str, y: str, theme: Theme) -> dict[str, Any]:
    muted = f"color:{theme.muted}; font-size:11px"
    return {
        "text": f"<b>{panel.title}</b>  <span style='{muted}'>{panel.caption}</span>",
        "xref": f"{x} domain",
        "yref": f"{y} domain",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": LEGEND * (1 + panel.legend_lines) + 1,
        "visible": True,
        "showarrow": False,
        "hovertext": panel.definition,
        "captureevents": bool(panel.definition),
        "font": {"size": 13},
        "align": "left",
    }
