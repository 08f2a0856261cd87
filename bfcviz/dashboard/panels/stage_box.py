"""The stage in the page: the figure, and in the room that it leaves the side pane and the tabs."""

from collections.abc import Sequence
from html import escape
from json import dumps
from typing import Final

import ipywidgets as widgets

from bfcviz.dashboard.panels.layouts import TABS, Arrangement, css_room
from bfcviz.figures.panel import Place

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
    """The figure, with the panes beside it.

    Args:
        figure: the widget of the figure.
        panes: what the side pane shows, from top to bottom.

    Attributes:
        widget: the whole widget.
        side, tabs: its parts beside the figure.
    """

    def __init__(self, figure: widgets.Widget, panes: Sequence[widgets.Widget]) -> None:
        self.side = widgets.VBox(panes)
        self.side.add_class("bfcviz-side")
        self.tabs = widgets.HTML()
        self.tabs.add_class("bfcviz-tabs")
        self.widget = widgets.VBox([figure, self.side, self.tabs])
        self.widget.add_class("bfcviz-stage")

    def show(self, stage: Arrangement, layout: str) -> None:
        """Put the panes into their room, and show which tab is open."""
        _put(self.side, stage.side)
        _put(self.tabs, stage.tabs)
        self.tabs.value = _tabs(layout)  # the widget sends it only if it differs


def _put(widget: widgets.Widget, room: Place | None) -> None:
    values = {"display": "none"} if room is None else {"display": None, **css_room(room)}
    with widget.layout.hold_sync():
        for name, value in values.items():
            if getattr(widget.layout, name) != value:
                setattr(widget.layout, name, value)


def _tabs(layout: str) -> str:
    buttons = "".join(
        f"<button type='button' role='tab' aria-selected='{str(name == layout).lower()}' "
        f"data-bfcviz='{escape(dumps({'do': 'views', 'views': name}))}'>{escape(text)}</button>"
        for name, text in TABS.items()
    )
    return f"<div role='tablist' aria-label='what is shown below the map'>{buttons}</div>"
