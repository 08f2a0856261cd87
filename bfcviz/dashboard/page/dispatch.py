"""Dispatch page messages to the Inspector."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bfcviz.dashboard.page.messages import PageMessage
from bfcviz.dashboard.page.widget import Message
from bfcviz.dashboard.panels.layouts import names_in
from bfcviz.dashboard.panels.zoom_windows import whole, zoomed
from bfcviz.errors import BfcvizError
from bfcviz.figures.style.view_options import Selected

if TYPE_CHECKING:
    from bfcviz.dashboard.inspector import Inspector

KEYS: Final = {
    "ArrowLeft": "back",
    "ArrowRight": "forward",
    "Home": "first",
    "End": "last",
    " ": "play",
    "n": "next",
    "N": "previous",
    "o": "oom",
    "w": "worst",
    "k": "peak",
    "f": "follow",
    "z": "whole",
    "Escape": "unselect",
}
"""Key -> the action it starts, as `Inspector.act` names it."""

_MAX_ROWS: Final = 1 << 53
_WIDTH_STEP: Final = 40  # pixels: a smaller change of the page's width does not change the drawing


def _theme(view: "Inspector", message: PageMessage) -> None:
    view.page_theme = "dark" if message.text("theme") == "dark" else "light"


def _width(view: "Inspector", message: PageMessage) -> None:
    view.width = max(int(message.number("width")) // _WIDTH_STEP * _WIDTH_STEP, _WIDTH_STEP)


def _key(view: "Inspector", message: PageMessage) -> None:
    if (key := message.text("key")) in KEYS:
        view.act(KEYS[key])


def _click(view: "Inspector", message: PageMessage) -> None:
    panel = view.view.panel_at(message.whole("panel"))
    if panel is None or not (message.has("x") and message.has("y")):
        return
    x, y = message.number("x"), message.number("y")
    selected, step = view.panel_data.chosen_at(panel.name, x, y, view.look)
    view.go(step, replace(view.look, selected=selected))


def _zoom(view: "Inspector", message: PageMessage) -> None:
    names = list(view.view.panels)
    ranges = {
        names[number - 1]: axes for number, axes in message.ranges().items() if 0 < number <= len(names)
    }
    shown = {name: panel for name, panel in view.view.panels.items() if name in names_in(view.views)}
    view.look = zoomed(view.look, shown, ranges, view.panel_data.clock(view.look))


def _whole(view: "Inspector", message: PageMessage) -> None:
    panel = view.view.panel_at(message.whole("panel"))
    if panel is not None:
        view.look = whole(view.look, panel.name)


def _step(view: "Inspector", message: PageMessage) -> None:
    view.step = message.whole("step")


def _select(view: "Inspector", message: PageMessage) -> None:
    born = message.whole("born") if message.has("born") else None
    view.look = replace(view.look, selected=Selected(message.whole("address"), born))


def _sort(view: "Inspector", message: PageMessage) -> None:
    view.chunk_list.sort(message.text("by"))


def _scroll(view: "Inspector", message: PageMessage) -> None:
    scrolled = view.chunk_list if message.text("list") == "chunks" else view.event_list
    scrolled.scroll(message.whole("rows", least=-_MAX_ROWS))


def dispatch(view: "Inspector", content: Message) -> None:
    """Run the handler of a message.

    Raises:
        BfcvizError: the message is invalid, or the action failed.
        TraitError: the message asks for a step that does not exist.
    """
    message = PageMessage(content)
    if (do := message.text("do")) not in HANDLERS:
        raise BfcvizError(f"unknown page message {do[:80]!r}: this dashboard knows {', '.join(HANDLERS)}")
    HANDLERS[do](view, message)


HANDLERS: Final[Mapping[str, Callable[["Inspector", PageMessage], None]]] = {
    "theme": _theme,
    "width": _width,
    "key": _key,
    "click": _click,
    "zoom": _zoom,
    "whole": _whole,
    "step": _step,
    "select": _select,
    "sort": _sort,
    "scroll": _scroll,
}
"""`do` of a message -> its handler."""
