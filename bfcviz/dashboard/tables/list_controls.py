"""Controls of the lists: text boxes that filter, and the box that the page scrolls."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final, Generic, TypeVar

import ipywidgets as widgets

from bfcviz.dashboard.tables.table import STYLE
from bfcviz.figures.style.text import harmless
from bfcviz.units import parse_bytes

T = TypeVar("T")

_MAX_SIZE: Final = (1 << 64) - 1


class FilterBox(Generic[T]):
    """A text box and, beside it, the error if its text is invalid.

    Args:
        description: text in front of the box.
        tooltip: full description; also its name for a screen reader.
        placeholder: an example of the text.
        parse: converts text to a value; raises ValueError or OverflowError.
        changed: called after the value changed.

    Attributes:
        value: the last valid value; None: no filter.
    """

    def __init__(
        self,
        description: str,
        tooltip: str,
        placeholder: str,
        parse: Callable[[str], T],
        changed: Callable[[], None],
    ) -> None:
        self._parse, self._changed = parse, changed
        self.value: T | None = None
        self.box = widgets.Text(
            description=description,
            tooltip=tooltip,
            placeholder=placeholder,
            continuous_update=False,  # on Enter, or when the box loses the focus
            layout={"width": "auto", "flex": "1 1 60px", "max_width": "150px"},
            style={"description_width": "initial"},
        )
        self.error = widgets.HTML()
        self.widget = widgets.HBox([self.box, self.error], layout={"align_items": "center"})
        self.box.observe(self._read, "value")

    def _read(self, change: dict[str, Any]) -> None:
        text = change["new"].strip()
        try:
            value = self._parse(text) if text else None
        except (ValueError, OverflowError) as error:
            self.error.value = f"<span class='bfcviz-wrong' role='alert'>{escape(str(error))}</span>"
            return
        self.error.value = ""
        if value != self.value:
            self.value = value
            self._changed()


def size(text: str) -> int:
    """A size in bytes; capped at 2^64 - 1."""
    return min(parse_bytes(text), _MAX_SIZE)


def whole_number(text: str) -> int:
    """A whole number, such as a thread's.

    Raises:
        ValueError: the text is not one.
    """
    if not text.isdecimal():
        raise ValueError(f"not a whole number: {text!r}; write digits, such as 12")
    return int(text)


class FilterControls:
    """The filters of both lists: a label, a range of sizes, a thread.

    Args:
        what: `events` or `chunks`, in tooltips.
        changed: called after a filter changed.

    Attributes:
        inputs: their widgets.
    """

    def __init__(self, what: str, changed: Callable[[], None]) -> None:
        about = (
            f"{what} whose label or its details contain this text; 0x...: whose memory contains this address"
        )
        self.text = FilterBox("label", about, "conv, or 0x7f…", str, changed)
        self.least = FilterBox("at least", f"{what} of at least this size", "64 KiB", size, changed)
        self.most = FilterBox("at most", f"{what} of at most this size", "1 MiB", size, changed)
        self.thread = FilterBox(
            "thread", f"{what} of the thread with this number", "0", whole_number, changed
        )
        self._all = (self.text, self.least, self.most, self.thread)
        self.inputs = [each.widget for each in self._all]

    def clear(self) -> None:
        """Clear all filters."""
        for each in self._all:
            each.box.value = ""

    def values(self) -> dict[str, Any]:
        """The values, as keyword arguments of `Filter`."""
        return {
            "text": self.text.value or "",
            "least_size": self.least.value,
            "most_size": self.most.value,
            "thread": self.thread.value,
        }


def row(children: Sequence[widgets.Widget]) -> widgets.HBox:
    """Widgets side by side; they wrap if the page is too narrow."""
    return widgets.HBox(children, layout={"flex_flow": "row wrap", "align_items": "center"})


def show_all(tooltip: str, clear: Callable[[], None]) -> widgets.Button:
    """The button that clears all filters of a list."""
    button = widgets.Button(description="show all", tooltip=tooltip, layout={"width": "auto"})
    button.on_click(lambda _: clear())
    return button


def list_box(
    css_class: str, controls: Sequence[widgets.Widget], status: widgets.HTML, page: widgets.HTML
) -> widgets.VBox:
    """A list and its controls, from top to bottom, with the style of its table; the page scrolls the list."""
    rows = widgets.Box([page])
    rows.add_class("bfcviz-rows")
    box = widgets.VBox([widgets.HTML(STYLE, layout={"display": "none"}), *controls, status, rows])
    box.add_class(css_class)
    return box


def status_html(sentence: str, links: str = "", *, alert: bool = False) -> str:
    """HTML of a line above a table, and of links in it; a screen reader reads it when it changes."""
    css, role = ("bfcviz-wrong", "alert") if alert else ("bfcviz-count", "status")
    text = harmless(sentence, _LONGEST_SENTENCE)
    return f"<div class='{css}' role='{role}' aria-live='polite'>{text}{links}</div>"


_LONGEST_SENTENCE: Final = 400
