"""The toolbar of a dashboard: one row, and a second one for what is needed less; its actions are arguments."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import ipywidgets as widgets
import traitlets

from bfcviz.dashboard.table import FilterBox, row, size
from bfcviz.errors import BfcvizError
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.filters import found_by
from bfcviz.model.find_steps import next_step, peak, previous_step, worst_fragmentation
from bfcviz.periodic import Periodic
from bfcviz.units import counted, exact_size_text, format_bytes, parse_bytes

# ------------------------------------------------------------------------------
# The step that each button and key of a dashboard goes to; uses no widgets.

ANY: Final = "any event"
OF_CHUNK: Final = "event of this chunk"
OF_LABEL: Final = "event of this label"
TARGETS: Final = (ANY, *(kind.name for kind in Kind), OF_CHUNK, OF_LABEL)
"""The events that next and previous can go to."""

MOVES: Final = {
    "first": "first: before the first event that is kept (Home)",
    "back": "back: undo one event (left arrow)",
    "forward": "forward: apply one event (right arrow)",
    "last": "last: after the last event (End)",
    "previous": 'previous event of the kind chosen in "go to" (Shift N)',
    "next": 'next event of the kind chosen in "go to" (N)',
    "oom": "go to the next failed request (O)",
    "worst": "go to the highest external fragmentation (W)",
    "peak": "go to the most bytes in use (K)",
}
"""Name of a move -> its tooltip."""


@dataclass(frozen=True)
class Position:
    """Where a button of the toolbar moves from: the step shown, and what is selected."""

    trace: Trace  # the trace shown
    pool: int  # number of its heap
    step: int  # the step shown
    target: str = ANY  # one of `TARGETS`
    handle: int | None = None  # of the selected chunk; None if no chunk is selected
    label: int | None = None  # of the selected chunk; None if no chunk is selected, or it has no label


def destination(move: str, position: Position) -> int:
    """The step that a move of the toolbar goes to.

    Raises:
        BfcvizError: there is no such step; says why.
    """
    return _MOVES[move](position)


def _toolbar_target_step(position: Position, *, forward: bool) -> int:
    """Where a button goes: the next or previous step of an event of a kind, or of the selected chunk or its label."""
    kinds = [Kind[position.target]] if position.target in Kind.__members__ else list(Kind)
    chunk = _toolbar_selection(position.handle, "chunk") if position.target == OF_CHUNK else None
    label = _toolbar_selection(position.label, "label") if position.target == OF_LABEL else None
    find = next_step if forward else previous_step
    found = find(position.trace, position.step, kinds, position.pool, chunk=chunk, label=label)
    if found is None:
        target = position.target
        which = f"{target} event" if target in Kind.__members__ else target.removeprefix("any ")
        raise BfcvizError(f"there is no {which} {'after' if forward else 'before'} this step")
    return found


def _toolbar_selection(value: int | None, what: str) -> int:
    """The selected chunk or label that a button of the toolbar needs."""
    if value is None:
        raise BfcvizError(f"no {what} is selected: click a chunk in the region map first")
    return value


def _toolbar_adjacent_step(position: Position, *, forward: bool) -> int:
    """The step of the next or previous event of this pool; past the last one, the end of the trace."""
    find = next_step if forward else previous_step
    found = find(position.trace, position.step, list(Kind), position.pool)
    if found is None:
        return len(position.trace) if forward else position.trace.first
    return found


def _toolbar_oom_step(position: Position) -> int:
    found = next_step(position.trace, position.step, [Kind.OOM], position.pool)
    if found is None:
        raise BfcvizError("there is no OOM event after this step")
    return found


_MOVES: Final[dict[str, Callable[[Position], int]]] = {
    "first": lambda position: position.trace.first,
    "back": lambda position: _toolbar_adjacent_step(position, forward=False),
    "forward": lambda position: _toolbar_adjacent_step(position, forward=True),
    "last": lambda position: len(position.trace),
    "previous": lambda position: _toolbar_target_step(position, forward=False),
    "next": lambda position: _toolbar_target_step(position, forward=True),
    "oom": _toolbar_oom_step,
    "worst": lambda position: worst_fragmentation(position.trace, position.pool),
    "peak": lambda position: peak(position.trace, position.pool),
}


# ------------------------------------------------------------------------------
# Player: advances step by step on the kernel's event loop, until the end or a pause.

FRAME_S: Final = 0.2  # seconds between two frames, if drawing one does not take longer

YIELD_S: Final = 0.02
"""Least seconds between two frames in which the kernel handles messages, such as a pause."""


class Player:
    """Plays the steps: calls `advance` repeatedly, until it returns False."""

    def __init__(self, advance: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._advance = advance
        self._periodic = Periodic(self._step, "bfcviz-player", ended=ended)

    @property
    def playing(self) -> bool:
        """Whether the toolbar plays the steps."""
        return self._periodic.running

    def play(self) -> None:
        """Start to play the steps. Does nothing if they play already.

        Raises:
            BfcvizError: no event loop runs in this thread, such as in a script.
        """
        try:
            self._periodic.start_task()
        except RuntimeError:
            raise BfcvizError(
                "play needs a running event loop, such as a notebook's, and this thread has none; set `step` instead"
            ) from None

    def pause(self) -> None:
        """Stop playing before the next step. From any thread."""
        self._periodic.stop()

    def _step(self) -> float | None:
        began = time.monotonic()
        if not self._advance():
            return None
        return max(FRAME_S - (time.monotonic() - began), YIELD_S)


# ------------------------------------------------------------------------------
# The toolbar

SPEEDS: Final = {f"{counted(events, 'event')} per frame": events for events in (1, 10, 100, 1000)}

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
.bfcviz-toolbar .widget-inline-hbox.widget-slider { height: 26px }
.bfcviz-toolbar input:placeholder-shown { text-overflow: ellipsis }
.bfcviz-toolbar .widget-html-content { font-size: 12px; line-height: 26px; white-space: nowrap }
"""
"""A page needs it once."""


class Toolbar:
    """The toolbar of a dashboard.

    Args:
        pools: names of the trace's heaps; with several, a menu is shown.
        colourings: what chunks can be coloured by, name to title.
        act: called with the name of the clicked button.
        ask: called with the bytes of a request, of which the user asks whether it would fit; 0: none.

    Attributes:
        buttons: by name.
        step: the input for the step shown.
        of: the number of steps.
        search: what the views find; `hits` says how much that is.
        more: shows the second row.
        rows: the widgets, row by row.
        speed, target, pool, colour, axis: the menus.
        wanted: the size of a request, as text; `size` is its slider.
    """

    def __init__(
        self,
        pools: Sequence[str],
        colourings: Mapping[str, str],
        act: Callable[[str], None],
        ask: Callable[[int], None],
    ) -> None:
        self._act = act
        self.buttons = {name: self._button(name) for name in _ICONS}
        self.buttons["follow"].layout.display = "none"
        self.step = widgets.BoundedIntText(tooltip="go to this step", layout={"width": "76px"})
        self.of = widgets.HTML(layout={"flex": "0 0 auto"})
        self.speed = _toolbar_menu("play", SPEEDS, "speed of play", 215)
        self.target = _toolbar_menu("go to", TARGETS, "the events that next and previous go to", 195)
        self.pool = _toolbar_menu("", [], "the heap shown", 130)
        self.show_pools(pools)
        self.colour = _toolbar_menu(
            "",
            [(f"colour by {title.split(' (')[0]}", name) for name, title in colourings.items()],
            "the property that sets the colour of chunks",
            148,
        )
        self.axis = _toolbar_menu("over", AXES, "the x axis of the timelines", 125)
        self.search = widgets.Text(
            placeholder=_SEARCHED,
            tooltip="find chunks by a label, a line or file of their stack, a shape or type, an address (0x…), or a "
            "size (>100MiB, <1GiB)",
            continuous_update=False,
            layout={"flex": "1 1 70px", "width": "auto", "min_width": "70px", "max_width": "260px"},
        )
        self.hits = widgets.HTML(layout={"flex": "0 0 auto", "padding": "0 0 0 6px"})
        self.wanted = FilterBox(
            "would it fit?", "show where a request of this size would fit now", "64 MiB", size, self._asked
        )
        self._ask = ask
        self.size = widgets.SelectionSlider(
            options=_SIZES,
            readout=False,
            tooltip="drag a size: show where a request of it would fit now",
            layout={"width": "110px"},
        )
        self.size.observe(self._dragged, "value")
        self.more = widgets.ToggleButton(
            description="more", tooltip="show or hide the second row of controls", layout={"width": "auto"}
        )
        self._rows()
        self.more.observe(lambda _: self._show_more(), "value")

    def _rows(self) -> None:
        def buttons(*names: str) -> list[widgets.Widget]:
            return [self.buttons[name] for name in names]

        steps = [*buttons("first", "back", "play", "forward", "last"), self.step, self.of]
        jumps = buttons("follow", "oom", "worst", "peak")
        shown = [self.pool, self.colour, self.search, self.hits, self.wanted.widget, self.size, self.more]
        main = _toolbar_row([*steps, *jumps, *shown])
        wide = [self.pool, self.colour, self.search, self.wanted.widget, self.more, self.target, self.axis]
        for apart in (*buttons("oom", "worst", "whole"), *wide):
            apart.add_class("bfcviz-apart")
        jumps_to = [self.target, *buttons("previous", "next")]
        second = _toolbar_row([self.speed, *jumps_to, self.axis, *buttons("whole", "everything")])
        second.layout.display = "none"
        self.rows = [main, second]

    def _asked(self) -> None:
        self._ask(self.wanted.value or 0)

    def _dragged(self, change: dict[str, Any]) -> None:
        if _nearest_toolbar_size(self.wanted.value or 0) != change["new"]:  # else the slider follows the box
            self._ask(change["new"])

    def show_wanted(self, num_bytes: int) -> None:
        """Show in the toolbar the size of the request that the views answer; 0: none."""
        if num_bytes != (self.wanted.value or 0):
            self.wanted.box.value = exact_size_text(num_bytes) if num_bytes else ""
        self.size.value = _nearest_toolbar_size(num_bytes)

    def _show_more(self) -> None:
        self.rows[1].layout.display = None if self.more.value else "none"

    def show_pools(self, pools: Sequence[str]) -> None:
        """Fill the menu of heaps; the chosen one stays if it is there. Hide the menu if there is only one."""
        options, chosen = [(name, number) for number, name in enumerate(pools)], self.pool.value
        if chosen is None or chosen >= len(pools):
            self.pool.options = options
        else:
            with self.pool.hold_trait_notifications():  # new options choose the first
                self.pool.options, self.pool.value = options, chosen
        self.pool.layout.display = None if len(pools) > 1 else "none"

    def show_range(self, first: int, last: int, step: int) -> None:
        """Show in the toolbar the range of steps, and the step shown."""
        box = self.step
        if (box.min, box.max) != (first, last):
            # The value stays inside the range at each change: else the box moves it, as if the user had.
            box.min, box.max = min(first, box.min), max(last, box.max)
            box.value = step
            box.min, box.max = first, last
        box.value = step
        box.disabled = first == last
        self.of.value = f"<span>of {last:,}</span>"

    def show_width(self, pixels: int) -> None:
        """Leave out of the toolbar's first row what has no room on a page of this width."""
        is_wide = pixels >= _ROOM_FOR_ALL
        self.size.layout.display = None if is_wide else "none"
        has_examples = pixels >= _ROOM_FOR_EXAMPLES
        self.wanted.box.description = "would it fit?" if is_wide else "fits?" if has_examples else ""
        self.wanted.box.placeholder = "64 MiB" if has_examples else "fits?"
        self.wanted.box.layout.max_width = "150px" if is_wide else "104px" if has_examples else "86px"
        self.step.layout.width, self.colour.layout.width = (
            ("76px", "195px") if is_wide else ("76px", "148px") if has_examples else ("66px", "134px")
        )
        self.search.placeholder = _SEARCHED if has_examples else "search"

    def show_failures(self, *, some: bool) -> None:
        """Show the button that goes to the next failed request only where there are some, or may come."""
        self.buttons["oom"].layout.display = None if some else "none"

    def show_hits(self, text: str) -> None:
        """Show in the toolbar in words what the search finds at this step; empty: nothing is searched."""
        self.hits.value = f"<span role='status'>{escape(text)}</span>" if text else ""

    def show_playing(self, playing: bool) -> None:  # noqa: FBT001  the value to show
        """Show in the toolbar the pause icon while playing, else the play icon."""
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
            self.buttons[name].disabled = not can

    def inputs(self) -> list[widgets.Widget]:
        """Every widget of the toolbar that takes input."""
        menus = [self.speed, self.target, self.pool, self.colour, self.axis]
        boxes = [self.step, self.search, self.wanted.box, self.size]
        return [*self.buttons.values(), *boxes, self.more, *menus]

    def _button(self, name: str) -> widgets.Button:
        icon, text = _ICONS[name]
        layout = {"width": "auto" if text else "30px"}
        button = widgets.Button(icon=icon, description=text, tooltip=_TOOLTIPS[name], layout=layout)
        button.add_class(f"bfcviz-{name}")
        button.on_click(lambda _: self._act(name))
        return button


_SEARCHED: Final = "search: name, 0x…, >1MiB"
_ROOM_FOR_EXAMPLES: Final = 920  # pixels of a page with room for this text in the box
_ROOM_FOR_ALL: Final = 1100  # pixels of a page with room for the slider in the first row

_SIZES: Final = [
    ("no size", 0),
    *((format_bytes(part << power), part << power) for power in range(15, 38) for part in (2, 3)),
]
"""The sizes of the slider, 64 KiB, 96 KiB, 128 KiB, ... 384 GiB: text -> bytes."""


def _nearest_toolbar_size(num_bytes: int) -> int:
    """The size of the toolbar's slider that is the nearest to a request; 0: none."""
    if not num_bytes:
        return 0
    return min((size for _, size in _SIZES if size), key=lambda size: abs(size - num_bytes))


class ToolbarSize(traitlets.Int[int, int | str]):
    """The trait of a size that the toolbar takes: bytes, or text such as `64MiB`."""

    def validate(self, obj: Any, value: Any) -> int:
        """The size in bytes; raises TraitError if it is not a size."""
        if isinstance(value, str):
            try:
                value = parse_bytes(value, self.name or "size")
            except ValueError as error:
                raise traitlets.TraitError(str(error)) from None
        number: int = super().validate(obj, value)
        return number


def bind(view: widgets.Widget, name: str, widget: widgets.Widget) -> None:
    """Connect an input of the toolbar to a trait of a view."""

    def to_widget(_: object = None) -> None:
        widget.value = getattr(view, name)

    def to_trait(change: dict[str, Any]) -> None:
        if getattr(view, name) != change["new"]:
            view.set_trait(name, change["new"])

    to_widget()
    view.observe(to_widget, name)
    widget.observe(to_trait, "value")


def _toolbar_menu(description: str, options: Any, tooltip: str, width: int) -> widgets.Dropdown:
    return widgets.Dropdown(
        options=options,
        description=description,
        tooltip=tooltip,
        layout={"width": f"{width}px"},
        style={"description_width": "auto"},
    )


def _toolbar_row(children: list[Any]) -> widgets.HBox:
    found = row(children)
    found.add_class("bfcviz-toolbar")
    return found


# ------------------------------------------------------------------------------
# Texts of the toolbar: what a search finds, and heaps by name and number.


def search_hits_text(model: Model, search: str | None) -> str:
    """For the toolbar: how many chunks a search finds, and their bytes; empty without a search."""
    if not search:
        return ""
    used = model.in_use()
    found = used[found_by(model.trace.labels, search)(used)]
    if not len(found):
        return "nothing in use at this step"
    size, total = int(found["size"].sum()), int(used["size"].sum())
    return f"{counted(len(found), 'chunk')}, {format_bytes(size)} ({size / total:.0%} of in use)"


def numbered(names: Sequence[str]) -> list[tuple[str, int]]:
    """Names of heaps with their numbers, for a menu; if names repeat, each name includes its number."""
    ambiguous = len(set(names)) < len(names)
    return [(f"{name} ({number})" if ambiguous else name, number) for number, name in enumerate(names)]
