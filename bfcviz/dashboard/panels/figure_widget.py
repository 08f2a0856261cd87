"""Plotly's FigureWidget, whose page only draws, and whose script is sent to the page once for all figures."""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Final

import ipywidgets as widgets
import plotly.graph_objects as go
import traitlets
from plotly.basedatatypes import Undefined

from bfcviz.dashboard import widget_lifetime
from bfcviz.figures.panel import CONFIG
from bfcviz.figures.plotly_renderers import import_renderers

import_renderers()  # before the widget, which needs them

_SEND_FUNCTIONS: Final = re.compile(r"(_send(?:TraceDeltas|LayoutDelta)\(\w+\)\{)(?!return)")
_FIND_ARRAYS: Final = re.compile(r"(\.findArrayAttributes=function\((\w+)\)\{)(?!if)")


def _trimmed(script: str) -> str:
    """Plotly's script without what a dashboard does not need; see `OneWayFigureWidget`."""
    script = _SEND_FUNCTIONS.sub(r"\1return;", script)
    return _FIND_ARRAYS.sub(r"\1if(\2.visible===false)return[];", script)


_PLOTLY: Final = _trimmed(str(go.FigureWidget._esm))  # noqa: SLF001  anywidget's script


class PlotlyScript(widgets.Widget):  # type: ignore[misc]
    """Plotly's script (5 MB), which the figures of a kernel share; it is never displayed.

    Attributes:
        script: an ECMAScript module, as plotly's FigureWidget has it.
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
                cls._open = cls(script=_PLOTLY, digest=sha256(_PLOTLY.encode()).hexdigest())
                widget_lifetime.roots.add(cls._open)
            return cls._open


class OneWayFigureWidget(go.FigureWidget):  # type: ignore[misc]
    """A FigureWidget whose page only draws, and sends nothing back.

    Each FigureWidget of plotly sends the whole script again, and the page evaluates it again: 5 MB and half a second
    a figure.

    After each update plotly's page compares all traces with their defaults, and sends the result to Python (50 kB for
    a dashboard), where it is merged and echoed. Nothing here needs it, and it takes a third as long as the drawing,
    some of it in the kernel beside the workload.

    With each update plotly also searches all possible attributes of each trace for arrays. Most traces of a dashboard
    are hidden, and plotly uses no array of these: skipping them saves a fifth of the drawing.

    Plotly also checks for each value that the trace has such a key, and calls those who listen to changes in Python.
    The keys are those of our own traces, and none listens: both take a third of the update in Python.

    Args:
        figure: as for plotly's FigureWidget: a figure, or `data` and `layout` by name.
        config: of plotly's script.
    """

    # The text, not the path: for a path, anywidget keeps every widget alive to notify it when the file changes.
    _esm = Path(__file__).with_name("figure_widget.js").read_text(encoding="utf-8")
    # The model id, not the widget: what a figure refers to is closed with its dashboard.
    _script_model_id = traitlets.Unicode().tag(sync=True)
    _updates = 0

    def __init__(self, *figure: Any, config: Mapping[str, Any] = CONFIG, **parts: Any) -> None:
        super().__init__(*figure, **parts)
        self._config = dict(config)  # plotly has no public way

    @traitlets.default("_script_model_id")
    def _shared_script(self) -> str:
        return str(PlotlyScript.shared().model_id)

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
        restyle_data: dict[str, Any],
        relayout_data: dict[str, Any],
        trace_indexes: Any = None,
        source_view_id: str | None = None,
    ) -> None:
        """Send an update in one message; plotly sends four, with counters that only the page's answers need."""
        self._updates += 1  # the page ignores an update that equals the last one
        self._py2js_update = {
            "style_data": restyle_data,
            "layout_data": relayout_data,
            "style_traces": self._normalize_trace_indexes(trace_indexes),
            "trace_edit_id": self._updates,
            "layout_edit_id": self._updates,
            "source_view_id": source_view_id,
        }
        # Not sent: a page that is loaded later starts with the new data.
        self._trait_values["_py2js_update"] = None
