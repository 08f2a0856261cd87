"""The Inspector: step through a trace event by event, and see what each event did to the heap."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import ipywidgets as widgets
import traitlets

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.background.player import Player
from bfcviz.dashboard.controls.controls import Controls, bind
from bfcviz.dashboard.controls.export_row import ExportRow
from bfcviz.dashboard.controls.moves import MOVES, Position, destination, step_of_pool
from bfcviz.dashboard.header.header import Header
from bfcviz.dashboard.page.messages import dispatch
from bfcviz.dashboard.page.widget import Message, PageWidget
from bfcviz.dashboard.panels.figure_view import FigureView
from bfcviz.dashboard.panels.layouts import map_pixels, names_in
from bfcviz.dashboard.panels.panel_data import PanelData
from bfcviz.dashboard.panels.stage_box import StageBox
from bfcviz.dashboard.panels.zoom_windows import unmarked, whole, with_step
from bfcviz.dashboard.side.chunk_pane import ChunkPane
from bfcviz.dashboard.side.holders_pane import HoldersPane
from bfcviz.dashboard.tables.chunk_list import ChunkList
from bfcviz.dashboard.tables.event_list import EventList
from bfcviz.dashboard.view_state import ViewState
from bfcviz.errors import BfcvizError
from bfcviz.events.trace import Trace
from bfcviz.figures import FIGURES, Picture
from bfcviz.figures.facts import facts_of
from bfcviz.figures.panel import Panel
from bfcviz.figures.python_code import code_for, code_for_inspector
from bfcviz.figures.region_map.highlights import last_event
from bfcviz.figures.style.view_options import Look
from bfcviz.model.explain.failure.first_failure import opening
from bfcviz.model.timelines.busy_window import busy_window

_ALL: Final = "everything"


class Inspector(ViewState):
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
        views: what is shown below the region map, one of `LAYOUTS`, such as `memory`.
        colour: the property that sets the colour of chunks, one of `bfcviz.figures.style.colouring.COLOURINGS`.
        axis: the x axis of the timelines: `step` (events applied), `time`, or `mark` (the steps of the program).
        wanted: size of a request, in bytes or as text; draws the share of free memory it cannot use. 0: none.
        follow: whether to show the newest event as the trace grows; a move by the user ends it.
        look: the other view options, such as the zoom and the selected chunk.
        page_theme, width: theme and width of the page, sent by it.
        lock: hold it to change anything from another thread.
        panel_data, view, stage, header, holders, chunk, controls, chunk_list, event_list, export_row, below, page,
            player: its parts.

    Raises:
        BfcvizError: `trace` is neither a trace nor a path, or the file cannot be read.
        TraitError: there is no such step or pool.
    """

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
        trace = _opened(trace)
        self._user_widgets = [each for each in traits.values() if isinstance(each, widgets.Widget)]
        self._auto_move = False
        self._map_image: str | None = (
            None  # while a frame is drawn that changes only the map's image in the figure
        )
        self.controls = Controls([each.name for each in trace.origin.pools], self.act, self._ask)
        self.player = Player(self._advance, lambda: self.controls.show_playing(playing=False))
        self.header, self.holders, self.chunk = Header(), HoldersPane(), ChunkPane()
        names = {"everything shown": _ALL} | {kind.title: name for name, kind in FIGURES.items()}
        self.export_row = ExportRow(names, self.draw_for_export, self._code)
        super().__init__(trace, **traits)
        widget_lifetime.free_unseen(self)
        try:
            self.theme = theme
            self._begin(step, pool, follow=follow)
            self._build()
        except BaseException:
            self.close()
            raise

    def _begin(self, step: int | None, pool: int | None, *, follow: bool) -> None:
        """Choose pool and step: where nothing is asked for, what the reader most likely looks for."""
        self.pool = pool or 0  # checked before anything searches it
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
        self.view = FigureView(self._panels(), self.views, self.look, step=self.step)
        self._lay_out()
        self._show()
        self._listen()

    def _open(self) -> None:
        self.panel_data = PanelData(self._trace, self.pool)
        self.chunk_list = ChunkList(self._trace, self.pool)
        self.event_list = EventList(self._trace, self.pool)

    def _lay_out(self) -> None:
        self.stage = StageBox(self.view.widget, [self.holders.widget, self.chunk.widget])
        self.below = widgets.VBox(self._tables())
        self.page = PageWidget(self.receive)
        self.children = [self.header.widget, *self.controls.rows, self.page, self.stage.widget, self.below]

    def _tables(self) -> list[widgets.Widget]:
        return [self.chunk_list.widget, self.event_list.widget, self.export_row.row]

    # -- closing ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close it: remove it from the page and free its memory. It cannot be used again."""
        if self.__dict__.get("_closed", True):  # also if __init__ raised
            return
        self._closed = True
        self.player.pause()
        widget_lifetime.close(self, *self._parts(), without=self._user_widgets)
        self.set_trait("children", ())
        self._forget()

    def _parts(self) -> list[widgets.Widget]:
        """All widgets of the page, also if only some were made."""
        made = [
            self.__dict__.get(name)
            for name in ("chunk_list", "event_list", "view", "header", "holders", "chunk")
        ]
        parts = [part.widget for part in made if part is not None]
        return [*self.controls.inputs(), *self.controls.rows, self.export_row.row, *parts]

    # -- drawing ---------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """Show `step` and `look` everywhere."""
        model = self.panel_data.model
        model.seek(self.step)
        # The figure first, since the page takes longest for it.
        if self._map_image is None:
            self.view.show(self._panels(), self.views, self.look, self.width, step=self.step)
            self.stage.show(self.view.stage, self.views)
        else:
            self.view.show_image("region_map", self._map_image, step=self.step)
        self._show_controls()
        self.header.show(model, self.look, self.panel_data.search())
        if self._map_image is None:  # else rows would change too often to be read or clicked
            at_step = self.step if self.panel_data.moving else None
            self.holders.show(model, self.look, self.panel_data.colours(self.look), at_step)
            self.chunk.show(model, self.look)
        self._show_table()

    def _panels(self) -> dict[str, Panel]:
        """The panels of the layout, with names in the map where they have room."""
        look = replace(self.look, map_pixels=map_pixels(self.width))
        return self.panel_data.panels(names_in(self.views), look)

    def _show_controls(self) -> None:
        first, controls = self._trace.first, self.controls
        controls.show_range(first, self._last, self.step)
        controls.show_step(self.step)
        controls.show_following(self.follow, growing=self._trace.following)
        controls.show_wanted(self.wanted)
        controls.search.value = self.look.search or ""
        ahead, behind = self.step < self._last, self.step > first
        enabled = {"first": behind, "back": behind, "play": ahead, "forward": ahead, "last": ahead}
        controls.set_enabled(enabled)

    def _show_table(self) -> None:
        """Show the table of the open tab; the others are updated when their tab is opened."""
        tables = dict(zip(("chunk_table", "event_table", "export"), self._tables(), strict=True))
        for name, table in tables.items():
            display = None if name == self.views else "none"
            if table.layout.display != display:
                table.layout.display = display
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
        """The figure of this name at the current step, and its file name without suffix."""
        with self.lock:
            model = self.panel_data.model
            facts = facts_of(model)
            if name == _ALL:
                return self.view.as_picture(self.views, self.look).with_facts(
                    facts
                ), f"bfcviz-step{self.step}"
            figure = FIGURES[name].draw(model, last_event(model), self.look).with_facts(facts)
        return figure, f"bfcviz-{name}-step{self.step}"

    def _code(self, name: str) -> str:
        """The Python that draws the figure of this name at the current step."""
        path = self._trace.path
        if name == _ALL:
            return code_for_inspector(path, self.step, self.pool, self.look)
        return code_for(name, path, self.step, self.pool, self.look)

    # -- moving ----------------------------------------------------------------------------------------------

    def go(self, step: int | None = None, look: Look | None = None) -> None:
        """Go to another step, another look, or both, and draw once."""
        with self._drawing():
            self.look = self.look if look is None else look
            self.step = self.step if step is None else step

    def trace_grew(self, *, moving: bool = False) -> None:
        """Take in new events; show the newest one if `follow` is set. From any thread.

        Args:
            moving: more events will come soon: skip what is drawn only for an idle heap; `draw_moving_map` may follow.
        """
        with self._drawing():
            self.panel_data.moving = moving and self.follow
            self._changed = True
            self._take_new_events()

    def draw_moving_map(self) -> bool:
        """Draw the newest event in the map, the header and the open table; False: the whole frame must be drawn.

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

    def _take_new_events(self) -> None:
        """Go to the newest event, if it is followed."""
        self._last = len(self._trace)
        if self._map_image is None or self.views == "event_table":
            self.event_list.trace_grew()
        self._auto_move = True  # not a move by the user: it does not end `follow`
        try:
            self.step = self._last if self.follow else max(self.step, self._trace.first)
        finally:
            self._auto_move = False

    def _listen(self) -> None:
        controls = self.controls
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
        """Show another trace, at its newest step if `follow` is set, else at its first."""
        with self._drawing():
            self._trace, self._last = trace, len(trace)
            self.controls.show_pools([each.name for each in trace.origin.pools])
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
            self.look = replace(whole(self.look), selected=None, hovered=None, holder=None)
            if (at := step_of_pool(self._trace, self.pool, self.step)) != self.step:
                self.step = at

    def act(self, name: str) -> None:
        """Run the action of the button `name`; on failure, show the error in the header.

        Args:
            name: one of `bfcviz.dashboard.controls.moves.MOVES`, or `play`, `whole`, `follow`, `everything`,
                `unselect`.
        """
        with self._showing_errors():
            if name in MOVES:
                self.step = destination(name, self._position())
            elif name == "play":
                self._toggle_play()
            elif name == "follow":
                self.follow = not self.follow
            elif name == "everything":
                self.views = "memory" if self.views == "everything" else "everything"
            else:
                self.look = whole(self.look) if name == "whole" else unmarked(self.look)

    @contextmanager
    def _showing_errors(self) -> Iterator[None]:
        """Show errors raised inside in the header, in place of the last one."""
        self.header.hide_error()
        try:
            with self._drawing():
                yield
        except (BfcvizError, traitlets.TraitError) as error:
            self.header.show_error(str(error))

    def receive(self, message: Message) -> None:
        """Handle a message from the page; on failure, show the error in the header."""
        with self._showing_errors():
            dispatch(self, message)

    def _position(self) -> Position:
        chosen, handle, label = self.look.selected, None, None
        if chosen is not None:
            handle, label = self.panel_data.handle_and_label(chosen)
        return Position(self._trace, self.pool, self.step, self.controls.target.value, handle, label)

    def _toggle_play(self) -> None:
        if self.player.playing:
            self.player.pause()
        else:
            self.player.play()
            self.controls.show_playing(playing=True)

    def _advance(self) -> bool:
        self.step = min(self.step + self.controls.speed.value, self._last)
        return self.step < self._last


def _opened(source: Any) -> Trace:
    """The trace, or that of the file at a path."""
    if isinstance(source, str | os.PathLike):
        from bfcviz.importers.open_trace import open_trace  # noqa: PLC0415  slow to import, and often not needed

        return open_trace(source)
    if not isinstance(source, Trace):
        raise BfcvizError(
            f"an Inspector shows a Trace or the path of a file, not {source!r}: show a live heap with "
            "bfcviz.LiveDashboard(heap)"
        )
    return source
