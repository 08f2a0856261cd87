"""The Inspector: step through a trace, event by event, and see what each did to the heap."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import Any, Final

import ipywidgets as widgets
import traitlets

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.background.player import Player
from bfcviz.dashboard.controls.controls import Controls, Size, bind, nearest_size
from bfcviz.dashboard.controls.export_row import Exporter
from bfcviz.dashboard.controls.moves import MOVES, Place, destination
from bfcviz.dashboard.controls.summary_text import Wording
from bfcviz.dashboard.page.dispatch import hear
from bfcviz.dashboard.page.widget import Message, PageSide
from bfcviz.dashboard.panels.figure_view import View
from bfcviz.dashboard.panels.layouts import LAYOUTS, names_in
from bfcviz.dashboard.panels.panel_data import Study
from bfcviz.dashboard.panels.zoom_windows import whole
from bfcviz.dashboard.tables.chunk_list import ChunkList
from bfcviz.dashboard.tables.event_list import EventList
from bfcviz.errors import BfcvizError
from bfcviz.events.trace import Trace
from bfcviz.figures import FIGURES, Picture
from bfcviz.figures.code import code_for, code_for_inspector
from bfcviz.figures.region_map.touched import last_event
from bfcviz.figures.style.colouring import COLOURINGS
from bfcviz.figures.style.view_options import Look
from bfcviz.model.explain.chunk_life import life_of

_ALL: Final = "everything"

_FREED: Final = (
    "study",
    "view",
    "chunk_list",
    "event_list",
    "_trace",
    "_page",
    "_tabs",
    "_exporter",
    "_wording",
)
"""Attributes that `close` removes: everything that refers to events, pictures or tables."""


class Inspector(widgets.VBox):  # type: ignore[misc]
    """A view of one heap of a trace at one step, with controls to move it.

    `close()` frees its memory. Python frees it, too, once the page shows no view of it (its cell runs again, its
    output is cleared) and no variable refers to it. IPython's `Out` is such a variable for the last line of a
    cell: display it by name instead. Where no page tells that a view went, only `close()` frees it.

    Args:
        trace: what to step through; it may grow meanwhile.
        step: where to begin; None: before the first event that can be seen, or, following, at the newest.
        pool: which heap of the trace.
        theme: `light`, `dark`, or `auto`: as the page is.
        follow: show the newest event as the trace grows.
        traits: any other attribute below.

    Attributes:
        step: events applied so far, trace.first..len(trace); set it to move, observe or link it to follow.
        pool: the heap shown.
        theme: `auto`, `light` or `dark`.
        views: which panels are shown: `heap`, `time` or `everything`.
        colour: what chunks are coloured by, one of `bfcviz.figures.style.colouring.COLOURINGS`.
        axis: what timelines run over: `step` or `time`.
        wanted: size of a request, in bytes or as text; the share of free memory of no use to it is drawn. 0: none.
        follow: whether the newest event is shown as the trace grows; a move ends it.
        look: everything else that was chosen: what is zoomed to, and which chunk is selected.
        page_theme, width: what the page has told of itself.
        lock: whoever changes anything from another thread holds it.
        study, view, chunk_list, event_list: the parts, for what is heard from the page.
    """

    step = traitlets.Int(0, help="events applied so far")
    pool = traitlets.Int(0, help="the heap shown, an index into the origin's pools")
    theme = traitlets.Enum(["auto", "light", "dark"], "auto")
    views = traitlets.Enum(list(LAYOUTS), "heap")
    colour = traitlets.Enum(list(COLOURINGS), "state")
    axis = traitlets.Enum(["step", "time"], "step")
    wanted = Size(0, min=0)
    follow = traitlets.Bool(False)  # noqa: FBT003  its first value
    look = traitlets.Instance(Look, ())
    page_theme = traitlets.Enum(["light", "dark"], "light")
    width = traitlets.Int(1200, help="pixels")

    def __init__(
        self,
        trace: Trace,
        step: int | None = None,
        *,
        pool: int = 0,
        theme: str = "auto",
        follow: bool = False,
        **traits: Any,
    ) -> None:
        if not isinstance(trace, Trace):
            raise BfcvizError(
                f"{trace!r} was given to an Inspector, which shows traces: open a file by bfcviz.open(...), and show a "
                "heap at work by bfcviz.LiveDashboard(heap)"
            )
        self.lock = RLock()  # a kernel with subshells runs callbacks in threads
        self._closed = False
        self._theirs = [each for each in traits.values() if isinstance(each, widgets.Widget)]
        self._depth, self._changed, self._follows_on = 0, False, False
        self._trace, self._last = trace, len(trace)
        self._controls = Controls([each.name for each in trace.origin.pools], self.act)
        self._player = Player(self._play_on, lambda: self._controls.show_playing(playing=False))
        self._wording = Wording()
        names = {"everything shown": _ALL} | {kind.title: name for name, kind in FIGURES.items()}
        self._exporter = Exporter(names, self._draw, self._code)
        super().__init__(**{"_view_count": 0, **traits})
        widget_lifetime.free_unseen(self)
        try:
            self.pool, self.theme = pool, theme
            self._open()
            at = (self._last if follow else trace.first) if step is None else step
            self.step, self.follow = at, follow
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        self.add_class("bfcviz-dashboard")
        self.study.model.seek(self.step)
        self._choose()
        self.view = View(self.study.panels(names_in(self.views), self.look), self.views, self.look.paints)
        self._lay_out()
        self._show()
        self._listen()

    def _open(self) -> None:
        self.study = Study(self._trace, self.pool)
        self.chunk_list = ChunkList(self._trace, self.pool)
        self.event_list = EventList(self._trace, self.pool)

    def _lay_out(self) -> None:
        self._tabs = widgets.Tab(self._tab_contents(), titles=["chunks", "events", "export"])
        rows = [*self._controls.rows(), self._wording.widget]
        self._page = PageSide(self._hear)
        self.children = [*rows, self._page, self.view.widget, self._tabs]

    def _tab_contents(self) -> list[widgets.Widget]:
        return [self.chunk_list.widget, self.event_list.widget, self._exporter.row]

    # -- how it ends -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """End it: the page forgets it, and what it kept is freed. It can neither move nor be shown again."""
        if self.__dict__.get("_closed", True):  # also one whose trace was refused
            return
        self._closed = True
        self._player.pause()
        widget_lifetime.close(self, *self._parts(), without=self._theirs)
        self.set_trait("children", ())
        for name in _FREED:
            self.__dict__.pop(name, None)

    def _parts(self) -> list[widgets.Widget]:
        """What is in the page; where making it failed, what was to come there."""
        made = [self.__dict__.get(name) for name in ("chunk_list", "event_list", "view", "_wording")]
        parts = [part.widget for part in made if part is not None]
        return [*self._controls.inputs(), self._controls.of, self._exporter.row, *parts]

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __getattr__(self, name: str) -> Any:
        if name in _FREED and self.__dict__.get("_closed", False):
            raise BfcvizError(
                f"this Inspector is closed and has no {name.strip('_')} any more; make a new one"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- what is shown ---------------------------------------------------------------------------------------

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Whatever changes inside is drawn once, at the end; other threads wait."""
        with self.lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._changed and not self._depth and not self._closed:
                    self._changed = False
                    self._show()

    def _draw_soon(self, _: object = None) -> None:
        with self._drawing():
            self._changed = True

    def _show(self) -> None:
        """Brings everything to `step` and `look`."""
        model, chosen = self.study.model, self.look.selected
        model.seek(self.step)
        panels = self.study.panels(names_in(self.views), self.look)
        self.view.show(
            panels, self.views, self.look.paints, self.width
        )  # first: the page takes longest for it
        self._show_controls()
        self._wording.show(model, self.study.search(), None if chosen is None else life_of(model, chosen))
        self._show_list()

    def _show_controls(self) -> None:
        first, controls = self._trace.first, self._controls
        controls.show_range(first, self._last, self.step)
        controls.show_step(self.step)
        controls.show_following(self.follow, growing=self._trace.following)
        ahead, behind = self.step < self._last, self.step > first
        controls.set_enabled(
            {"first": behind, "back": behind, "play": ahead, "forward": ahead, "last": ahead}
        )

    def _show_list(self) -> None:
        """The list in front; the others are brought up to date when they come there."""
        if self._tabs.selected_index == 0:
            self.chunk_list.show(self.study.model, self.look)
        elif self._tabs.selected_index == 1:
            self.event_list.show(self.step)

    def _choose(self, _: object = None) -> None:
        """Takes over into `look` what was chosen by traits."""
        theme = self.page_theme if self.theme == "auto" else self.theme
        chosen: dict[str, Any] = {"theme": theme, "colour": self.colour, "axis": self.axis}
        self.look = replace(self.look, **chosen, wanted=self.wanted or None)

    def _draw(self, name: str) -> tuple[Picture, str]:
        """The picture that the export row asks for, and its file's name without suffix."""
        with self.lock:
            if name == _ALL:
                return self.view.as_picture(self.views, self.look.paints), f"bfcviz-step{self.step}"
            model = self.study.model
            figure = FIGURES[name].draw(model, last_event(model), self.look)
        return figure, f"bfcviz-{name}-step{self.step}"

    def _code(self, name: str) -> str:
        """The Python that makes the picture that the export row asks for."""
        path = self._trace.path
        if name == _ALL:
            return code_for_inspector(path, self.step, self.pool, self.look)
        return code_for(name, path, self.step, self.pool, self.look)

    # -- how it moves ----------------------------------------------------------------------------------------

    def go(self, step: int | None = None, look: Look | None = None) -> None:
        """Goes to another step, another look, or both, and draws once."""
        with self._drawing():
            self.look = self.look if look is None else look
            self.step = self.step if step is None else step

    def trace_grew(self, *, moving: bool = False) -> None:
        """Takes notice of events that came; shows the newest one where `follow` is set. From any thread.

        Args:
            moving: more will come at once: leave out what is only read at rest; `glance` may follow.
        """
        with self._drawing():
            self.study.moving = moving and self.follow
            self._last, self._changed = len(self._trace), True
            self.event_list.trace_grew()
            self._follows_on = True  # this move is not a person's: it does not end `follow`
            try:
                self.step = self._last if self.follow else max(self.step, self._trace.first)
            finally:
                self._follows_on = False

    def glance(self) -> bool:
        """Brings only the region map's image to the newest event; False: that takes the whole picture.

        From any thread, after `trace_grew(moving=True)`; the rest of the picture stays as it was then.
        """
        with self.lock:
            source = None if self._closed else self.study.glance()
            if source is not None:
                self._page.show_image(*self.view.take_image("region_map", source), source)
            return source is not None

    @traitlets.validate("step")
    def _check_step(self, proposal: Any) -> int:
        step, first = int(proposal["value"]), self._trace.first
        if not first <= step <= self._last:
            raise traitlets.TraitError(
                f"there is no step {step:,}: this trace has steps {first:,} to {self._last:,}"
            )
        return step

    @traitlets.validate("pool")
    def _check_pool(self, proposal: Any) -> int:
        pool, pools = int(proposal["value"]), len(self._trace.origin.pools)
        if not 0 <= pool < pools:
            raise traitlets.TraitError(f"there is no pool {pool}: this trace has pools 0 to {pools - 1}")
        return pool

    def _listen(self) -> None:
        controls = self._controls
        bind(self, "pool", controls.pool)
        bind(self, "views", controls.views)
        bind(self, "colour", controls.colour)
        bind(self, "axis", controls.axis)
        bind(self, "wanted", controls.wanted, nearest_size)
        for widget in (controls.slider, controls.step):
            widget.observe(lambda change: self.set_trait("step", change["new"]), "value")
        self.observe(self._moved, "step")
        self.observe(self._change_pool, "pool")
        self.observe(self._choose, ["theme", "page_theme", "colour", "axis", "wanted"])
        self.observe(self._draw_soon, ["look", "views", "width"])
        self.observe(self._followed, "follow")
        self._tabs.observe(lambda _: self._show_list(), "selected_index")

    def _moved(self, _: object) -> None:
        with self._drawing():
            self._changed = True
            if not self._follows_on:
                self.follow = self.study.moving = False

    def _followed(self, change: dict[str, Any]) -> None:
        if change["new"]:
            self.trace_grew()
        else:
            self.study.moving = False
            self._draw_soon()

    def change_trace(self, trace: Trace) -> None:
        """Show another trace from here on, at its newest step where `follow` is set, else at its first."""
        with self._drawing():
            self._trace, self._last = trace, len(trace)
            self._controls.show_pools([each.name for each in trace.origin.pools])
            self.pool = 0
            self._change_pool()
            self._follows_on = True
            try:
                self.step = self._last if self.follow else trace.first
            finally:
                self._follows_on = False

    def _change_pool(self, _: object = None) -> None:
        with self._drawing():
            self._changed = True
            before = [self.chunk_list.widget, self.event_list.widget]
            self._open()
            self._tabs.children = self._tab_contents()
            widget_lifetime.close(*before)
            self.look = replace(whole(self.look), selected=None)

    def act(self, name: str) -> None:
        """Does what the button called `name` does; what cannot be done is said where the words are.

        Args:
            name: of `bfcviz.dashboard.controls.moves.MOVES`, or `play`, `whole`, `follow`, `unselect`.
        """
        with self._complaining():
            if name in MOVES:
                self.step = destination(name, self._place())
            elif name == "play":
                self._play_or_pause()
            elif name == "follow":
                self.follow = not self.follow
            else:
                self.look = whole(self.look) if name == "whole" else replace(self.look, selected=None)

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        """What goes wrong inside is said where the words are."""
        try:
            with self._drawing():
                yield
        except (BfcvizError, traitlets.TraitError) as error:
            self._wording.complain(str(error))

    def _hear(self, message: Message) -> None:
        with self._complaining():
            hear(self, message)

    def _place(self) -> Place:
        chosen, handle, label = self.look.selected, None, None
        if chosen is not None:
            handle, label = self.study.handle_and_label(chosen)
        return Place(self._trace, self.pool, self.step, self._controls.target.value, handle, label)

    def _play_or_pause(self) -> None:
        if self._player.playing:
            self._player.pause()
        else:
            self._player.play()
            self._controls.show_playing(playing=True)

    def _play_on(self) -> bool:
        self.step = min(self.step + self._controls.speed.value, self._last)
        return self.step < self._last
