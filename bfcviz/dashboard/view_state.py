"""The state of an Inspector: its traits, checked, and a frame that draws all changes made together once."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final

import ipywidgets as widgets
import traitlets

from bfcviz.dashboard.controls.controls import Size
from bfcviz.dashboard.panels.layouts import LAYOUTS
from bfcviz.errors import BfcvizError
from bfcviz.events.trace import Trace
from bfcviz.figures.style.colouring import COLOURINGS
from bfcviz.figures.style.view_options import Look

_FREED: Final = (
    "panel_data",
    "view",
    "stage",
    "below",
    "chunk_list",
    "event_list",
    "_trace",
    "page",
    "export_row",
    "header",
    "holders",
    "chunk",
)
"""Attributes that `close` removes: everything that refers to events, figures or tables."""


class ViewState(widgets.VBox):  # type: ignore[misc]
    """A widget with the traits of an Inspector, which documents them. A subclass draws them in `_show`."""

    step = traitlets.Int(0, help="events applied so far")
    pool = traitlets.Int(0, help="the heap shown, an index into the origin's pools")
    theme = traitlets.Enum(["auto", "light", "dark"], "auto")
    views = traitlets.Enum(list(LAYOUTS), "memory")
    colour = traitlets.Enum(list(COLOURINGS), "holder")
    axis = traitlets.Enum(["step", "time", "mark"], "step")
    wanted = Size(0, min=0)
    follow = traitlets.Bool(False)  # noqa: FBT003  its initial value
    look = traitlets.Instance(Look, ())
    page_theme = traitlets.Enum(["light", "dark"], "light")
    width = traitlets.Int(1200, help="pixels")

    _trace: Trace

    def __init__(self, trace: Trace, **traits: Any) -> None:
        self.lock = RLock()  # a kernel with subshells runs callbacks in threads
        self._closed, self._depth, self._changed = False, 0, False
        self._trace, self._last = trace, len(trace)
        super().__init__(**{"_view_count": 0, **traits})

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __getattr__(self, name: str) -> Any:
        if name in _FREED and self.__dict__.get("_closed", False):
            raise BfcvizError(f"this Inspector is closed and has no {name.strip('_')}; make a new one")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _forget(self) -> None:
        """Remove everything that refers to events, figures or tables."""
        for name in _FREED:
            self.__dict__.pop(name, None)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Draw all changes made inside once, at the end; other threads wait."""
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
        """Draw again: a part of the page has changed what it shows."""
        with self._drawing():
            self._changed = True

    def _show(self) -> None:
        """Show the traits everywhere."""
        raise NotImplementedError

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
