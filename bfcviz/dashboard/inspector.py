"""The Inspector: step through a trace event by event, and see what each event did to the heap."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Final

import ipywidgets as widgets
import traitlets
from IPython.display import HTML

from bfcviz.analysis.what_grew import first_moment
from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.chunk_pane import ChunkList, ChunkPane
from bfcviz.dashboard.event_list import EventList
from bfcviz.dashboard.export_row import ExportRow
from bfcviz.dashboard.figure_widget import FigureView
from bfcviz.dashboard.fit_pane import FitPane
from bfcviz.dashboard.header import Header
from bfcviz.dashboard.holders_pane import GREW, HoldersPane
from bfcviz.dashboard.layouts import EVERYTHING, StageBox, layout_name, layouts, map_pixels, names_in
from bfcviz.dashboard.map_cursor import MapCursor
from bfcviz.dashboard.page_messages import Message, PageMessage, PageWidget
from bfcviz.dashboard.panel_data import PanelData, brushed, whole, zoomed
from bfcviz.dashboard.toolbar import (
    MOVES,
    Player,
    Position,
    Toolbar,
    ToolbarSize,
    bind,
    destination,
    search_hits_text,
)
from bfcviz.errors import BfcvizError
from bfcviz.events.origin import holds_only_states
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace, check_history
from bfcviz.exporters.heap_cards import opening_card
from bfcviz.figures.colouring import COLOURINGS, known_colourings
from bfcviz.figures.export import WIDTH, code_for, code_for_inspector
from bfcviz.figures.panel import Panel, Picture
from bfcviz.figures.text import picture_facts
from bfcviz.figures.view import FIGURES
from bfcviz.figures.view_options import PLAIN, Look, Selected, unmarked, with_step
from bfcviz.model.find_steps import busy_window, events_of, opening, step_of_pool
from bfcviz.model.grouping import HolderChoice
from bfcviz.model.trace_index import index_of
from bfcviz.unwatched import UnwatchedLock, unwatched

if TYPE_CHECKING:
    from bfcviz.dashboard.scrubbing import Scrubbing

_WIDTH_STEP: Final = 40  # pixels: a smaller change of the page's width does not change the drawing


def rounded_width(pixels: float) -> int:
    """The width of a page as an Inspector uses it."""
    return max(int(pixels) // _WIDTH_STEP * _WIDTH_STEP, _WIDTH_STEP)


# ------------------------------------------------------------------------------
# The state of an Inspector: its traits, checked, and a frame that draws all changes made together once.

_FREED: Final = (
    "panel_data",
    "view",
    "stage",
    "below",
    "chunk_list",
    "event_list",
    "_trace",
    "_failed",
    "page",
    "scrubbing",
    "export_row",
    "header",
    "holders",
    "chunk",
    "fit",
    "cursor",
)
"""Attributes that `close` removes: everything that refers to events, figures or tables."""

_SAVED: Final = "Saved with the notebook. Run the cell again for the dashboard with all steps."

_MOST_SAVED: Final = 1_000_000
"""Events of a trace whose first screen a notebook saves: it is drawn in a tenth of a second."""


class InspectorTraits(widgets.VBox):  # type: ignore[misc]
    """A widget with the traits of an Inspector, which documents them. A subclass draws them in `_show`."""

    step = traitlets.Int(0, help="events applied so far")
    pool = traitlets.Int(0, help="the heap shown, an index into the origin's pools")
    theme = traitlets.Enum(["auto", "light", "dark"], "auto")
    views = traitlets.Unicode("active_memory")
    colour = traitlets.Enum(list(COLOURINGS), PLAIN.colour)
    axis = traitlets.Enum(["step", "time", "mark"], "step")
    wanted = ToolbarSize(0, min=0)
    follow = traitlets.Bool(False)  # noqa: FBT003  its initial value
    look = traitlets.Instance(Look, ())
    page_theme = traitlets.Enum(["light", "dark"], "light")
    width = traitlets.Int(help="pixels")

    page_pixels: ClassVar[int] = 1200
    """Pixels that the page has for a dashboard, until it sends how wide the dashboard is."""

    _trace: Trace

    def __init__(self, trace: Trace, **traits: Any) -> None:
        self.lock = UnwatchedLock()  # a kernel with subshells runs callbacks in threads
        self._closed, self._depth, self._changed = False, 0, False
        self._trace, self._last = trace, len(trace)
        super().__init__(**{"_view_count": 0, **traits})

    @traitlets.default("width")
    def _width_at_first(self) -> int:
        return rounded_width(self.page_pixels)

    @property
    def closed(self) -> bool:
        """Whether the Inspector was closed."""
        return self._closed

    def __repr__(self) -> str:
        """What the Inspector shows; that of ipywidgets has all values of all its parts."""
        return f"{type(self).__name__}({str(self._trace.path or '')!r}, step={self.step}, pool={self.pool})"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Beside the widget the first screen, for programs that show a saved notebook without widgets."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)
        is_saved = not self._closed and not self._trace.following
        if is_saved and len(self._trace) <= _MOST_SAVED:
            bundle["text/html"] = f"{opening_card(self._trace).html}<p>{_SAVED}</p>"
        return bundle

    def __getattr__(self, name: str) -> Any:
        if name in _FREED and self.__dict__.get("_closed", False):
            raise BfcvizError(f"this Inspector is closed and has no {name.strip('_')}; make a new one")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Draw all changes of an Inspector made inside once, at the end; other threads wait."""
        with self.lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._changed and not self._depth and not self._closed:
                    self._changed = False
                    self._show()

    def redraw(self, _: object = None) -> None:
        """Draw the Inspector again: a part of its page has changed what it shows."""
        with self._drawing():
            self._changed = True

    def _show(self) -> None:
        """Show the traits everywhere in the Inspector."""
        raise NotImplementedError

    @traitlets.validate("step")
    def _check_step(self, proposal: Any) -> int:
        step, first = int(proposal["value"]), self._trace.first
        if not first <= step <= self._last:
            raise traitlets.TraitError(
                f"there is no step {step:,}: this trace has steps {first:,} to {self._last:,}"
            )
        return step

    @traitlets.validate("views")
    def _check_views(self, proposal: Any) -> str:
        name, known = layout_name(proposal["value"]), layouts()
        if name not in known:
            raise traitlets.TraitError(
                f"there is no view {name[:80]!r}: this dashboard has {', '.join(known)}"
            )
        return name

    @traitlets.validate("colour")
    def _check_colour(self, proposal: Any) -> str:
        name, known = str(proposal["value"]), known_colourings(self._trace)
        if name not in known:
            raise traitlets.TraitError(
                f"chunks cannot be coloured by {name}: this trace does not hold it; choose one of {', '.join(known)}"
            )
        return name

    @traitlets.validate("pool")
    def _check_pool(self, proposal: Any) -> int:
        pool, pools = int(proposal["value"]), len(self._trace.origin.pools)
        if not 0 <= pool < pools:
            raise traitlets.TraitError(f"there is no pool {pool}: this trace has pools 0 to {pools - 1}")
        return pool


# ------------------------------------------------------------------------------
# What the page asks of an Inspector: the handler of each of its messages.

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


def _handle_width(inspector: "Inspector", message: PageMessage) -> None:
    inspector.width = rounded_width(message.number("width"))


def _handle_key(inspector: "Inspector", message: PageMessage) -> None:
    if (key := message.text("key")) not in KEYS:
        return
    if message.has("held"):
        inspector.hold(KEYS[key])
    else:
        inspector.act(KEYS[key])


def _handle_click(inspector: "Inspector", message: PageMessage) -> None:
    panel = inspector.view.panel_at(message.whole("panel"))
    if panel is None or not (message.has("x") and message.has("y")):
        return
    x, y = message.number("x"), message.number("y")
    selected, step = inspector.panel_data.chosen_at(panel.name, x, y, inspector.look)
    inspector.go(step, replace(inspector.look, selected=selected))


def _handle_cursor(inspector: "Inspector", message: PageMessage) -> None:
    inspector.look = inspector.cursor.move(inspector.panel_data.model, inspector.look, message.text("way"))


def _handle_zoom(inspector: "Inspector", message: PageMessage) -> None:
    names = list(inspector.view.panels)
    ranges = {
        names[number - 1]: axes for number, axes in message.ranges().items() if 0 < number <= len(names)
    }
    shown = {
        name: panel for name, panel in inspector.view.panels.items() if name in names_in(inspector.views)
    }
    inspector.look = zoomed(inspector.look, shown, ranges, inspector.panel_data.clock(inspector.look))


def _handle_whole(inspector: "Inspector", message: PageMessage) -> None:
    panel = inspector.view.panel_at(message.whole("panel"))
    if panel is not None:
        inspector.look = whole(inspector.look, panel.name)


def _handle_select(inspector: "Inspector", message: PageMessage) -> None:
    born = message.whole("born") if message.has("born") else None
    inspector.look = replace(inspector.look, selected=Selected(message.whole("address"), born))


def _handle_sort(inspector: "Inspector", message: PageMessage) -> None:
    inspector.chunk_list.sort(message.text("by"))


def _handle_brush(inspector: "Inspector", message: PageMessage) -> None:
    ends = (message.number("from"), message.number("to")) if message.has("from") else None
    inspector.look = brushed(inspector.look, ends, inspector.panel_data.clock(inspector.look))
    inspector.moments = None if ends is None else inspector.look.steps
    if inspector.look.since is not None:
        inspector.compare_moments()


def _handle_details(inspector: "Inspector", _: PageMessage) -> None:
    inspector.header.toggle_details()


def _handle_hover(inspector: "Inspector", message: PageMessage) -> None:
    inspector.look = replace(
        inspector.look, hovered=_message_holder(inspector, message) if message.has("row") else None
    )


def _handle_holder(inspector: "Inspector", message: PageMessage) -> None:
    choice = _message_holder(inspector, message) if message.has("row") else None
    inspector.look = replace(inspector.look, holder=None if choice == inspector.look.holder else choice)


def _handle_search(inspector: "Inspector", message: PageMessage) -> None:
    inspector.look = replace(inspector.look, search=message.text("text") if message.has("text") else None)


def _message_holder(inspector: "Inspector", message: PageMessage) -> HolderChoice | None:
    return inspector.holders.choice(message.whole("row"))


def _handle_holders_sort(inspector: "Inspector", message: PageMessage) -> None:
    inspector.holders.sort(message.text("by"))


def _handle_holders_by(inspector: "Inspector", message: PageMessage) -> None:
    """The message to the Inspector to find holders by another property."""
    inspector.holders.find_by(message.text("by"))
    inspector.show_growth()


def _handle_holders_as(inspector: "Inspector", message: PageMessage) -> None:
    kind = message.text("as")
    inspector.holders.show_as(kind)
    if kind == GREW:
        inspector.compare_moments()
    else:
        inspector.look = replace(inspector.look, since=None)


def _handle_scroll(inspector: "Inspector", message: PageMessage) -> None:
    scrolled = inspector.chunk_list if message.text("list") == "chunks" else inspector.event_list
    scrolled.scroll(message.whole("top"))


def _handle_texts(inspector: "Inspector", _: PageMessage) -> None:
    for part in widget_lifetime.family(inspector):
        if isinstance(part, widgets.HTML):
            part.send_state("value")


def _handle_scrub(inspector: "Inspector", message: PageMessage) -> None:
    if inspector.scrubbing is None:
        from bfcviz.dashboard.scrubbing import Scrubbing  # noqa: PLC0415  what it imports no first screen needs

        inspector.scrubbing = Scrubbing(inspector.page.send)
    inspector.scrubbing.begin(inspector.panel_data, inspector.look, script=message.has("script"))


def _handle_message(inspector: "Inspector", content: Message) -> None:
    """Run the Inspector's handler of a message of the page.

    Raises:
        BfcvizError: the message is invalid, or the action failed.
        TraitError: the message asks for a step that does not exist.
    """
    message = PageMessage(content)
    if (do := message.text("do")) not in _HANDLERS:
        raise BfcvizError(f"unknown page message {do[:80]!r}: this dashboard knows {', '.join(_HANDLERS)}")
    _HANDLERS[do](inspector, message)


_HANDLERS: Final[Mapping[str, Callable[["Inspector", PageMessage], None]]] = {
    "theme": lambda inspector, message: inspector.set_trait(
        "page_theme", "dark" if message.text("theme") == "dark" else "light"
    ),
    "width": _handle_width,
    "key": _handle_key,
    "release": lambda inspector, _: inspector.release(),
    "click": _handle_click,
    "cursor": _handle_cursor,
    "zoom": _handle_zoom,
    "whole": _handle_whole,
    "step": lambda inspector, message: inspector.set_trait("step", message.whole("step")),
    "select": _handle_select,
    "sort": _handle_sort,
    "scroll": _handle_scroll,
    "scrub": _handle_scrub,
    "texts": _handle_texts,
    "views": lambda inspector, message: inspector.set_trait("views", message.text("views")),
    "brush": _handle_brush,
    "details": _handle_details,
    "hover": _handle_hover,
    "holder": _handle_holder,
    "search": _handle_search,
    "ask": lambda inspector, message: inspector.set_trait(
        "wanted", message.whole("size") if message.has("size") else 0
    ),
    "holders_sort": _handle_holders_sort,
    "holders_by": _handle_holders_by,
    "holders_as": _handle_holders_as,
}
"""`do` of a message -> its handler."""


# ------------------------------------------------------------------------------
# The Inspector

_MOST_FRAMED: Final = 500_000
"""Events of a page in a frame: marimo shows no output of more than 8 MB."""

_FRAME: Final = (
    '<div><iframe class="bfcviz-page" title="bfcviz" sandbox="allow-scripts allow-downloads" allow="clipboard-write" '
    'style="width:100%;height:1000px;border:0" srcdoc="{}"></iframe></div>'
)

_ELSEWHERE: Final = (
    "This place shows no widgets of Jupyter. <code>bfcviz view FILE</code> has the dashboard, "
    "<code>bfcviz report FILE --interactive</code> a page with all steps."
)


def use_page_width(pixels: int) -> None:
    """Draw Inspectors, those that exist and later ones, for a page of this width, until it sends their own."""
    InspectorTraits.page_pixels = pixels
    for each in [each for each in widget_lifetime.roots if isinstance(each, InspectorTraits)]:
        each.width = rounded_width(pixels)


class Inspector(InspectorTraits):
    """A view of one heap of a trace at one step, with controls to move it.

    `close()` frees its memory. Python also frees it when the page shows no view of it (its cell ran again, or its
    output was cleared) and no variable refers to it. IPython's `Out` is such a variable for the last line of a
    cell: use `display(inspector)` instead. If the page does not report removed views, only `close()` frees it.

    Args:
        trace: the trace to step through, which may grow; or the path of a file that `bfcviz.open` reads.
        step: the first step shown; None: the first failed request, else the peak; with `follow`, the newest.
        pool: number of the heap in the trace; None: the one of the first failed request, else the first.
        theme: `light`, `dark`, or `auto`: the theme of the page.
        follow: show the newest event as the trace grows.
        traits: values of other traits, listed below.

    Attributes:
        step: events applied so far, trace.first..len(trace); set it to move, observe or link it to follow.
        pool: the heap shown.
        theme: `auto`, `light` or `dark`.
        views: what is shown below the region map, one of `bfcviz.dashboard.layouts.layouts()`: at first the
            `active_memory`, of a file without a history the `free_chunks`.
        colour: the property that sets the colour of chunks, one of `bfcviz.figures.colouring.COLOURINGS`.
        axis: the x axis of the timelines: `step` (events applied), `time`, or `mark` (the steps of the program).
        wanted: size of a request, in bytes or as text; draws the share of free memory it cannot use. 0: none.
        follow: whether to show the newest event as the trace grows; a move by the user ends it.
        look: the other view options, such as the zoom and the selected chunk.
        moments: the two steps that the user brushed on the time strip; None: the whole trace.
        page_theme, width: theme and width of the page, sent by it.
        lock: hold it to change anything from another thread.
        panel_data, view, stage, header, holders, chunk, fit, cursor, toolbar, chunk_list, event_list, export_row,
            below, page, player: its parts.

    Raises:
        BfcvizError: `trace` is neither a trace nor a path, or the file cannot be read.
        TraitError: there is no such step or pool.
    """

    @unwatched()
    def __init__(
        self,
        trace: Trace | str | os.PathLike[str],
        step: int | None = None,
        *,
        pool: int | None = None,
        theme: str = "auto",
        follow: bool = False,
        **traits: Any,
    ) -> None:
        trace = _trace_to_inspect(trace)
        self._user_widgets = [each for each in traits.values() if isinstance(each, widgets.Widget)]
        self._auto_move = self._ended = False
        self._is_fed = follow  # new events come: by a LiveDashboard, or by another caller of `trace_grew`
        self._held = False  # a key is held: of the figure only the map follows
        self.moments: tuple[int, int] | None = None
        self.scrubbing: Scrubbing | None = None
        # The heap, events read, the last failure.
        self._failed: tuple[tuple[Trace, int], int, int] | None = None
        # Set while a frame is drawn that changes only the map's image in the figure.
        self._map_image: str | None = None
        heaps = [each.name for each in trace.origin.pools]
        self.toolbar = Toolbar(heaps, known_colourings(trace), self.act, self._ask)
        self.player = Player(self._advance, lambda: self.toolbar.show_playing(playing=False))
        self.fit, self.cursor = FitPane(), MapCursor()
        self.header, self.holders, self.chunk = Header(), HoldersPane(self.compare_moments), ChunkPane()
        names = {"everything shown": EVERYTHING} | {kind.title: name for name, kind in FIGURES.items()}
        self.export_row = ExportRow(
            names, self.draw_for_export, self._code, self._page_without_kernel, EVERYTHING
        )
        super().__init__(trace, **traits)
        widget_lifetime.free_unseen(self)
        try:
            self.theme = theme
            if "views" not in traits and holds_only_states(trace.origin.details):
                self.views = "free_chunks"  # the steps only build the state: over them is nothing to see
            self._begin(step, pool, follow=follow)
            self._build()
        except BaseException:
            self.close()
            raise

    def _begin(self, step: int | None, pool: int | None, *, follow: bool) -> None:
        """Choose the Inspector's pool and step: where nothing is asked for, what the reader most likely looks for."""
        self.pool = pool or 0  # checked before anything searches it
        index_of(self._trace, self.pool)  # what follows searches the index
        if step is None and not follow:
            self.pool, step = opening(self._trace, pool)
        self._open()
        self.step = step_of_pool(self._trace, self.pool, self._last) if step is None else step
        self.follow = follow
        window = None if follow or self._trace.following else busy_window(self._trace, self.pool)
        if self.look.steps is None and window is not None and window[0] <= self.step <= window[1]:
            self.look = replace(self.look, steps=window)

    def _build(self) -> None:
        self.add_class("bfcviz-dashboard")
        self.panel_data.model.seek(self.step)
        self._update_look()
        self.view = FigureView(self._panels(), self.views, self.look, self.width, step=self.step)
        self._lay_out()
        self.stage.show(self.view.stage, self.views)
        self._show_beside()
        self._listen()

    def _open(self) -> None:
        self.panel_data = PanelData(self._trace, self.pool)
        self.chunk_list = ChunkList(self._trace, self.pool)
        self.event_list = EventList(self._trace, self.pool)

    def _lay_out(self) -> None:
        panes = [self.holders.widget, self.chunk.widget]
        self.stage = StageBox(self.view.widget, panes, self._trace, self.pool)
        self.below = widgets.VBox(self._tables())
        self.page = PageWidget(self.receive)
        above = [self.header.widget, *self.toolbar.rows, self.fit.widget]
        self.children = [*above, self.page, self.cursor.widget, self.stage.widget, self.below]

    def _tables(self) -> list[widgets.Widget]:
        return [self.chunk_list.widget, self.event_list.widget, self.export_row.row]

    # -- closing ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the Inspector: remove it from the page and free its memory. It cannot be used again."""
        if self.__dict__.get("_closed", True):  # also if __init__ raised
            return
        self._closed = True
        self.player.pause()
        widget_lifetime.close(self, *self._parts(), without=self._user_widgets)
        self.set_trait("children", ())
        for name in _FREED:
            self.__dict__.pop(name, None)

    def _parts(self) -> list[widgets.Widget]:
        """All widgets of the Inspector's page, also if only some were made."""
        names = ("chunk_list", "event_list", "view", "header", "holders", "chunk", "fit", "cursor")
        parts = [self.__dict__[name].widget for name in names if name in self.__dict__]
        return [*self.toolbar.inputs(), *self.toolbar.rows, self.export_row.row, *parts]

    # -- drawing ---------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """Show `step` and `look` everywhere in the Inspector."""
        model = self.panel_data.model
        model.seek(self.step)
        # The figure first, since the page takes longest for it.
        if self._map_image is None:
            self.view.show(self._panels(), self.views, self.look, self.width, step=self.step)
            self.stage.show(self.view.stage, self.views)
        else:
            self.view.show_image("region_map", self._map_image, step=self.step)
        self._show_beside()

    def _show_beside(self) -> None:
        """Show `step` and `look` in everything of the Inspector but the figure."""
        model = self.panel_data.model
        self._show_toolbar()
        self.fit.show(model, self.look)
        self.cursor.show(model, self.look)
        self.header.show(model, self.look, self.panel_data.search(), has_ended=self._ended)
        if self._map_image is None and not self._held:  # else rows change too often to be read or clicked
            at_step = self.step if self.panel_data.moving else None
            self.holders.show(model, self.look, self.panel_data.colours(self.look), at_step)
            self.show_growth()
            self.chunk.show(model, self.look)
            if self.scrubbing is not None:
                self.scrubbing.show(self.panel_data, self.look)
        self._show_table()

    def show_growth(self) -> None:
        """Say in the Inspector's header what grew: as the pane of holders shows it, else between brushed moments."""
        brushed_now = self.moments if self.moments == self.look.steps else None
        self.header.show_growth(self.holders.growth(brushed_now), is_shown=self.look.since is not None)

    def _panels(self) -> dict[str, Panel]:
        """The panels of the Inspector's layout, names in the map where these fit; while a key is held only the map."""
        look = replace(self.look, map_pixels=map_pixels(self.width))
        if self._held:
            return self.panel_data.held_map(look)
        return self.panel_data.panels(names_in(self.views), look)

    def _show_toolbar(self) -> None:
        first, toolbar = self._trace.first, self.toolbar
        toolbar.show_range(first, self._last, self.step)
        growing = self._is_fed and self._trace.following and not self._ended
        toolbar.show_following(self.follow, growing=growing)
        toolbar.show_wanted(self.wanted)
        toolbar.show_width(self.width)
        failed = self._last_failed_step()
        toolbar.show_failures(some=failed > 0 or (self._trace.following and not self._ended))
        toolbar.search.value = self.look.search or ""
        toolbar.show_hits(search_hits_text(self.panel_data.model, self.look.search))
        ahead, behind = self.step < self._last, self.step > first
        enabled = {"first": behind, "back": behind, "play": ahead, "forward": ahead, "last": ahead}
        toolbar.set_enabled(enabled | {"oom": self.step < failed})

    def _last_failed_step(self) -> int:
        """The step just after the last failed request so far; 0: none failed. It reads only what is new of a trace."""
        trace, key = self._trace, (self._trace, self.pool)
        read, step = trace.first, 0
        if self._failed is not None and self._failed[0] == key:
            _, read, step = self._failed
        if read < len(trace):
            found = events_of(trace, [Kind.OOM], self.pool, max(read, trace.first))
            self._failed = key, len(trace), int(found["seq"][-1]) + 1 if len(found) else step
            step = self._failed[2]
        return step

    def _show_table(self) -> None:
        """Show the table of the open tab; the others are updated when their tab is opened."""
        tables = dict(zip(("chunk_table", "event_table", "export"), self._tables(), strict=True))
        for name, table in tables.items():
            table.layout.display = None if name == self.views else "none"
        if self.views == "chunk_table":
            self.chunk_list.show(self.panel_data.model, self.look)
        elif self.views == "event_table":
            self.event_list.show(self.step, self.look)

    def _update_look(self, _: object = None) -> None:
        """Copy the traits of the menus into `look`."""
        theme = self.page_theme if self.theme == "auto" else self.theme
        options: dict[str, Any] = {"theme": theme, "colour": self.colour, "axis": self.axis}
        self.look = replace(self.look, **options, wanted=self.wanted or None)

    def draw_for_export(self, name: str) -> tuple[Picture, str]:
        """The figure to export of this name at the Inspector's step, and its file name without suffix."""
        with self.lock:
            model = self.panel_data.model
            if name == EVERYTHING:
                look = replace(self.look, map_pixels=map_pixels(WIDTH, alone=True))
                figure = self.view.as_picture(self.views, look, self.panel_data.map_alone(look))
                return figure.with_facts(picture_facts(model)), f"bfcviz-step{self.step}"
            figure = FIGURES[name].draw(model, self.look)
        return figure, f"bfcviz-{name}-step{self.step}"

    def _code(self, name: str) -> str:
        """The Python that draws the figure of this name at the Inspector's step."""
        path = self._trace.path
        if name == EVERYTHING:
            return code_for_inspector(path, self.step, self.pool, self.look)
        return code_for(name, path, self.step, self.pool, self.look)

    def _display_(self) -> HTML:
        """What marimo shows, which has no ipywidgets: the page without a kernel; else the first screen."""
        if not self._trace.following:
            with suppress(BfcvizError):  # addresses that a page cannot compute
                return HTML(_FRAME.format(escape(self._page_without_kernel(_MOST_FRAMED))))
        return HTML(f"{opening_card(self._trace).html}<p>{_ELSEWHERE}</p>")

    def _page_without_kernel(self, most: int | None = None) -> str:
        """The page of the heap that is shown, as HTML; `most`: events of it, None: as many as it may have."""
        from bfcviz.exporters.interactive_page import MOST_EVENTS, interactive_html  # noqa: PLC0415
        from bfcviz.exporters.report import report_of  # noqa: PLC0415  only a page needs it

        return interactive_html(report_of(self._trace, pool=self.pool), most=most or MOST_EVENTS)

    # -- moving ----------------------------------------------------------------------------------------------

    def go(self, step: int | None = None, look: Look | None = None) -> None:
        """Let the Inspector go to another step, another look, or both, and draw once."""
        with self._drawing():
            self.look = self.look if look is None else look
            self.step = self.step if step is None else step

    def compare_moments(self, first: int | None = None, last: int | None = None) -> None:
        """Let the Inspector go to the step `last`, and show what grew since the step `first`.

        Args:
            first: None: both steps are those that the user brushed, else where the history begins and the step shown.
            last: None: the step shown.

        Raises:
            TraceError: the trace has no history, or no such steps in this order.
        """
        if first is None:
            begin = min(first_moment(self._trace, self.pool), self.step)
            first, last = self.moments or (begin, self.step)
        last = self.step if last is None else last
        check_history(self._trace, "changes between two steps")
        self.go(last, replace(self.look, since=first))

    def trace_grew(self, *, moving: bool = False) -> None:
        """Let the Inspector take in new events; show the newest one if `follow` is set. From any thread.

        Args:
            moving: more events will come soon: skip what is drawn only for an idle heap; `draw_moving_map` may follow.
        """
        with self._drawing():
            self._is_fed = True
            self.panel_data.moving = moving and self.follow
            self._changed = True
            self._take_new_events()

    def draw_moving_map(self) -> bool:
        """Draw the newest event in the Inspector's map, header and open table; False: the whole frame must be drawn.

        Of the figure only the image of the map changes. The other panels, and the list of holders, say at which step
        they were drawn. From any thread, after `trace_grew(moving=True)`.
        """
        with self.lock:
            self._map_image = None if self._closed else self.panel_data.moving_map_image()
            if self._map_image is None:
                return False
            try:
                with self._drawing():
                    self._take_new_events()
            finally:
                self._map_image = None
            return True

    def show_end(self) -> None:
        """Show in the Inspector that no more events come: there is nothing left to follow. From any thread."""
        self._ended = True
        self.redraw()

    def _take_new_events(self) -> None:
        """Let the Inspector go to the newest event, if it is followed."""
        self._last = len(self._trace)
        names = [each.name for each in self._trace.origin.pools]
        if names != [name for name, _ in self.toolbar.pool.options]:  # a program made another heap
            self.toolbar.show_pools(names)
        if self._map_image is None or self.views == "event_table":
            self.event_list.trace_grew()
        self._auto_move = True  # not a move by the user: it does not end `follow`
        try:
            self.step = self._last if self.follow else max(self.step, self._trace.first)
        finally:
            self._auto_move = False

    def _listen(self) -> None:
        controls = self.toolbar
        bind(self, "pool", controls.pool)
        bind(self, "colour", controls.colour)
        bind(self, "axis", controls.axis)
        controls.step.observe(lambda change: self.set_trait("step", change["new"]), "value")
        controls.search.observe(self._search, "value")
        self.observe(self._moved, "step")
        self.observe(self._change_pool, "pool")
        self.observe(self._update_look, ["theme", "page_theme", "colour", "axis", "wanted"])
        self.observe(self.redraw, ["look", "views", "width"])
        self.observe(self._followed, "follow")

    def _ask(self, num_bytes: int) -> None:
        self.wanted = num_bytes

    def _search(self, change: dict[str, Any]) -> None:
        self.look = replace(self.look, search=change["new"].strip() or None)

    def _moved(self, _: object) -> None:
        with self._drawing():
            self._changed = True
            if not self._auto_move:
                self.header.hide_error()
                self.follow = self.panel_data.moving = False
                self.look = with_step(self.look, self.step, self._last)

    def _followed(self, change: dict[str, Any]) -> None:
        if change["new"]:
            self.trace_grew()
        else:
            self.panel_data.moving = False
            self.redraw()

    def change_trace(self, trace: Trace) -> None:
        """Show another trace in the Inspector, at its newest step if `follow` is set, else at its first."""
        with self._drawing():
            self._trace, self._last, self._ended = trace, len(trace), False
            self.toolbar.show_pools([each.name for each in trace.origin.pools])
            self.pool = 0
            self._change_pool()
            self._auto_move = True
            try:
                self.step = self._last if self.follow else trace.first
            finally:
                self._auto_move = False

    def _change_pool(self, _: object = None) -> None:
        with self._drawing():
            self._changed = True
            before = [self.chunk_list.widget, self.event_list.widget]
            self._open()
            self.below.children = self._tables()
            widget_lifetime.close(*before)
            self.look = replace(whole(self.look), selected=None, hovered=None, holder=None, since=None)
            self.moments = None
            if (at := step_of_pool(self._trace, self.pool, self.step)) != self.step:
                self.step = at

    def act(self, name: str) -> None:
        """Run the action of the Inspector's button `name`; on failure, show the error in the header.

        Args:
            name: one of `bfcviz.dashboard.toolbar.MOVES`, or `play`, `whole`, `follow`, `everything`,
                `unselect`.
        """
        with self._showing_errors():
            self.release()
            self._act(name)

    def _act(self, name: str) -> None:
        if name in MOVES:
            self.step = destination(name, self._position())
        elif name == "play":
            self._toggle_play()
        elif name == "follow":
            self.follow = self._is_fed and not self.follow
        elif name == "everything":
            self.views = "active_memory" if self.views == EVERYTHING else EVERYTHING
        else:
            self.look = whole(self.look) if name == "whole" else unmarked(self.look)

    def hold(self, name: str) -> None:
        """Run an Inspector's action once more, its key is held: until `release`, only the map and the header follow."""
        with self._showing_errors():
            self._held = name in MOVES
            self._act(name)

    def release(self) -> None:
        """Draw everything of the Inspector that did not follow while a key was held."""
        if self._held:
            self._held = False
            self.redraw()

    @contextmanager
    def _showing_errors(self) -> Iterator[None]:
        """Show errors raised inside in the Inspector's header, in place of the last one."""
        self.header.hide_error()
        try:
            with self._drawing():
                yield
        except (BfcvizError, traitlets.TraitError) as error:
            self.header.show_error(str(error))

    def receive(self, message: Message) -> None:
        """Let the Inspector handle a message from the page; on failure, show the error in the header."""
        with self._showing_errors():
            _handle_message(self, message)

    def _position(self) -> Position:
        chosen, handle, label = self.look.selected, None, None
        if chosen is not None:
            handle, label = self.panel_data.handle_and_label(chosen)
        return Position(self._trace, self.pool, self.step, self.toolbar.target.value, handle, label)

    def _toggle_play(self) -> None:
        if self.player.playing:
            self.player.pause()
        else:
            self.player.play()
            self.toolbar.show_playing(playing=True)

    def _advance(self) -> bool:
        self.step = min(self.step + self.toolbar.speed.value, self._last)
        return self.step < self._last


def _trace_to_inspect(source: Any) -> Trace:
    """The trace, or that of the file at a path."""
    if isinstance(source, str | os.PathLike):
        from bfcviz.importers.open_trace import open_source  # noqa: PLC0415  slow to import, and often not needed

        return open_source(source)
    if not isinstance(source, Trace):
        raise BfcvizError(
            f"an Inspector shows a Trace or the path of a file, not {source!r}: show a live heap with "
            "bfcviz.LiveDashboard(heap)"
        )
    return source
