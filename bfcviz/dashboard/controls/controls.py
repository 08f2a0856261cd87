"""The buttons, sliders and menus of a dashboard; their actions are arguments."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import ipywidgets as widgets
import traitlets

from bfcviz.dashboard.controls.moves import MOVES, TARGETS
from bfcviz.dashboard.panels.layouts import LAYOUTS
from bfcviz.figures.style.colouring import COLOURINGS
from bfcviz.units import format_bytes, parse_bytes

SPEEDS: Final = {
    "1 event per frame": 1,
    "10 events per frame": 10,
    "100 events per frame": 100,
    "1,000 events per frame": 1000,
}
_SIZES: Final = [("none", 0)] + [
    (format_bytes(256 << power).replace(".0", ""), 256 << power) for power in range(29)
]

_ICONS: Final[dict[str, tuple[str, str]]] = {
    "first": ("fast-backward", ""),
    "back": ("step-backward", ""),
    "play": ("play", ""),
    "forward": ("step-forward", ""),
    "last": ("fast-forward", ""),
    "previous": ("chevron-left", ""),
    "next": ("chevron-right", ""),
    "oom": ("exclamation-triangle", "next OOM"),
    "worst": ("puzzle-piece", "worst fragmentation"),
    "peak": ("line-chart", "peak"),
    "whole": ("expand", "show all"),
    "follow": ("arrow-circle-right", "follow"),
}
_TOOLTIPS: Final = MOVES | {
    "play": "play or pause (space)",
    "whole": "show all: undo every zoom (Z)",
    "follow": "follow: show the newest event (F)",
}


class Controls:
    """The rows of controls above the figure.

    Args:
        pools: names of the trace's heaps; with several, a menu is shown.
        act: called with the name of the clicked button.

    Attributes:
        buttons: by name.
        slider, step: two inputs for the step shown.
        speed, target, pool, views, colour, axis, wanted: the menus.
    """

    def __init__(self, pools: Sequence[str], act: Callable[[str], None]) -> None:
        self._act = act
        self.buttons = {name: self._button(name) for name in _ICONS}
        self.buttons["follow"].layout.display = "none"
        self.slider = widgets.IntSlider(
            description="step",
            tooltip="events applied so far",
            readout=False,
            layout={"flex": "1 1 auto", "min_width": "160px"},
            style={"description_width": "34px"},
        )
        self.slider.add_class("bfcviz-slider")
        self.step = widgets.BoundedIntText(tooltip="go to this step", layout={"width": "96px"})
        self.of = widgets.HTML(layout={"margin": "0 4px 0 2px", "flex": "0 0 auto"})
        self.speed = _menu("", SPEEDS, "speed of play", 190)
        self.target = _menu("go to", TARGETS, "the events that next and previous go to", 190)
        self.pool = _menu("pool", [], "the heap shown", 240)
        self.show_pools(pools)
        self.views = _menu("views", list(LAYOUTS), "the panels shown", 150)
        self.colour = _menu(
            "colour by",
            [(title, name) for name, title in COLOURINGS.items()],
            "the property that sets the colour of chunks",
            210,
        )
        self.axis = _menu("over", ["step", "time"], "the x axis of the timelines", 110)
        self.wanted = widgets.SelectionSlider(
            options=_SIZES,
            description="request of",
            tooltip="show the share of free memory in chunks too small for a request of this size",
            continuous_update=False,
            layout={"width": "260px"},
            style={"description_width": "70px"},
        )

    def rows(self) -> list[widgets.Widget]:
        """The widgets, row by row."""
        step_buttons = [self.buttons[name] for name in ("first", "back", "play", "forward", "last")]
        jump_buttons = [self.buttons[name] for name in ("previous", "next", "oom", "worst", "peak")]
        return [
            _row(
                [
                    *step_buttons,
                    self.speed,
                    self.slider,
                    self.step,
                    self.of,
                    self.buttons["follow"],
                    self.pool,
                ]
            ),
            _row([self.target, *jump_buttons]),
            _row([self.views, self.colour, self.axis, self.wanted, self.buttons["whole"]]),
        ]

    def show_pools(self, pools: Sequence[str]) -> None:
        """Fill the menu of heaps and choose the first; hide the menu if there is only one."""
        self.pool.options = [(name, number) for number, name in enumerate(pools)]
        self.pool.layout.display = None if len(pools) > 1 else "none"

    def show_range(self, first: int, last: int, step: int) -> None:
        """Show the range of steps, and the step shown."""
        for widget in (self.slider, self.step):
            if (widget.min, widget.max) != (first, last):
                # The value stays inside the range at each change: else the slider moves it, as if the user had.
                widget.min, widget.max = min(first, widget.min), max(last, widget.max)
                widget.value = step
                widget.min, widget.max = first, last
            if widget.disabled != (first == last):
                widget.disabled = first == last
        text = f"<span>of {last:,}</span>"
        if self.of.value != text:
            self.of.value = text

    def show_step(self, step: int) -> None:
        """Show the step."""
        self.slider.value = self.step.value = step

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
        menus = [self.speed, self.target, self.pool, self.views, self.colour, self.axis, self.wanted]
        return [*self.buttons.values(), self.slider, self.step, *menus]

    def _button(self, name: str) -> widgets.Button:
        icon, text = _ICONS[name]
        button = widgets.Button(
            icon=icon, description=text, tooltip=_TOOLTIPS[name], layout={"width": "auto" if text else "38px"}
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


def nearest_size(num_bytes: int) -> int:
    """The largest size of the `wanted` slider that is at most `num_bytes`."""
    return max(size for _, size in _SIZES if size <= num_bytes)


def bind(
    view: widgets.Widget, name: str, widget: widgets.Widget, shown: Callable[[Any], Any] = lambda value: value
) -> None:
    """Connect a menu to a trait of a view; `shown` maps the trait's value to the menu's."""

    def to_widget(_: object = None) -> None:
        widget.value = shown(getattr(view, name))

    def to_trait(change: dict[str, Any]) -> None:
        if shown(getattr(view, name)) != change["new"]:
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
    return widgets.HBox(children, layout={"flex_flow": "row wrap", "align_items": "center"})
