"""The page's side of a dashboard: an invisible widget that sends user actions from the page to Python.

Python sends it nothing: anywidget drops messages to a widget that took a slow page more than two seconds to start.

The `do` of the messages that it sends:

=========  ===========================================================================================
`theme`    the page is `light` or `dark`
`width`    width of the dashboard, in pixels
`key`      a key was pressed, outside of text fields and sliders
`click`    a click into the figure: number of the panel (from 1), and the position on its axes
`whole`    a double click on a panel: show its whole range
`zoom`     the ranges of all axes, after a zoom or pan has ended
`brush`    `from` and `to` on the strip's axis: the window of steps; without them: all steps
`hover`    the number of the row of holders that the mouse points at; without it: none
`scroll`   the user scrolled a list: its name, and the row at its upper edge
others     the `data-bfcviz` attribute of the clicked element
=========  ===========================================================================================
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anywidget

from bfcviz.dashboard import controls, layouts

# The text, not the path: for a path, anywidget keeps every widget alive to notify it when the file changes.
_SCRIPT: Final = "\n".join(
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("page.js", "scrolling.js")
)

# JupyterLab and ipywidgets remove the focus outline of menus, sliders and boxes. The class is repeated three times so
# that this rule has a higher specificity than theirs.
_STYLE: Final = """
.bfcviz-dashboard:focus-visible, .bfcviz-dashboard.bfcviz-dashboard.bfcviz-dashboard :focus-visible {
  outline: 2px solid var(--jp-brand-color1, #1976d2) !important; outline-offset: 1px;
}
.bfcviz-dashboard tr:focus-visible { outline-offset: -2px }
"""

Message = Mapping[str, Any]


class PageWidget(anywidget.AnyWidget):
    """A widget of height 0 above the figure; its width is the width available to the figure.

    Args:
        receive: called with each message from the page.
    """

    _esm = _SCRIPT
    _css = _STYLE + controls.STYLE + layouts.STYLE

    def __init__(self, receive: Callable[[Message], None]) -> None:
        super().__init__()
        self.layout.height = "0px"
        self.on_msg(lambda _, message, __: receive(message))
