"""Plotly's FigureWidget, whose page only draws, and whose script is sent to the page once for all figures."""

import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Final

import ipywidgets as widgets
import plotly.graph_objects as go
import traitlets
from ipywidgets.widgets.widget import _remove_buffers  # no public way to send arrays
from plotly.basedatatypes import Undefined
from plotly.serializers import custom_serializers

from bfcviz.dashboard import widget_lifetime
from bfcviz.errors import BfcvizError
from bfcviz.figures.panel import CONFIG, import_renderers

# ------------------------------------------------------------------------------
# Plotly's FigureWidget, whose page only draws, and whose script is sent to the page once for all figures.

import_renderers()  # before the widget, which needs them

_FIND_ARRAYS: Final = re.compile(r"(\.findArrayAttributes=function\((\w+)\)\{)(?!if)")
_GLOBAL: Final = "window.Plotly = Plotly;"


def _plotly() -> str:
    """Plotly's script as an ECMAScript module that leaves the page's own Plotly alone; see `OneWayFigureWidget`."""
    script = (pkgutil.get_data("plotly", "package_data/plotly.min.js") or b"").decode()
    script = _FIND_ARRAYS.sub(r"\1if(\2.visible===false)return[];", script.replace(_GLOBAL, ""))
    return f"const module = {{ exports: {{}} }};\n{script}\nexport default module.exports;\n"


class PlotlyScript(widgets.Widget):  # type: ignore[misc]
    """Plotly's script (5 MB), which the figures of a kernel share; it is never displayed.

    Attributes:
        script: an ECMAScript module that exports plotly.
        digest: the same for equal scripts, in all kernels.
    """

    # No defaults: ipywidgets leaves these out of a page that it saves.
    script = traitlets.Unicode().tag(sync=True)
    digest = traitlets.Unicode().tag(sync=True)

    _open: "PlotlyScript | None" = None
    _lock = Lock()

    @classmethod
    def shared(cls) -> "PlotlyScript":
        """The one of this kernel; it is made with the first figure, and made again after it was closed."""
        with cls._lock:
            # ipykernel sets `_closed` if the page closes the comm; the widget does not learn of it.
            if cls._open is None or cls._open.comm is None or cls._open.comm._closed:  # noqa: SLF001
                script = _plotly()
                cls._open = cls(script=script, digest=sha256(script.encode()).hexdigest())
                widget_lifetime.roots.add(cls._open)
            return cls._open


class FigureUpdates(widgets.Widget):  # type: ignore[misc]
    """The way of a figure's updates to the page; it is never displayed.

    A plain widget has no script that a page must load first. Its model in the page keeps whatever arrives under a name;
    so each update gets its own, and the script of the figure takes it from there, however late.
    """

    def send_update(self, number: int, update: Mapping[str, Any]) -> None:
        """Send the update of this number."""
        content = custom_serializers["to_json"](update, None)
        state, paths, buffers = _remove_buffers({f"update {number}": content})
        self._send({"method": "update", "state": state, "buffer_paths": paths}, buffers)


class OneWayFigureWidget(go.FigureWidget):  # type: ignore[misc]
    """A FigureWidget whose page only draws what Python last sent, and sends nothing back.

    Of plotly's FigureWidget it has the Python part. Its page part is our own, `figure_widget.js`, since that of plotly
    sends its whole script for each figure (5 MB and half a second), compares all traces with their defaults after each
    update to send the result to Python, draws the first state again in a second view, and loses updates on a page that
    takes more than two seconds to load the script.

    The state that a page begins with is always the newest. Each update after it has a number, so that the page knows
    whether it has all; if not, it asks for the whole figure.

    With each update plotly also searches all possible attributes of each trace for arrays. Most traces of a dashboard
    are hidden, and plotly uses no array of these: skipping them saves a fifth of the drawing.

    Plotly also checks for each value that the trace has such a key, and calls those who listen to changes in Python.
    The keys are those of our own traces, and none listens: both take a third of the update in Python.

    Args:
        figure: as for plotly's FigureWidget: a figure, or `data` and `layout` by name.
        config: of plotly's script.
        step: the step that the figure shows; the page compares it with the one of the header. None: it has no step.
    """

    # The text, not the path: for a path, anywidget keeps every widget alive to notify it when the file changes.
    _esm = Path(__file__).with_name("figure_widget.js").read_text(encoding="utf-8")
    # The model ids, not the widgets: what a figure refers to is closed with its dashboard.
    _script_model_id = traitlets.Unicode().tag(sync=True)
    _updates_model_id = traitlets.Unicode().tag(sync=True)
    _shown = traitlets.Dict().tag(sync=True)  # the number of the last update, and the step of the figure
    _updates = traitlets.Instance(FigureUpdates)

    def __init__(
        self, *figure: Any, config: Mapping[str, Any] = CONFIG, step: int | None = None, **parts: Any
    ) -> None:
        self._is_complete = False
        self._number, self._step = 0, step
        self._parts: list[Mapping[str, Any]] | None = None  # of the update in progress
        # Held while the figure changes: a page that loads meanwhile must not begin with half of an update.
        self._changing = RLock()
        super().__init__(*figure, **parts)
        self._config = dict(config)  # plotly has no public way
        self._is_complete = True
        self.on_msg(lambda *_: self.send_whole())
        self.open()

    @traitlets.default("_script_model_id")
    def _shared_script(self) -> str:
        return str(PlotlyScript.shared().model_id)

    @traitlets.default("_updates")
    def _own_updates(self) -> FigureUpdates:
        return FigureUpdates()

    @traitlets.default("_updates_model_id")
    def _id_of_updates(self) -> str:
        return str(self._updates.model_id)

    def open(self) -> None:
        """Send the figure to the page, once it is complete; ipywidgets would first send an empty one."""
        if self._is_complete:
            super().open()

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """What the page gets, or the part `key` of it: the newest state. plotly would give that of the beginning."""
        with self._changing:
            if self._is_complete:
                newest = {"number": self._number, "step": self._step}
                # Not set_trait, which would send them.
                self._trait_values.update(_widget_data=self._data, _widget_layout=self._layout, _shown=newest)
            state: dict[str, Any] = super().get_state(key, drop_defaults)
        return state

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What IPython displays; plotly would send the whole figure once more."""
        return {"application/vnd.jupyter.widget-view+json": self.get_view_spec()}

    @contextmanager
    def changes(self, step: int | None = None) -> Iterator[None]:
        """Send all changes made inside as one update, after which the figure shows `step`."""
        with self._changing:
            self._parts = []
            try:
                yield
            finally:
                parts, self._parts = self._parts, None
                if parts or step != self._step:
                    self._step = step
                    self._send_update(parts)

    def show_image(self, number: int, subplot: str, source: str) -> None:
        """Replace the image of trace `number` on the axes of `subplot`, such as `x2y2`.

        It costs the page little: redrawing the figure for it, ten times a second, would take one core of the browser.
        """
        with self._changing:
            self._data[number]["source"] = source
            self._tell({"image": number, "subplot": subplot, "source": source})

    def send_whole(self, *_: Any, **__: Any) -> None:
        """Send the whole figure, to a page that misses a change."""
        with self._changing:
            self._tell({"data": self._data, "layout": self._layout})

    def _tell(self, part: Mapping[str, Any]) -> None:
        with self._changing:
            if self._parts is None:
                self._send_update([part])
            else:
                self._parts.append(part)

    def _send_update(self, parts: Sequence[Mapping[str, Any]]) -> None:
        if not self._is_complete:  # plotly sets a template; the page begins with it
            return
        self._number += 1
        self._updates.send_update(
            self._number, {"number": self._number, "step": self._step, "parts": list(parts)}
        )

    def _perform_plotly_restyle(
        self, restyle_data: dict[str, Any], trace_indexes: Sequence[int]
    ) -> dict[str, Any]:
        """Set values of traces: for each key one value for all traces, or a list of them; returns what changed."""
        changed = {}
        for key, values in restyle_data.items():
            each = values if isinstance(values, list) else [values]
            pairs = [(number, each[at % len(each)]) for at, number in enumerate(trace_indexes)]
            found = [
                self._set_in(self._data[number], key, value)
                for number, value in pairs
                if value is not Undefined
            ]
            if any(found):
                changed[key] = values
        return changed

    def _dispatch_trace_change_callbacks(self, *_: Any) -> None:
        """Call nothing: see above."""

    _dispatch_layout_change_callbacks = _dispatch_trace_change_callbacks

    def _send_update_msg(
        self,
        restyle_data: Mapping[str, Any],
        relayout_data: Mapping[str, Any],
        trace_indexes: Any = None,
        source_view_id: str | None = None,
    ) -> None:
        del source_view_id  # no view changes the figure
        traces = self._normalize_trace_indexes(trace_indexes)
        self._tell({"restyle": restyle_data, "relayout": relayout_data, "traces": traces})

    def _send_restyle_msg(
        self, restyle_data: Mapping[str, Any], trace_indexes: Any = None, source_view_id: str | None = None
    ) -> None:
        self._send_update_msg(restyle_data, {}, trace_indexes, source_view_id)

    def _send_relayout_msg(self, layout_data: Mapping[str, Any], source_view_id: str | None = None) -> None:
        self._send_update_msg({}, layout_data, [], source_view_id)

    def _send_addTraces_msg(self, new_traces_data: Sequence[Mapping[str, Any]]) -> None:  # noqa: N802  plotly's name
        self._tell({"add": new_traces_data})

    _send_moveTraces_msg = _send_deleteTraces_msg = _send_animate_msg = send_whole  # no dashboard needs them  # noqa: N815


# ------------------------------------------------------------------------------
# side_by_side: several figures in one row of a notebook, such as the maps of two heaps.


def side_by_side(*figures: go.Figure) -> widgets.HBox:
    """Show figures beside each other; the row breaks where the page is too narrow for all.

    ::

        side_by_side(*(bfcviz.draw("region_map", trace).update_layout(width=410) for trace in (a, b)))

    Plotly's script is sent to the page once for all figures of the notebook.

    Args:
        figures: each with a width, in pixels; without one it takes a row of its own.

    Raises:
        BfcvizError: one of them is not a figure, or there is none.
    """
    wrong = [type(each).__name__ for each in figures if not isinstance(each, go.Figure)]
    if wrong or not figures:
        given = f"{wrong[0]} was given" if wrong else "nothing was given"
        raise BfcvizError(
            f"side_by_side shows figures, and {given}: give each figure as an argument of its own"
        )
    shown = [OneWayFigureWidget(figure) for figure in figures]
    row = widgets.HBox(shown, layout={"flex_flow": "row wrap"}, _view_count=0)
    widget_lifetime.free_unseen(row)
    return row
