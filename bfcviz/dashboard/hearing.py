"""What a person did in the page, done to the Inspector."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bfcviz.dashboard.layouts import NARROW_PX, names_in
from bfcviz.dashboard.page import Message
from bfcviz.dashboard.windows import whole, zoomed
from bfcviz.figures.look import Selected

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


def _theme(view: "Inspector", message: Message) -> None:
    view.page_theme = "dark" if message["theme"] == "dark" else "light"


def _width(view: "Inspector", message: Message) -> None:
    view.narrow = float(message["width"]) < NARROW_PX


def _key(view: "Inspector", message: Message) -> None:
    if message["key"] in KEYS:
        view.act(KEYS[message["key"]])


def _click(view: "Inspector", message: Message) -> None:
    panel = view.view.panel_at(int(message["panel"]))
    if panel is None or message["x"] is None or message["y"] is None:
        return
    chosen, step = view.study.chosen_at(panel.name, float(message["x"]), float(message["y"]), view.look)
    view.go(step, replace(view.look, selected=chosen))


def _zoom(view: "Inspector", message: Message) -> None:
    names = list(view.view.panels)
    ranges = {names[int(number) - 1]: shown for number, shown in message["ranges"].items()}
    shown = {name: panel for name, panel in view.view.panels.items() if name in names_in(view.views)}
    view.look = zoomed(view.look, shown, ranges, view.study.clock(view.look))


def _whole(view: "Inspector", message: Message) -> None:
    panel = view.view.panel_at(int(message["panel"]))
    if panel is not None:
        view.look = whole(view.look, panel.name)


def _step(view: "Inspector", message: Message) -> None:
    view.step = int(message["step"])


def _select(view: "Inspector", message: Message) -> None:
    born = message.get("born")
    view.look = replace(
        view.look, selected=Selected(int(message["address"]), None if born is None else int(born))
    )


def _sort(view: "Inspector", message: Message) -> None:
    view.chunk_list.sort(str(message["by"]))


def _scroll(view: "Inspector", message: Message) -> None:
    scrolled = view.chunk_list if message["list"] == "chunks" else view.event_list
    scrolled.scroll(int(message["rows"]))


DEEDS: Final[Mapping[str, Callable[["Inspector", Message], None]]] = {
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
