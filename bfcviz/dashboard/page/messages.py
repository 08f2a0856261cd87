"""Validate page messages, which any script in a page can send, and dispatch them to the Inspector."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bfcviz.dashboard.page.widget import Message
from bfcviz.dashboard.panels.layouts import LAYOUTS, names_in
from bfcviz.dashboard.panels.zoom_windows import brushed, whole, zoomed
from bfcviz.errors import BfcvizError
from bfcviz.figures.style.view_options import Selected
from bfcviz.model.holders.holder_choice import HolderChoice

if TYPE_CHECKING:
    from bfcviz.dashboard.inspector import Inspector

_MAX_NUMBER: Final = 1e21
"""Larger than any address, time or step in any unit; an axis never shows a larger number."""

_MAX_LENGTH: Final = 80  # characters, of a number sent as text and of a message quoted in an error

Range = tuple[float, float]


class PageMessage:
    """One message: its fields by name, each checked for the requested type.

    Raises:
        BfcvizError: from every method, if the field is missing or has another type.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        if not isinstance(content, Mapping):
            raise self._invalid("is not a mapping")

    def has(self, name: str) -> bool:
        """Whether the field exists and is not null."""
        return self._content.get(name) is not None

    def text(self, name: str) -> str:
        """A text."""
        value = self._content.get(name)
        if not isinstance(value, str):
            raise self._invalid(f"has no text {name!r}")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self._content.get(name)
        if not _is_number(value):
            raise self._invalid(f"has no number {name!r}")
        return float(value)

    def whole(self, name: str, least: int = 0) -> int:
        """A whole number, `least`..2^64-1. It may be sent as text: JavaScript's numbers are exact only to 2^53."""
        value = self._content.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < _MAX_LENGTH:
            value = int(value)
        if type(value) is not int or not least <= value < 1 << 64:
            raise self._invalid(f"has no valid whole number {name!r}")
        return value

    def ranges(self) -> dict[int, dict[str, Range]]:
        """Number of a panel -> the ranges of its axes `x` and `y`. Skips panels without ranges, such as hidden ones."""
        ranges = self._content.get("ranges")
        if not isinstance(ranges, Mapping):
            raise self._invalid("has no ranges")
        found: dict[int, dict[str, Range]] = {}
        for number, axes in ranges.items():
            known = isinstance(axes, Mapping) and {name: _range(axes.get(name)) for name in ("x", "y")}
            if known and all(known.values()) and str(number).isdecimal() and len(str(number)) < _MAX_LENGTH:
                found[int(number)] = {name: ends for name, ends in known.items() if ends is not None}
        return found

    def _invalid(self, reason: str) -> BfcvizError:
        content = repr(self._content)
        content = content if len(content) <= _MAX_LENGTH else content[: _MAX_LENGTH - 1] + "…"
        return BfcvizError(f"invalid page message: {content} {reason}; nothing was changed")


def _range(ends: Any) -> Range | None:
    if not isinstance(ends, list | tuple) or len(ends) != 2 or not all(map(_is_number, ends)):
        return None
    return float(ends[0]), float(ends[1])


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and -_MAX_NUMBER < value < _MAX_NUMBER
    )


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


def _views(view: "Inspector", message: PageMessage) -> None:
    if (name := message.text("views")) not in LAYOUTS:
        raise BfcvizError(f"there is no view {name[:80]!r}: this dashboard has {', '.join(LAYOUTS)}")
    view.views = name


def _brush(view: "Inspector", message: PageMessage) -> None:
    ends = (message.number("from"), message.number("to")) if message.has("from") else None
    view.look = brushed(view.look, ends, view.panel_data.clock(view.look))


def _details(view: "Inspector", _: PageMessage) -> None:
    view.header.toggle_details()


def _hover(view: "Inspector", message: PageMessage) -> None:
    view.look = replace(view.look, hovered=_holder_of(view, message) if message.has("row") else None)


def _holder(view: "Inspector", message: PageMessage) -> None:
    choice = _holder_of(view, message) if message.has("row") else None
    view.look = replace(view.look, holder=None if choice == view.look.holder else choice)


def _search(view: "Inspector", message: PageMessage) -> None:
    view.look = replace(view.look, search=message.text("text") if message.has("text") else None)


def _holder_of(view: "Inspector", message: PageMessage) -> HolderChoice | None:
    return view.holders.choice(message.whole("row"))


def _holders_sort(view: "Inspector", message: PageMessage) -> None:
    view.holders.sort(message.text("by"))


def _holders_by(view: "Inspector", message: PageMessage) -> None:
    view.holders.find_by(message.text("by"))


def _holders_as(view: "Inspector", message: PageMessage) -> None:
    view.holders.show_as(message.text("as"))


def _scroll(view: "Inspector", message: PageMessage) -> None:
    scrolled = view.chunk_list if message.text("list") == "chunks" else view.event_list
    scrolled.scroll(message.whole("top"))


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
    "views": _views,
    "brush": _brush,
    "details": _details,
    "hover": _hover,
    "holder": _holder,
    "search": _search,
    "holders_sort": _holders_sort,
    "holders_by": _holders_by,
    "holders_as": _holders_as,
}
"""`do` of a message -> its handler."""
