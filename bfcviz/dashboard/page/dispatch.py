"""What a person did in the page, done to the Inspector."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bfcviz.dashboard.page.messages import Said
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
"""Key -> what it does."""

_MOST_ROWS: Final = 1 << 53
_GRAIN: Final = 40  # pixels: a page that is a little wider is drawn no other way


def _theme(view: "Inspector", said: Said) -> None:
    view.page_theme = "dark" if said.text("theme") == "dark" else "light"


def _width(view: "Inspector", said: Said) -> None:
    view.width = max(int(said.number("width")) // _GRAIN * _GRAIN, _GRAIN)


def _key(view: "Inspector", said: Said) -> None:
    if (key := said.text("key")) in KEYS:
        view.act(KEYS[key])


def _click(view: "Inspector", said: Said) -> None:
    panel = view.view.panel_at(said.whole("panel"))
    if panel is None or not (said.has("x") and said.has("y")):
        return
    chosen, step = view.study.chosen_at(panel.name, said.number("x"), said.number("y"), view.look)
    view.go(step, replace(view.look, selected=chosen))


def _zoom(view: "Inspector", said: Said) -> None:
    names = list(view.view.panels)
    ranges = {names[number - 1]: axes for number, axes in said.ranges().items() if 0 < number <= len(names)}
    shown = {name: panel for name, panel in view.view.panels.items() if name in names_in(view.views)}
    view.look = zoomed(view.look, shown, ranges, view.study.clock(view.look))


def _whole(view: "Inspector", said: Said) -> None:
    panel = view.view.panel_at(said.whole("panel"))
    if panel is not None:
        view.look = whole(view.look, panel.name)


def _step(view: "Inspector", said: Said) -> None:
    view.step = said.whole("step")


def _select(view: "Inspector", said: Said) -> None:
    born = said.whole("born") if said.has("born") else None
    view.look = replace(view.look, selected=Selected(said.whole("address"), born))


def _sort(view: "Inspector", said: Said) -> None:
    view.chunk_list.sort(said.text("by"))


def _scroll(view: "Inspector", said: Said) -> None:
    scrolled = view.chunk_list if said.text("list") == "chunks" else view.event_list
    scrolled.scroll(said.whole("rows", least=-_MOST_ROWS))


def hear(view: "Inspector", message: Message) -> None:
    """Does what a message asks for.

    Raises:
        BfcvizError: it cannot be understood, or not be done.
        TraitError: it asks for a step that is not there.
    """
    said = Said(message)
    if (do := said.text("do")) not in DEEDS:
        raise BfcvizError(f"the page asked for {do[:80]!r}; this dashboard knows {', '.join(DEEDS)}")
    DEEDS[do](view, said)


DEEDS: Final[Mapping[str, Callable[["Inspector", Said], None]]] = {
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
"""What a message asks for, its `do` -> how it is done."""
