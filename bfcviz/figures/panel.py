"""Panel: one set of axes as plain data; the page (figure) that lays out several panels; rectangles in a panel.

Every figure is first a list of `Panel`s, dictionaries in plotly's terms. The same panel is shown as a figure of its
own or as one of several in a dashboard, and an update is the difference between two panels.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.figures.plotly_script import RENDERERS, import_renderers
from bfcviz.figures.text import axis_unit, plain_text
from bfcviz.figures.theme import Paint, Theme, template, translucent
from bfcviz.figures.view_options import FADE
from bfcviz.unwatched import unwatched

Floats = NDArray[np.float64]

TITLE: Final = 24  # pixels above a plot for its title
LEGEND: Final = 19  # pixels per line of the legend, between title and plot
BELOW: Final = 46
"""Pixels below each plot for the ticks and the title of its x axis."""

_BARE: Final = 6  # pixels above a plot without title and legend
_NOWHERE: Final = [0.0, 0.0005]  # the narrowest domain that plotly accepts

CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "responsive": True,  # follow the width of the page and of its container
    # No button that sends the figure to plotly's cloud: the data stays on this machine.
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "typesetMath": False,  # a label in dollar signs is not a formula, and formulas can carry links
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],  # selecting points has no meaning here
}
"""The configuration of plotly's script wherever a figure is shown."""

_OF_PAGES: Final = {"plotly_mimetype", "jupyterlab", "nteract", "vscode"}
"""Renderers that give the page a figure as data; the page draws it."""

# What many traces begin with.
LINES: Final[dict[str, Any]] = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
TEXTS: Final[dict[str, Any]] = {"type": "scatter", "mode": "text", "showlegend": False, "hoverinfo": "skip"}
FLAT_BARS: Final[dict[str, Any]] = {"type": "bar", "orientation": "h", "hoverinfo": "text"}
HOVER_POINTS: Final[dict[str, Any]] = {
    "type": "scatter",
    "mode": "none",
    "showlegend": False,
    "hoverinfo": "text",
}
"""Invisible points with texts."""

BARE_ROWS: Final[dict[str, Any]] = {
    "showticklabels": False,
    "ticks": "",
    "showgrid": False,
    "showline": False,
    "fixedrange": True,
}
"""A y axis of rows that are named in the plot."""


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    name: str  # its name in code, unique on a page
    title: str  # its title, with the unit if all traces share one
    caption: str  # how to read it, in one line
    # plotly traces, without axes; a kind of panel always has the same number in the same order. `legend` is the
    # trace's line of the legend, from 0 (the default).
    traces: Sequence[Mapping[str, Any]]
    xaxis: Mapping[str, Any]  # plotly's settings of the x axis
    yaxis: Mapping[str, Any]  # plotly's settings of the y axis
    x_unit: float = 1.0  # bytes, steps or nanoseconds per unit of the x axis
    y_unit: float = 1.0  # the same for the y axis
    # the exact definitions, shown on hover over the title; lines separated by `<br>`. A line that begins with a space
    # continues the one before.
    definition: str = ""
    legend: bool = True  # whether it has a legend of its own
    # whether its title also names what its y axis shows, up to the edge: a dashboard leaves that out
    title_names_y: bool = False
    # whether other parts of a dashboard name its colours: there it has no legend
    listed_elsewhere: bool = False

    @property
    def above(self) -> int:
        """Pixels needed above the plot."""
        return (TITLE if self.title else _BARE) + self.legend_height

    @property
    def legend_height(self) -> int:
        """Pixels needed for the legend, between title and plot."""
        return LEGEND * (1 + self.legend_lines) if self.legend else 0

    @property
    def legend_lines(self) -> int:
        """Lines of the legend after the first."""
        return max(int(trace.get("legend", 0)) for trace in self.traces)


@dataclass(frozen=True)
class Margins:
    """Pixels around all plots of a page of panels; `foot` is below the lowest one.

    They are fixed: plotly's automatic margins change with every longer tick, and legends do not follow them.
    """

    left: int = 88
    right: int = 20
    foot: int = 68  # slanted ticks have room

    @property
    def beside(self) -> int:
        """Pixels of a page's width outside of the plots of its panels."""
        return self.left + self.right


@dataclass(frozen=True)
class Place:
    """The place of a panel's plot on the page: parts (0..1) of its width; top and height in pixels."""

    left: float
    right: float
    top: int
    height: int


class PanelNote(NamedTuple):
    """What a panel shows, as text: its title, how to read it, and its definitions (lines separated by `<br>`)."""

    title: str
    caption: str
    definition: str


class Picture(go.Figure):  # type: ignore[misc]
    """A figure of panels with the table of numbers that it shows."""

    _table: pa.Table | None = None
    _facts: str = ""
    _notes: tuple[PanelNote, ...] = ()
    _theme: Theme | None = None
    draws_still: ClassVar[Callable[["Page", Theme], str] | None] = None
    """Draws a page without a script. `svg` sets it, which imports this module."""

    def __repr__(self) -> str:
        """What it shows, in a line; plotly's is all of its numbers."""
        names = ", ".join(dict.fromkeys(plain_text(note.title) for note in self.notes)) or "no view"
        return f"<Picture: {names}; show() opens it, bfcviz.export(picture, path) writes it, table has its numbers>"

    def with_facts(self, facts: str) -> "Picture":
        """Set the line that exported pages and images show below the figure; return the figure."""
        self._facts = facts
        return self

    @property
    def facts(self) -> str:
        """The facts below a figure of panels: file, step and totals, escaped; empty if unknown."""
        return self._facts

    @property
    def notes(self) -> tuple[PanelNote, ...]:
        """The notes of a figure's panels, in their order."""
        return self._notes

    def with_table(self, table: pa.Table) -> "Picture":
        """Set the table that `export` writes to `.csv` and `.parquet`; return the figure."""
        self._table = table
        return self

    @property
    def table(self) -> pa.Table | None:
        """The numbers that a figure of panels draws, one row per chunk, bin or point."""
        return self._table

    @unwatched()
    def show(self, *args: Any, **kwargs: Any) -> None:
        """Show a figure of panels as plotly does, with `CONFIG`."""
        import_renderers()
        super().show(*args, **{**kwargs, "config": CONFIG | kwargs.get("config", {})})

    @unwatched()
    def _ipython_display_(self) -> None:
        """Display the figure, and beside it the same without a script: for what shows a saved notebook."""
        import_renderers()
        still = self.still()
        if not still or import_module(RENDERERS).renderers.default not in _OF_PAGES:
            self.show()
            return
        from IPython.display import display  # noqa: PLC0415  slow, and there where a notebook asks

        renderer = import_module("plotly.io.base_renderers").PlotlyRenderer(config=CONFIG)
        display({**renderer.to_mimebundle(self.to_dict()), "image/svg+xml": still}, raw=True)

    def still(self) -> str:
        """A figure of panels as an `svg` element, without a script; empty where it cannot be drawn so."""
        page = Page([each.to_plotly_json() for each in self.data], self.layout.to_plotly_json())
        if self._theme is None or Picture.draws_still is None:
            return ""
        try:
            drawn = Picture.draws_still(page, self._theme)
        except (NotImplementedError, LookupError):
            return ""
        return drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)  # a file of its own


@dataclass(frozen=True)
class Page:
    """A whole figure of panels as plain data: plotly's `data` and `layout`."""

    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]


@dataclass(frozen=True)
class _PageSize:
    """The vertical size of a page: pixels above the first plot, pixels in all; and its theme."""

    margin: int
    foot: int
    height: int
    theme: Theme

    def up(self, pixels: float) -> float:
        """Pixels as a part of the plots' height, plotly's unit."""
        return pixels / (self.height - self.margin - self.foot)


def panels_page(
    panels: Sequence[Panel], places: Sequence[Place | None], theme: Theme, margins: Margins | None = None
) -> Page:
    """The page with each panel in its place; a panel without a place is hidden."""
    margins = margins or Margins()
    shown = [place for place in places if place is not None]
    height = max(place.top + place.height for place in shown) + margins.foot
    size = _PageSize(min(place.top for place in shown), margins.foot, height, theme)
    layout: dict[str, Any] = {
        "template": template(theme),
        "height": height,
        "margin": {
            "l": margins.left,
            "r": margins.right,
            "t": size.margin,
            "b": margins.foot,
            "autoexpand": False,
        },
        "hovermode": "closest",
        "hoverdistance": 60,
        "annotations": [],
        "bargap": 0.15,
        "uirevision": "kept",
    }
    data: list[dict[str, Any]] = []
    for number, (panel, place) in enumerate(zip(panels, places, strict=True), start=1):
        axes = _placed_panel_layout(panel, number, place, size) if place else _hidden_panel_layout(number)
        layout["annotations"].append(axes.pop("title"))
        layout |= axes
        data += _panel_traces(panel, number, visible=place is not None)
    return Page(data, layout)


def below_each_other(panels: Sequence[Panel], heights: Sequence[int]) -> list[Place]:
    """The place of each panel on a page of panels below each other, with plots of these heights in pixels."""
    places, end = [], 0
    for panel, height in zip(panels, heights, strict=True):
        places.append(Place(0.0, 1.0, end + panel.above, height))
        end += panel.above + height + BELOW
    return places


def in_rows(panels: Sequence[Panel], columns: int, height: int, gap: float, top: int = 0) -> list[Place]:
    """The place of each panel, `columns` in a row, below `top` pixels; `gap` is a part of the width."""
    width = (1 - gap * (columns - 1)) / columns
    places = []
    for number, panel in enumerate(panels):
        if not number % columns:
            top += panel.above + (height + BELOW if number else 0)
        left = (number % columns) * (width + gap)
        places.append(Place(left, left + width, top, height))
    return places


def panels_picture(
    panels: Sequence[Panel], places: Sequence[Place], theme: Theme, margins: Margins | None = None
) -> Picture:
    """The page with each panel in its place, as a figure."""
    picture: Picture = unchecked(Picture, panels_page(panels, places, theme, margins))
    picture._theme = theme  # noqa: SLF001  of this module
    picture._notes = tuple(  # noqa: SLF001  likewise
        PanelNote(panel.title, panel.caption, panel.definition) for panel in panels
    )
    return picture


def unchecked(figure: Callable[..., Any], page: Page, **options: Any) -> Any:
    """A figure of this class from a page of panels, made without plotly's checks; later changes are checked.

    To check each property would take two thirds of the time. tests/integration/figures/test_plotly_checks.py does it.
    """
    layout = {**page.layout, "template": deepcopy(page.layout["template"])}  # plotly keeps what it is given
    made = figure(data=page.data, layout=layout, _validate=False, **options)
    for part in (made, made.layout, *made.data):
        part._validate = True  # noqa: SLF001  plotly has no public way
    return made


def _panel_traces(panel: Panel, number: int, *, visible: bool) -> list[dict[str, Any]]:
    x, y = axis_names(number)
    found = []
    for trace in panel.traces:
        legend = _panel_legend_name(number, trace.get("legend", 0))
        drawn = visible and not _panel_trace_draws_nothing(trace, legend=panel.legend)
        shown = trace.get("visible", True) if drawn else False
        found.append({**trace, "visible": shown, "xaxis": x, "yaxis": y, "legend": legend})
    return found


def _panel_trace_draws_nothing(trace: Mapping[str, Any], *, legend: bool) -> bool:
    """Whether the trace has one point that is not a number and no entry in a legend; plotly would lay it out."""
    if legend and trace.get("showlegend", True):
        return False
    x = trace.get("x")
    return isinstance(x, np.ndarray) and len(x) == 1 and x.dtype.kind == "f" and bool(np.isnan(x[0]))


def _placed_panel_layout(panel: Panel, number: int, place: Place, size: _PageSize) -> dict[str, Any]:
    """Axes, legends and title of a visible panel."""
    top = 1 - size.up(place.top - size.margin)
    bottom = max(top - size.up(place.height), 0.0)
    x, y = axis_names(number)
    found: dict[str, Any] = {
        f"xaxis{x[1:]}": {"visible": True, **panel.xaxis, "domain": [place.left, place.right], "anchor": y},
        f"yaxis{y[1:]}": {"visible": True, **panel.yaxis, "domain": [bottom, min(top, 1.0)], "anchor": x},
        "title": _panel_title(panel, x, y, size.theme),
    }
    for line in range(panel.legend_lines + 1):
        above = top + size.up(LEGEND * (panel.legend_lines - line))
        found[_panel_legend_name(number, line)] = _panel_legend(place.left, above, size.theme) | {
            "visible": panel.legend
        }
    return found


def _hidden_panel_layout(number: int) -> dict[str, Any]:
    x, y = axis_names(number)
    return {
        # Moved aside: plotly paints even an empty plot's background over the plots it overlaps.
        f"xaxis{x[1:]}": {"visible": False, "domain": _NOWHERE},
        f"yaxis{y[1:]}": {"visible": False, "domain": _NOWHERE},
        "title": {"text": "", "showarrow": False, "visible": False},
    }


def axis_names(number: int) -> tuple[str, str]:
    """Plotly's short names for the axes of panel `number`, from 1."""
    suffix = "" if number == 1 else str(number)
    return f"x{suffix}", f"y{suffix}"


def _panel_legend_name(number: int, line: int) -> str:
    place = 10 * line + number  # each legend needs a number of its own
    return "legend" if place == 1 else f"legend{place}"


def _panel_legend(left: float, bottom: float, theme: Theme) -> dict[str, Any]:
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


def _panel_title(panel: Panel, x: str, y: str, theme: Theme) -> dict[str, Any]:
    muted = f"color:{theme.muted}; font-size:11px"
    return {
        "text": f"<b>{panel.title}</b>  <span style='{muted}'>{panel.caption}</span>",
        "xref": f"{x} domain",
        "yref": f"{y} domain",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": panel.legend_height + 1,
        "visible": bool(panel.title),
        "showarrow": False,
        "hovertext": panel.definition,
        "captureevents": bool(panel.definition),
        "font": {"size": 13},
        "align": "left",
    }


def panel_at_step(panel: Panel, step: int) -> Panel:
    """The panel, whose caption says at which step it is drawn."""
    return replace(panel, caption=f"step {step:,}" + f"; {panel.caption}" * bool(panel.caption))


# ------------------------------------------------------------------------------
# Fit a panel into its place on a stage: no text wider than the plot, and no text that another part shows.

_SELDOM: Final = frozenset({"in use, but too narrow to see", "matches of the search", "selected"})
"""Traces of the map that the legend seldom lists: last, so that it has no empty line between others."""

_RANK: Final = 1000  # plotly's default


def slim_panel(panel: Panel) -> Panel:
    """`panel` beside others: without the titles of axes and the legends that another panel or a list shows."""
    if panel.title_names_y:  # what they draw fills their height
        panel = replace(panel, yaxis={**panel.yaxis, "title": {"text": ""}, "fixedrange": True})
    if panel.name == "region_map":
        unit = axis_unit(1024 * panel.x_unit)[1]
        xaxis = {**panel.xaxis, "title": {"text": ""}, "ticksuffix": f" {unit}", "showticksuffix": "first"}
        traces = [
            {**trace, "legendrank": _RANK + 1} if trace.get("name") in _SELDOM else trace
            for trace in panel.traces
        ]
        return replace(panel, xaxis=xaxis, yaxis={**panel.yaxis, "title": {"text": ""}}, traces=traces)
    return replace(panel, legend=panel.legend and not panel.listed_elsewhere)


# Pixels of the widest usual font: the kernel does not know which font the page uses.
_LETTER: Final = 6.4  # of a legend or caption
_BOLD: Final = 8.6  # of a title
_SIGN: Final = 47  # of a legend entry, beside its name
_CAPTION_SPACE: Final = 12  # between title and caption

_FEWEST: Final = 12  # characters of a shortened caption; a shorter one is left out


def fitted_panel(panel: Panel, pixels: float) -> Panel:
    """`panel` with legend and caption no wider than its plot, which is `pixels` wide.

    Every named trace keeps its place in the legend, even if the legend does not show it: so the number of lines
    does not change with every step.
    """
    lines = _fitted_legend_lines(panel.traces, pixels)
    if any(trace.get("legend", 0) != line for trace, line in zip(panel.traces, lines, strict=True)):
        traces = [{**trace, "legend": line} for trace, line in zip(panel.traces, lines, strict=True)]
        panel = replace(panel, traces=traces)
    room = int((pixels - _BOLD * len(plain_text(panel.title)) - _CAPTION_SPACE) / _LETTER)
    if len(panel.caption) <= room:
        return panel
    # The first whole words, where there is room for some.
    words = panel.caption[: max(room, 0)].rsplit(" ", 1)[0].rstrip(" ,;:")
    definition = "<br>".join(text for text in (panel.caption, panel.definition) if text)
    return replace(panel, caption=f"{words}…" if room >= _FEWEST else "", definition=definition)


def _fitted_legend_lines(traces: Sequence[Mapping[str, Any]], pixels: float) -> list[int]:
    """The legend line of each trace: a new line where the panel begins one, or where a line is full."""
    order = sorted(
        (trace.get("legend", 0), trace.get("legendrank", _RANK), number)
        for number, trace in enumerate(traces)
    )
    found, line, before, filled = [0] * len(traces), 0, 0, 0.0
    for legend, _, number in order:
        name = traces[number].get("name", "")
        wide = _SIGN + _LETTER * len(plain_text(name)) if name else 0.0
        if filled and (legend != before or filled + wide > pixels):
            line, filled = line + 1, 0.0
        found[number], before, filled = line, legend, filled + wide
    return found


# ------------------------------------------------------------------------------
# Axis-parallel rectangles anywhere on a plot: one plotly trace, however many there are.

LEAST_EDGED: Final = 10
"""Widths of the line around a shape: one that is narrower or lower has none, which would hide much of its colour."""


@dataclass(frozen=True)
class Boxes:
    """Rectangles on a plot by their edges, in axis units; four arrays of one length."""

    left: Floats
    right: Floats
    bottom: Floats
    top: Floats

    @classmethod
    def none(cls) -> "Boxes":
        """No rectangles."""
        return cls(*np.zeros((4, 0)))

    def __len__(self) -> int:
        return len(self.left)

    def with_area(self) -> "Boxes":
        """The rectangles that have an area."""
        return self._only((self.right > self.left) & (self.top > self.bottom))

    def at_least(self, width: float, height: float) -> "Boxes":
        """The rectangles that are at least so wide and so high, in axis units."""
        return self._only((self.right - self.left >= width) & (self.top - self.bottom >= height))

    def _only(self, mask: NDArray[np.bool_]) -> "Boxes":
        return Boxes(self.left[mask], self.right[mask], self.bottom[mask], self.top[mask])

    def corners(self) -> tuple[Floats, Floats]:
        """Closed outlines of rectangles for plotly's fill `toself`, NaN after each; one NaN if there are none.

        (Plotly drops a trace without points from the legend.)
        """
        if not len(self):
            return np.full(1, np.nan), np.full(1, np.nan)
        gap = np.full(len(self), np.nan)
        x = np.column_stack([self.left, self.right, self.right, self.left, self.left, gap]).ravel()
        y = np.column_stack([self.bottom, self.bottom, self.top, self.top, self.bottom, gap]).ravel()
        return x, y


def box_trace(name: str, boxes: Boxes, paint: Paint, border: float) -> dict[str, Any]:
    """A trace of filled rectangles, also those below a pixel; `border` is the width of their lines in pixels."""
    line = {"color": paint.line, "width": border, "simplify": False}
    filled = {"fill": "toself", "fillcolor": paint.fill, "line": line}
    return box_outlines(name, boxes, paint.line, border) | filled


def box_outlines(name: str, boxes: Boxes, colour: str, width: float) -> dict[str, Any]:
    """A trace of unfilled rectangles, their lines `width` pixels wide."""
    x, y = boxes.corners()
    return {**LINES, "name": name, "x": x, "y": y, "line": {"color": colour, "width": width}}


def edges_trace(x: Any, y: Any, theme: Theme, width: float) -> dict[str, Any]:
    """A trace of closed outlines over fills of any colour, each a darker (on dark paper: lighter) one of its hue."""
    return {**LINES, "x": x, "y": y, "line": {"color": theme.edge, "width": width}, "showlegend": False}


def fade_trace(x: Any, y: Any, theme: Theme) -> dict[str, Any]:
    """A trace that fades what lies under closed outlines, such as those of rectangles."""
    paint = {"fill": "toself", "fillcolor": translucent(theme.paper, FADE)}
    return {**LINES, "mode": "none", "x": x, "y": y, **paint, "showlegend": False}
