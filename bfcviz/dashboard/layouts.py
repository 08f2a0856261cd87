"""The stage of a dashboard: its panels, and the room they leave for the pane of HTML and the tabs.

::

    strip                                  the whole trace: the one control of time
    region map              | side pane    the heap at the step; its holders and the selected chunk
    tabs                                   choose what is below
    lower panels                           none where a tab shows a table below the figure
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from json import dumps
from typing import Any, Final

import ipywidgets as widgets

from bfcviz.events.trace import Trace
from bfcviz.figures.panel import Margins, Panel, Place
from bfcviz.figures.view import VIEWS, DashboardPlace, View, ViewTab, view_of

NARROW_PX: Final = 760
"""Below this width each panel has its own row, and so has the side pane."""

MARGINS: Final = Margins(left=70, right=20)
"""Beside the plots of a stage; what is below them depends on the layout."""

ALONE: Final = Margins()
"""The same of a picture of the panels, where the rows of the map have a title."""

Row = tuple[tuple[str, float], ...]
"""Its panels from the left, and their shares of the width."""

Rows = tuple[Row, ...]

STRIP: Final = "strip"
_MAP: Final = "region_map"

EVERYTHING: Final = "everything"
"""The layout with the views of all tabs."""

_BELOW_THE_FIGURE: Final = {"chunk_table": "chunk table", "event_table": "event table", "export": "export"}
"""Tab -> its text, of those that show no view: tables and the export row, which are below the figure."""


def tabs(*shown: str) -> dict[str, str]:
    """Name -> text of each tab that layouts offer, from the left; of the folded ones only those that are `shown`."""
    offered = {tab.name: tab.text for tab in _views_by_tab() if not tab.folded or tab.name in shown}
    return offered | _BELOW_THE_FIGURE


def layouts() -> dict[str, Rows]:
    """The layouts: name -> the rows of panels below the tabs: those of one tab, none where it has a table, or all.

    A tab has one row, with the first panel of each of its views. `everything` has all panels: those of a view
    with several are a row of their own.
    """
    by_tab = _views_by_tab()
    found = {tab.name: (_layout_row([view.names[0] for view in views]),) for tab, views in by_tab.items()}
    every: list[Row] = []
    for views in by_tab.values():
        if alone := [view.name for view in views if len(view.names) == 1]:
            every.append(_layout_row(alone))
        every += [_layout_row(view.names) for view in views if len(view.names) > 1]
    return {**found, **dict.fromkeys(_BELOW_THE_FIGURE, ()), EVERYTHING: tuple(every)}


def layout_name(name: str) -> str:
    """The present name of a dashboard's layout that may be given by the name of an earlier version."""
    return {tab.was: tab.name for tab in _views_by_tab() if tab.was}.get(name, name)


def _views_by_tab() -> dict[ViewTab, list[View[Any]]]:
    found: dict[ViewTab, list[View[Any]]] = {}
    for view in VIEWS.values():
        if view.dashboard is not None and view.dashboard.tab is not None:
            found.setdefault(view.dashboard.tab, []).append(view)
    return found


def _layout_row(names: Sequence[str]) -> Row:
    return tuple((name, 1 / len(names)) for name in names)


_SIDE_SHARE: Final = 0.36  # of the plots' width
_SIDE_GAP: Final = 26  # pixels between the map and the side pane: half a tick such as 1,024, and some room
_SIDE_ALONE: Final = 340  # pixels: the height of the side pane on a narrow page
_TABS: Final = 30  # pixels: the height of the tabs
_TABS_ABOVE: Final = 6

_GAP: Final = 0.1

_TITLED: Final = 40  # pixels under a plot whose x axis has a title


@dataclass(frozen=True)
class Arrangement:
    """The layout of a dashboard for a certain width."""

    places: Mapping[str, Place]  # the plots of its panels, by name
    side: Place | None  # the room of the side pane; None: there is none
    tabs: Place | None  # the room of the tabs
    margins: Margins  # beside the plots, and below the lowest one


def names_in(layout: str) -> list[str]:
    """Names of the panels that a dashboard's layout shows; the map is the first, so that its axes have number 1."""
    return [_MAP, STRIP, *(name for row in layouts()[layout] for name, _ in row)]


def arrange(
    layout: str, panels: Mapping[str, Panel], *, narrow: bool = False, alone: bool = False
) -> Arrangement:
    """Where everything of a dashboard lies: pixels from the top, shares of the plots' width.

    Args:
        layout: one of `layouts()`.
        panels: at least those that the layout shows.
        narrow: each panel and the side pane has its own row.
        alone: a picture of the panels, without side pane and tabs.
    """
    places = {STRIP: _panel_place_in_layout(panels, STRIP, 0, 0.0, 1.0)}
    top = _panel_end_in_layout(places, panels, STRIP)
    beside = not narrow and not alone
    places[_MAP] = _panel_place_in_layout(panels, _MAP, top, 0.0, 1.0 - _SIDE_SHARE if beside else 1.0)
    end = _panel_end_in_layout(places, panels, _MAP)
    side = tabs = None
    if beside:
        side = Place(1.0 - _SIDE_SHARE, 1.0, top, end - top)
    elif narrow and not alone:
        side = Place(0.0, 1.0, end, _SIDE_ALONE)
        end += _SIDE_ALONE
    if not alone:
        tabs = Place(0.0, 1.0, end + _TABS_ABOVE, _TABS)
        end += _TABS_ABOVE + _TABS
    end = _add_rows(places, panels, layouts()[layout], end, narrow=narrow)
    lowest = max(place.top + place.height for place in places.values())
    margins = replace(ALONE if alone else MARGINS, foot=end - lowest)
    return Arrangement({name: places[name] for name in names_in(layout)}, side, tabs, margins)


def _add_rows(
    places: dict[str, Place], panels: Mapping[str, Panel], rows: Rows, top: int, *, narrow: bool
) -> int:
    """Place these rows of a layout from `top` on; return their lower end."""
    if narrow:
        rows = tuple(((name, 1.0),) for row in rows for name, _ in row)
    for row in rows:
        above = max(panels[name].above for name, _ in row)
        left, end = 0.0, top
        for name, share in row:
            begin = left if left == 0 else left + _GAP / 2
            right = 1.0 if left + share > 1 - 1e-6 else left + share - _GAP / 2
            plot = top + above - panels[name].above
            places[name] = _panel_place_in_layout(panels, name, plot, begin, right)
            end = max(end, _panel_end_in_layout(places, panels, name))
            left += share
        top = end
    return top


def _panel_place_in_layout(
    panels: Mapping[str, Panel], name: str, top: int, left: float, right: float
) -> Place:
    return Place(left, right, top + panels[name].above, _dashboard_place_of(name).height)


def _panel_end_in_layout(places: Mapping[str, Place], panels: Mapping[str, Panel], name: str) -> int:
    """The lower end of a panel in a layout, with what is below its plot."""
    below = _dashboard_place_of(name).below
    if panels[name].xaxis.get("title", {}).get("text"):
        below = max(below, _TITLED)
    return places[name].top + places[name].height + below


def _dashboard_place_of(panel: str) -> DashboardPlace:
    return view_of(panel).dashboard or DashboardPlace(None)


def map_pixels(width: int, *, alone: bool = False) -> tuple[int, int]:
    """Width and height that the layouts give to the plot of the region map on a page of this width."""
    share = 1.0 if alone or width < NARROW_PX else 1.0 - _SIDE_SHARE
    beside = (ALONE if alone else MARGINS).beside
    return round(share * (width - beside)), _dashboard_place_of(_MAP).height


def css_room(place: Place) -> dict[str, str]:
    """The room of a layout as values of an ipywidgets Layout, in a box of the figure's size.

    A room beside a plot keeps a gap to it; one of its own row begins at the left edge, as all rows do.
    """
    plots = f"(100% - {MARGINS.beside}px)"
    across = {"left": "0px", "width": f"calc(100% - {MARGINS.right}px)"}
    if place.left:
        across = {
            "left": f"calc({MARGINS.left + _SIDE_GAP}px + {place.left:g} * {plots})",
            "width": f"calc({place.right - place.left:g} * {plots} - {_SIDE_GAP}px)",
        }
    return {"top": f"{place.top}px", "height": f"{place.height}px", **across}


# ------------------------------------------------------------------------------
# The stage in the page: the figure, and in the room that it leaves the side pane and the tabs.

STYLE: Final = """
.bfcviz-stage { position: relative; overflow: hidden }
.bfcviz-stage > .bfcviz-side, .bfcviz-stage > .bfcviz-tabs {
  position: absolute; margin: 0; overflow: hidden; box-sizing: border-box; z-index: 1;
}
/* The layer of hover boxes, which reach over the side pane; it takes no clicks. */
.bfcviz-stage .main-svg:has(> .hoverlayer) { z-index: 2 }
.bfcviz-brush {
  position: absolute; z-index: 2; pointer-events: none; box-sizing: border-box;
  background: rgba(128, 128, 128, 0.25); border: solid var(--jp-ui-font-color1, #888); border-width: 0 2px;
}
.bfcviz-late {
  position: absolute; inset: 0; z-index: 1; padding: 12px 0; font: 13px system-ui, sans-serif;
  background: var(--jp-layout-color0, #fff); color: var(--jp-ui-font-color1, #222);
}
.bfcviz-dead {
  padding: 6px 10px; border-left: 4px solid var(--jp-error-color1, #c62828); font: 13px system-ui, sans-serif;
  background: var(--jp-layout-color2, #eee); color: var(--jp-ui-font-color1, #222);
}
.bfcviz-side { display: flex; flex-direction: column; gap: 8px }
.bfcviz-tabs .widget-html-content { height: 100%; line-height: 1 }
.bfcviz-tabs [role=tablist] {
  display: flex; height: 100%; overflow-x: auto; scrollbar-width: none; box-sizing: border-box;
  border-bottom: 1px solid var(--jp-border-color2, #8884);
}
.bfcviz-tabs button {
  all: unset; box-sizing: border-box; flex: none; padding: 0 11px; cursor: pointer; white-space: nowrap;
  font: 12px/28px var(--jp-ui-font-family, system-ui, sans-serif); color: var(--jp-ui-font-color2, inherit);
  border-bottom: 2px solid transparent;
}
.bfcviz-tabs button:hover { color: var(--jp-ui-font-color1, inherit); background: var(--jp-layout-color2, #8882) }
.bfcviz-tabs button[aria-selected=true] {
  color: var(--jp-ui-font-color1, inherit); font-weight: 600; border-bottom-color: var(--jp-brand-color1, #1976d2);
}
.bfcviz-tabs button:focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -2px }
"""
"""A page needs it once."""


class StageBox:
    """The stage that a layout fills: the figure, with the panes beside it.

    Args:
        figure: the widget of the figure.
        panes: what the side pane shows, from top to bottom.
        trace: its marks decide on some tabs.
        pool: the heap shown.

    Attributes:
        widget: the whole widget.
        side, tabs: its parts beside the figure.
    """

    def __init__(
        self, figure: widgets.Widget, panes: Sequence[widgets.Widget], trace: Trace, pool: int
    ) -> None:
        self._offers = {tab.name: tab.when(trace, pool) for tab in _views_by_tab() if tab.when is not None}
        self.side = widgets.VBox(panes)
        self.side.add_class("bfcviz-side")
        self.tabs = widgets.HTML()
        self.tabs.add_class("bfcviz-tabs")
        self.widget = widgets.VBox([figure, self.side, self.tabs])
        self.widget.add_class("bfcviz-stage")

    def show(self, stage: Arrangement, layout: str) -> None:
        """Put the panes into the room of the layout, and show which tab is open."""
        _put_widget_in_room(self.side, stage.side)
        _put_widget_in_room(self.tabs, stage.tabs)
        also = [name for name, is_offered in self._offers.items() if is_offered()]
        self.tabs.value = _layout_tabs_html(layout, also)  # the widget sends it only if it differs


def _put_widget_in_room(widget: widgets.Widget, room: Place | None) -> None:
    values = {"display": "none"} if room is None else {"display": None, **css_room(room)}
    with widget.layout.hold_sync():
        for name, value in values.items():
            if getattr(widget.layout, name) != value:
                setattr(widget.layout, name, value)


def _layout_tabs_html(layout: str, also: Sequence[str]) -> str:
    buttons = "".join(
        f"<button type='button' role='tab' aria-selected='{str(name == layout).lower()}' "
        f"data-bfcviz='{escape(dumps({'do': 'views', 'views': name}))}'>{escape(text)}</button>"
        for name, text in tabs(layout, *also).items()
    )
    return f"<div role='tablist' aria-label='what is shown below the map'>{buttons}</div>"
