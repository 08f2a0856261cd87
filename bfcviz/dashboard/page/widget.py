"""The page's side of a dashboard: an unseen widget that tells Python what a person did in the page.

It is told one thing only, the next image of a map that moves: to draw the figure anew for it, ten times a second,
would take the browser a whole core.

What it sends, as the `do` of each message:

=========  ===========================================================================================
`theme`    the page is `light` or `dark`
`width`    pixels the dashboard has
`key`      a key was pressed, and no text field or slider wanted it
`click`    into the figure: which panel (from 1), and where on its axes
`whole`    a double click on a panel: show all of it
`zoom`     the ranges of all axes, after a zoom or pan has come to rest
others     as the element says that was clicked, in its `data-bfcviz` attribute; `scroll` from lists
=========  ===========================================================================================
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anywidget

# Its text: of a path anywidget would keep every widget that was ever made, to tell each when the file changes.
_SCRIPT: Final = Path(__file__).with_name("page.js").read_text(encoding="utf-8")

# JupyterLab and ipywidgets take the mark of the focus away from menus, sliders and boxes; the class stands there
# three times to count for more than theirs.
_STYLE: Final = """
.bfcviz-dashboard:focus-visible, .bfcviz-dashboard.bfcviz-dashboard.bfcviz-dashboard :focus-visible {
  outline: 2px solid var(--jp-brand-color1, #1976d2) !important; outline-offset: 1px;
}
.bfcviz-dashboard tr:focus-visible { outline-offset: -2px }
"""

Message = Mapping[str, Any]


class PageSide(anywidget.AnyWidget):
    """Lies, without height, above the figure and is as wide as it should be."""

    _esm = _SCRIPT
    _css = _STYLE

    def __init__(self, hear: Callable[[Message], None]) -> None:
        super().__init__()
        self.layout.height = "0px"
        self.on_msg(lambda _, message, __: hear(message))

    def show_image(self, number: int, subplot: str, source: str) -> None:
        """Puts another image in the place of the one that trace `number` has on the axes of `subplot`, as `x2y2`."""
        self.send({"do": "image", "number": number, "subplot": subplot, "source": source})
