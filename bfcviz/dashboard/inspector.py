"""The Inspector: step through a trace, event by event, and see what each did to the heap."""

from collections.abc import Callable
from html import escape
from threading import RLock
from typing import Any

import ipywidgets as widgets
import traitlets

from bfcviz.dashboard.controls import Controls
from bfcviz.dashboard.exporter import Exporter
from bfcviz.dashboard.fit import Fit
from bfcviz.dashboard.player import Player
from bfcviz.dashboard.view import View, page
from bfcviz.dashboard.wording import explain_step, summary
from bfcviz.errors import BfcvizError
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures import FIGURES, Picture
from bfcviz.figures.bin_histogram import bin_panels
from bfcviz.figures.fragmentation_timeline import fragmentation_panel
from bfcviz.figures.look import Look
from bfcviz.figures.panel import Panel
from bfcviz.figures.region_map import region_panel
from bfcviz.figures.stats_timeline import history, stats_panel
from bfcviz.figures.theme import theme_of
from bfcviz.figures.touched import last_event
from bfcviz.model import Model
from bfcviz.model.find import next_step, peak, previous_step, worst_fragmentation

_ALL = "everything"


class Inspector(widgets.VBox):  # type: ignore[misc]
    """A view of one heap of a trace at one step, with controls to move it.

    Args:
        trace: what to step through.
        step: where to begin.
        pool: which heap of the trace.
        theme: `light` or `dark`.

    Attributes:
        step: events applied so far, 0..len(trace); set it to move, observe it to follow.
        pool: the heap shown.
    """

    step = traitlets.Int(0, help="events applied so far")
    pool = traitlets.Int(0, help="the heap shown, an index into the origin's pools")

    def __init__(self, trace: Trace, step: int | None = None, *, pool: int = 0, theme: str = "light") -> None:
        self._lock = RLock()  # a kernel with subshells runs callbacks in threads
        self._trace, self._theme, self._last = trace, theme_of(theme), len(trace)
        pools = [each.name for each in trace.origin.pools]
        self._controls = Controls(self._last, pools, self._act)
        self._player = Player(self._play_on, lambda: self._controls.show_playing(playing=False))
        self._words = widgets.HTML()
        self._words.add_class("bfcviz-words")
        self._exporter = Exporter(
            {kind.title: name for name, kind in FIGURES.items()} | {"everything shown": _ALL}, self._draw
        )
        self._open(pool)
        self._view = View(self._panels(), self._theme)
        super().__init__([*self._controls.rows(), self._words, Fit(), self._view.widget, self._exporter.row])
        self._listen()
        self.pool = pool
        self.step = 0 if step is None else step
        self._show()

    # -- what is shown ---------------------------------------------------------------------------------------

    def _open(self, pool: int) -> None:
        self._model = Model(self._trace, pool)
        self._history = history(self._trace, pool)

    def _panels(self) -> list[Panel]:
        """The five sets of axes at the model's step, in the order of `view.PLACES`."""
        model, theme = self._model, self._theme
        event, look = last_event(model), Look(theme=theme.name)
        return [
            region_panel(model, event, look),
            stats_panel(self._history, model.step, look),
            fragmentation_panel(self._history, model.step, look, brief=True),
            *bin_panels(model, event, look),
        ]

    def _show(self) -> None:
        """Brings everything to `step`."""
        with self._lock:
            self._model.seek(self.step)
            with self.hold_sync():
                self._controls.slider.value = self._controls.step.value = self.step
                ahead, behind = self.step < self._last, self.step > 0
                self._controls.set_enabled(
                    {"first": behind, "back": behind, "play": ahead, "forward": ahead, "last": ahead}
                )
            self._say(explain_step(self._model))
            self._view.show(self._panels())

    def _say(self, sentence: str, *, alert: bool = False) -> None:
        role = "alert" if alert else "status"
        numbers = "" if alert else f"<div style='opacity: 0.75'>{escape(summary(self._model.stats()))}</div>"
        self._words.value = (
            f"<div role='{role}' aria-live='polite' style='line-height: 1.45; min-height: 4.4em'>"
            f"<div><b>step {self.step:,} of {self._last:,}</b> — {escape(sentence)}</div>{numbers}</div>"
        )

    def _draw(self, name: str) -> tuple[Picture, str]:
        """The picture that the export row asks for, and its file's name without suffix."""
        with self._lock:
            if name == _ALL:
                return page(self._panels(), self._theme), f"bfcviz-step{self.step}"
            figure = FIGURES[name].draw(self._model, last_event(self._model), Look(theme=self._theme.name))
        return figure, f"bfcviz-{name}-step{self.step}"

    # -- how it moves ----------------------------------------------------------------------------------------

    @traitlets.validate("step")
    def _check_step(self, proposal: Any) -> int:
        step = int(proposal["value"])
        if not 0 <= step <= self._last:
            raise traitlets.TraitError(f"there is no step {step:,}: this trace has steps 0 to {self._last:,}")
        return step

    @traitlets.validate("pool")
    def _check_pool(self, proposal: Any) -> int:
        pool, pools = int(proposal["value"]), len(self._trace.origin.pools)
        if not 0 <= pool < pools:
            raise traitlets.TraitError(f"there is no pool {pool}: this trace has pools 0 to {pools - 1}")
        return pool

    def _listen(self) -> None:
        self._controls.slider.observe(self._go_to, "value")
        self._controls.step.observe(self._go_to, "value")
        self._controls.pool.observe(lambda change: self.set_trait("pool", change["new"]), "value")
        self.observe(lambda _: self._show(), "step")
        self.observe(self._change_pool, "pool")

    def _go_to(self, change: dict[str, Any]) -> None:
        self.step = change["new"]

    def _change_pool(self, change: dict[str, Any]) -> None:
        with self._lock:
            self._controls.pool.value = change["new"]
            self._open(change["new"])
            self._show()

    def _act(self, name: str) -> None:
        """What the button called `name` does; what cannot be done is said where the words are."""
        try:
            self._actions()[name]()
        except BfcvizError as error:
            self._say(str(error), alert=True)

    def _actions(self) -> dict[str, Callable[[], None]]:
        return {
            "first": lambda: self._move(0),
            "back": lambda: self._move(previous_step(self._trace, self.step, list(Kind), self.pool) or 0),
            "play": self._play_or_pause,
            "forward": lambda: self._move(next_step(self._trace, self.step, list(Kind), self.pool)),
            "last": lambda: self._move(self._last),
            "split": lambda: self._jump(Kind.SPLIT),
            "merge": lambda: self._jump(Kind.MERGE),
            "extend": lambda: self._jump(Kind.EXTEND),
            "oom": lambda: self._jump(Kind.OOM),
            "worst": lambda: self._move(worst_fragmentation(self._trace, self.pool)),
            "peak": lambda: self._move(peak(self._trace, self.pool)),
        }

    def _move(self, step: int | None) -> None:
        if step is not None:
            self.step = step

    def _jump(self, kind: Kind) -> None:
        found = next_step(self._trace, self.step, [kind], self.pool)
        if found is None:
            self._say(f"no further {kind.name} event after this step", alert=True)
        self._move(found)

    def _play_or_pause(self) -> None:
        if self._player.playing:
            self._player.pause()
        else:
            self._player.play()
            self._controls.show_playing(playing=True)

    def _play_on(self) -> bool:
        self.step = min(self.step + self._controls.speed.value, self._last)
        return self.step < self._last
