"""The buttons, the slider and the menus of the Inspector; what they do is handed in."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import ipywidgets as widgets

SPEEDS: Final = {
    "1 event a tick": 1,
    "10 events a tick": 10,
    "100 events a tick": 100,
    "1,000 events a tick": 1000,
}


class Controls:
    """The rows above and below the picture.

    Args:
        last: the last step.
        pools: names of the trace's heaps; a menu appears where there are several.
        act: called with the name of the button that was clicked.
    """

    def __init__(self, last: int, pools: Sequence[str], act: Callable[[str], None]) -> None:
        self._act = act
        self.buttons: dict[str, widgets.Button] = {}
        self.slider = widgets.IntSlider(
            min=0,
            max=last,
            description="step",
            tooltip="events applied so far",
            readout=False,
            disabled=last == 0,
            layout={"flex": "1 1 auto", "min_width": "160px"},
            style={"description_width": "34px"},
        )
        self.step = widgets.BoundedIntText(
            min=0, max=last, tooltip="go to this step", disabled=last == 0, layout={"width": "90px"}
        )
        self.of = widgets.HTML(
            f"<span>of {last:,}</span>", layout={"margin": "0 4px 0 2px", "flex": "0 0 auto"}
        )
        self.speed = widgets.Dropdown(
            options=SPEEDS, value=1, tooltip="speed of play", layout={"width": "142px"}
        )
        self.pool = widgets.Dropdown(
            options=[(name, number) for number, name in enumerate(pools)],
            value=0,
            description="pool",
            layout={"width": "240px", "display": None if len(pools) > 1 else "none"},
            style={"description_width": "34px"},
        )

    def rows(self) -> list[widgets.Widget]:
        """The widgets, row by row."""
        walk = [self._button(name, *how) for name, how in _WALK.items()]
        jump = [self._button(name, *how) for name, how in _JUMPS.items()]
        return [
            _row([*walk, self.speed, self.slider, self.step, self.of, self.pool]),
            _row(jump),
        ]

    def show_playing(self, playing: bool) -> None:  # noqa: FBT001  it is what it shows
        """Turns the play button into a pause button and back."""
        button = self.buttons["play"]
        button.icon = "pause" if playing else "play"
        button.tooltip = "pause" if playing else "play"

    def set_enabled(self, enabled: Mapping[str, bool]) -> None:
        """Greys out the buttons that lead nowhere from here."""
        for name, can in enabled.items():
            if self.buttons[name].disabled == can:
                self.buttons[name].disabled = not can

    def _button(self, name: str, icon: str, text: str, tooltip: str) -> widgets.Button:
        button = widgets.Button(
            icon=icon, description=text, tooltip=tooltip, layout={"width": "auto" if text else "38px"}
        )
        button.add_class(f"bfcviz-{name}")
        button.on_click(lambda _: self._act(name))
        self.buttons[name] = button
        return button


_WALK: Final[dict[str, tuple[str, str, str]]] = {
    "first": ("fast-backward", "", "first: before the first event"),
    "back": ("step-backward", "", "back: undo one event"),
    "play": ("play", "", "play"),
    "forward": ("step-forward", "", "forward: apply one event"),
    "last": ("fast-forward", "", "last: after the last event"),
}

_JUMPS: Final[dict[str, tuple[str, str, str]]] = {
    "split": ("scissors", "next split", "go to the next event that cuts a chunk in two"),
    "merge": ("compress", "next merge", "go to the next event that joins two free chunks"),
    "extend": ("plus-square", "next extend", "go to the next region from the sub-allocator"),
    "oom": ("exclamation-triangle", "next OOM", "go to the next request that failed"),
    "worst": ("puzzle-piece", "worst fragmentation", "go to the highest external fragmentation"),
    "peak": ("line-chart", "peak", "go to the most bytes in use"),
}


def _row(children: list[Any]) -> widgets.HBox:
    return widgets.HBox(children, layout={"flex_flow": "row wrap", "align_items": "center"})
