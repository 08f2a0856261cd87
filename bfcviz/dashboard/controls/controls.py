"""The toolbar of a dashboard: one row, and a second one for what is needed less; its actions are arguments."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import ipywidgets as widgets
import traitlets

from bfcviz.dashboard.controls.moves import MOVES, TARGETS
from bfcviz.dashboard.tables.list_controls import FilterBox, size
from bfcviz.figures.style.colouring import COLOURINGS
from bfcviz.units import format_bytes, parse_bytes

SPEEDS: Final = {
    "1 event per frame": 1,
    "10 events per frame": 10,
    "100 events per frame": 100,
    "1,000 events per frame": 1000,
}

AXES: Final = {"events": "step", "seconds": "time", "steps": "mark"}
"""Text in the menu -> the x axis of the timelines."""

_ICONS: Final[dict[str, tuple[str, str]]] = {
    "first": ("fast-backward", ""),
    "back": ("step-backward", ""),
    "play": ("play", ""),
    "forward": ("step-forward", ""),
    "last": ("fast-forward", ""),
    "oom": ("", "next OOM"),
    "worst": ("", "worst"),
    "peak": ("", "peak"),
    "follow": ("arrow-circle-right", "follow"),
    "previous": ("chevron-left", ""),
    "next": ("chevron-right", ""),
    "whole": ("expand", "show all"),
    "everything": ("th-large", ""),
}
_TOOLTIPS: Final = MOVES | {
    "play": "play or pause (space)",
    "whole": "show all: undo every zoom (Z)",
    "follow": "follow: show the newest event (F)",
    "everything": "show every view at once, or one again",
}

STYLE: Final = """
.bfcviz-toolbar { margin: 0 8px 0 0; gap: 2px }
.bfcviz-toolbar > * { margin: 0 !important }
.bfcviz-toolbar .bfcviz-apart { margin-left: 8px !important }
.bfcviz-toolbar button { padding: 0 7px; font-size: 12px; line-height: 26px; height: 26px }
.bfcviz-toolbar .widget-text input, .bfcviz-toolbar .widget-dropdown select, .bfcviz-toolbar .widget-inline-hbox {
  height: 26px; line-height: 26px; font-size: 12px;
}
.bfcviz-toolbar .widget-html-content { font-size: 12px; line-height: 26px; white-space: nowrap }
"""
"""A page needs it once."""


class Controls:
    """The toolbar.

    Args:
        pools: names of the trace's heaps; with several, a menu is shown.
        act: called with the name of the clicked button.
        ask: called with the bytes of a request, of which the user asks whether it would fit; 0: none.

    Attributes:
        buttons: by name.
        step: the input for the step shown.
        of: the number of steps.
        search: the text of labels that the views mark.
        more: shows the second row.
        rows: the widgets, row by row.
        speed, target, pool, colour, axis: the menus.
        wanted: the size of a request.
    """

    def __init__(self, pools: Sequence[str], act: Callable[[str], None], ask: Callable[[int], None]) -> None:
        self._act = act
        self.buttons = {name: self._button(name) for name in _ICONS}
        self.buttons["follow"].layout.display = "none"
        self.step = widgets.BoundedIntText(tooltip="go to this step", layout={"width": "76px"})
        self.of = widgets.HTML(layout={"flex": "0 0 auto"})
        self.speed = _menu("play", SPEEDS, "speed of play", 170)
        self.target = _menu("go to", TARGETS, "the events that next and previous go to", 150)
        self.pool = _menu("", [], "the heap shown", 130)
        self.show_pools(pools)
        self.colour = _menu(
            "",
            [(f"colour by {title.split(' (')[0]}", name) for name, title in COLOURINGS.items()],
            "the property that sets the colour of chunks",
            148,
        )
        self.axis = _menu("over", AXES, "the x axis of the timelines", 112)
        self.search = widgets.Text(
            placeholder="search labels",
            tooltip="mark the chunks whose label contains this text",
            continuous_update=False,
            layout={"flex": "1 1 100px", "width": "auto", "min_width": "90px", "max_width": "260px"},
        )
        self.wanted = FilterBox(
            "would it fit?", "show where a request of this size would fit now", "64 MiB", size, self._asked
        )
        self._ask = ask
        self.more = widgets.ToggleButton(
            description="more", tooltip="show or hide the second row of controls", layout={"width": "auto"}
        )
        self._rows()
        self.more.observe(lambda _: self._show_more(), "value")

    def _rows(self) -> None:
        def buttons(*names: str) -> list[widgets.Widget]:
            return [self.buttons[name] for name in names]

        for apart in (self.buttons["oom"], self.pool, self.colour, self.search, self.more):
            apart.add_class("bfcviz-apart")
        steps = [*buttons("first", "back", "play", "forward", "last"), self.step, self.of]
        jumps = buttons("follow", "oom", "worst", "peak")
        main = _row([*steps, *jumps, self.pool, self.colour, self.search, self.more])
        for apart in (self.target, self.axis, self.wanted.widget, self.buttons["whole"]):
            apart.add_class("bfcviz-apart")
        jumps_to = [self.target, *buttons("previous", "next")]
        second = _row([self.speed, *jumps_to, self.axis, self.wanted.widget, *buttons("whole", "everything")])
        second.layout.display = "none"
        self.rows = [main, second]

    def _asked(self) -> None:
        self._ask(self.wanted.value or 0)

    def show_wanted(self, num_bytes: int) -> None:
        """Show the size of the request that the views answer; 0: none."""
        if num_bytes != (self.wanted.value or 0):
            self.wanted.box.value = _size_text(num_bytes) if num_bytes else ""

    def _show_more(self) -> None:
        self.rows[1].layout.display = None if self.more.value else "none"

    def show_pools(self, pools: Sequence[str]) -> None:
        """Fill the menu of heaps and choose the first; hide the menu if there is only one."""
        self.pool.options = [(name, number) for number, name in enumerate(pools)]
        self.pool.layout.display = None if len(pools) > 1 else "none"

    def show_range(self, first: int, last: int, step: int) -> None:
        """Show the range of steps, and the step shown."""
        box = self.step
        if (box.min, box.max) != (first, last):
            # The value stays inside the range at each change: else the box moves it, as if the user had.
            box.min, box.max = min(first, box.min), max(last, box.max)
            box.value = step
            box.min, box.max = first, last
        if box.disabled != (first == last):
            box.disabled = first == last
        text = f"<span>of {last:,}</span>"
        if self.of.value != text:
            self.of.value = text

    def show_step(self, step: int) -> None:
        """Show the step."""
        self.step.value = step

    def show_playing(self, playing: bool) -> None:  # noqa: FBT001  the value to show
        """Show the pause icon while playing, else the play icon."""
        self.buttons["play"].icon = "pause" if playing else "play"

    def show_following(self, following: bool, *, growing: bool) -> None:  # noqa: FBT001
        """Show the follow button while the trace grows, highlighted while it is followed."""
        button = self.buttons["follow"]
        button.layout.display = None if growing else "none"
        button.button_style = "info" if following else ""
        button.description = "following" if following else "follow"

    def set_enabled(self, enabled: Mapping[str, bool]) -> None:
        """Enable or disable buttons by name."""
        for name, can in enabled.items():
            if self.buttons[name].disabled == can:
                self.buttons[name].disabled = not can

    def inputs(self) -> list[widgets.Widget]:
        """Every widget that takes input."""
        menus = [self.speed, self.target, self.pool, self.colour, self.axis]
        return [*self.buttons.values(), self.step, self.search, self.wanted.box, self.more, *menus]

    def _button(self, name: str) -> widgets.Button:
        icon, text = _ICONS[name]
        button = widgets.Button(
            icon=icon,
            description=text,
            tooltip=_TOOLTIPS[name],
            layout={"width": "auto" if text else "30px"},
        )
        button.add_class(f"bfcviz-{name}")
        button.on_click(lambda _: self._act(name))
        return button


class Size(traitlets.Int[int, int | str]):
    """Bytes, or text such as `64MiB`."""

    def validate(self, obj: Any, value: Any) -> int:
        """The size in bytes; raises TraitError if it is not a size."""
        if isinstance(value, str):
            try:
                value = parse_bytes(value, self.name or "size")
            except ValueError as error:
                raise traitlets.TraitError(str(error)) from None
        number: int = super().validate(obj, value)
        return number


def _size_text(num_bytes: int) -> str:
    """Text that stands for exactly this size."""
    rounded = format_bytes(num_bytes)
    return rounded if parse_bytes(rounded) == num_bytes else f"{num_bytes} B"


def bind(view: widgets.Widget, name: str, widget: widgets.Widget) -> None:
    """Connect an input to a trait of a view."""

    def to_widget(_: object = None) -> None:
        widget.value = getattr(view, name)

    def to_trait(change: dict[str, Any]) -> None:
        if getattr(view, name) != change["new"]:
            view.set_trait(name, change["new"])

    to_widget()
    view.observe(to_widget, name)
    widget.observe(to_trait, "value")


def _menu(description: str, options: Any, tooltip: str, width: int) -> widgets.Dropdown:
    return widgets.Dropdown(
        options=options,
        description=description,
        tooltip=tooltip,
        layout={"width": f"{width}px"},
        style={"description_width": "auto"},
    )


def _row(children: list[Any]) -> widgets.HBox:
    row = widgets.HBox(children, layout={"flex_flow": "row wrap", "align_items": "center"})
    row.add_class("bfcviz-toolbar")
    return row
