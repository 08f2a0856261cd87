"""Plotly's FigureWidget, whose page only draws, and whose script is sent to the page once for all figures."""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Final, TypeGuard

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import traitlets
from ipywidgets.widgets.widget import _remove_buffers  # no public way to send arrays
from plotly.basedatatypes import Undefined
from plotly.serializers import custom_serializers

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.layouts import NARROW_PX, Arrangement, arrange, names_in
from bfcviz.errors import BfcvizError
from bfcviz.figures.export import WIDTH
from bfcviz.figures.panel import (
    CONFIG,
    Page,
    Panel,
    Picture,
    axis_names,
    fitted_panel,
    panels_page,
    panels_picture,
    slim_panel,
    unchecked,
)
from bfcviz.figures.plotly_script import import_renderers, plotly_script
from bfcviz.figures.view_options import Look

import_renderers()  # before the widget, which needs them


@cache
def _packed_widget_module() -> bytes:
    """Plotly's script as an ECMAScript module that leaves the page's own Plotly alone, as gzip."""
    module = f"{plotly_script()}\nexport default Plotly;\n"
    return gzip.compress(module.encode(), mtime=0)


@cache
def _plotly_digest() -> str:
    return sha256(plotly_script().encode()).hexdigest()


class PlotlyScriptWidget(widgets.Widget):  # type: ignore[misc]
    """Plotly's script (1.2 MB, sent as 0.4), which the figures of a kernel share; it is never displayed.

    Attributes:
        pages_have_it: whether each page of this kernel has the script from elsewhere.
        script: an ECMAScript module that exports plotly, as gzip; empty where pages have it.
        digest: the same for equal scripts, in all kernels; a page that has the script from elsewhere knows it by this.
    """

    pages_have_it = False

    # No defaults: ipywidgets leaves these out of a page that it saves.
    script = traitlets.Bytes().tag(sync=True)
    digest = traitlets.Unicode().tag(sync=True)

    _open: "PlotlyScriptWidget | None" = None
    _lock = Lock()

    @classmethod
    def shared(cls) -> "PlotlyScriptWidget":
        """The one of this kernel; it is made with the first figure, and made again after it was closed."""
        with cls._lock:
            # ipykernel sets `_closed` if the page closes the comm; the widget does not learn of it.
            if cls._open is None or cls._open.comm is None or cls._open.comm._closed:  # noqa: SLF001
                script = b"" if cls.pages_have_it else _packed_widget_module()
                cls._open = cls(script=script, digest=_plotly_digest())
                widget_lifetime.roots.add(cls._open)
            return cls._open


class FigureUpdates(widgets.Widget):  # type: ignore[misc]
    """The way of a figure's updates to the page; it is never displayed.

    A plain widget has no script that a page must load first. Its model in the page keeps whatever arrives under a name;
    so each update gets its own, and the script of the figure takes it from there, however late.
    """

    def send_update(self, number: int, update: Mapping[str, Any]) -> None:
        """Send the update of the figure of this number to the page."""
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
        return str(PlotlyScriptWidget.shared().model_id)

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
        """What the page gets of the figure, or its part `key`: the newest state. plotly would give the first."""
        with self._changing:
            if self._is_complete:
                newest = {"number": self._number, "step": self._step}
                # Not set_trait, which would send them.
                self._trait_values.update(_widget_data=self._data, _widget_layout=self._layout, _shown=newest)
            state: dict[str, Any] = super().get_state(key, drop_defaults)
        return state

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What IPython displays of the figure; plotly would send the whole figure once more."""
        return {"application/vnd.jupyter.widget-view+json": self.get_view_spec()}

    @contextmanager
    def changes(self, step: int | None = None) -> Iterator[None]:
        """Send all changes of the figure made inside as one update, after which the figure shows `step`."""
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
        """Replace the image of the figure's trace `number` on the axes of `subplot`, such as `x2y2`.

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
        update = {"number": self._number, "step": self._step, "parts": list(parts)}
        self._updates.send_update(self._number, update)

    def _perform_plotly_restyle(
        self, restyle_data: dict[str, Any], trace_indexes: Sequence[int]
    ) -> dict[str, Any]:
        """Set values of the figure's traces: for each key one value for all, or a list; returns what changed."""
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


def side_by_side(*figures: go.Figure) -> widgets.HBox:
    """Show figures beside each other, each as a FigureWidget; the row breaks where the page is too narrow.

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


# ------------------------------------------------------------------------------
# The one figure of a dashboard: all its panels, changed in place, and fitted to the width of the page.

_PAGE_CONFIG: Final = CONFIG | {
    "doubleClick": False,  # page.js sends it, and Python draws the whole range again, which may have grown
    "scrollZoom": True,  # page.js lets only Ctrl+wheel through
    "displayModeBar": False,  # it would lie on the strip; the mouse and the toolbar do what its buttons did
}


Spec = Mapping[str, Any]  # a trace as plotly's dict


class FigureView:
    """The panels as the page shows them, and the widget that shows them.

    Attributes:
        widget: plotly's FigureWidget.
        panels: all panels shown so far, by name, in the order of their axes' numbers.
        stage: where the panels lie, and the room for what is beside them.
    """

    def __init__(
        self,
        panels: Mapping[str, Panel],
        layout: str,
        look: Look,
        width: int = WIDTH,
        *,
        step: int | None = None,
    ) -> None:
        self.panels = dict(panels)
        self._page, self.stage = self._lay(layout, look, width)
        self.widget: OneWayFigureWidget = unchecked(
            OneWayFigureWidget, self._page, config=_PAGE_CONFIG, step=step
        )

    def show(
        self,
        panels: Mapping[str, Panel],
        layout: str,
        look: Look,
        width: int = WIDTH,
        *,
        step: int | None = None,
    ) -> None:
        """Show `panels` in the figure, as the layout names them, at a step; send what differs: images cost little.

        `width`: pixels of the page.
        """
        self.panels |= panels
        before = self._page
        self._page, self.stage = self._lay(layout, look, width)
        restyle, changed = restyling(list(zip(before.data, self._page.data, strict=False)))
        relayout = relayouting(before.layout, self._page.layout)
        # plotly_update does not accept new axes and a template, and forgets that a list became longer.
        new_keys = [
            key
            for key, value in relayout.items()
            if key == "template" or ("." not in key and (key not in before.layout or _is_plotly_list(value)))
        ]
        with self.widget.changes(step):
            if list(restyle) == ["source"] and not relayout:
                for number in changed:
                    trace = self._page.data[number]
                    self.widget.show_image(number, trace["xaxis"] + trace["yaxis"], trace["source"])
                return
            for key in new_keys:  # not update_layout: it sends an axis and its parts separately
                self.widget.layout[key] = relayout[key]
            relayout = {key: value for key, value in relayout.items() if key not in new_keys}
            if changed or relayout:
                # A copy: plotly keeps the lists that it is given.
                self.widget.plotly_update(restyle, deepcopy(relayout), changed)
            if added := self._page.data[len(before.data) :]:
                self.widget.add_traces([dict(trace) for trace in added])

    def show_image(self, name: str, source: str, *, step: int | None = None) -> None:
        """Show another image in the figure, in the first trace of the panel `name`, and nothing else, at a step."""
        place = list(self.panels).index(name)
        number = sum(len(panel.traces) for panel in list(self.panels.values())[:place])
        traces, data = list(self.panels[name].traces), list(self._page.data)
        traces[0], data[number] = {**traces[0], "source": source}, {**data[number], "source": source}
        self.panels[name] = replace(self.panels[name], traces=traces)
        self._page = replace(self._page, data=data)
        with self.widget.changes(step):
            self.widget.show_image(number, "".join(axis_names(place + 1)), source)

    def _lay(self, layout: str, look: Look, width: int = WIDTH) -> tuple[Page, Arrangement]:
        panels = dict(self.panels)
        for name in names_in(layout):
            panels[name] = slim_panel(panels[name])
        stage = _fit_into_layout(panels, layout, width, narrow=width < NARROW_PX)
        places = [stage.places.get(name) for name in panels]
        page = panels_page(list(panels.values()), places, look.paints, stage.margins)
        return Page(page.data, {**page.layout, "autosize": True, "clickanywhere": True}), stage

    def panel_at(self, number: int) -> Panel | None:
        """The panel of the figure whose axes have this number, from 1; None if there is none."""
        names = list(self.panels)
        return self.panels[names[number - 1]] if 0 < number <= len(names) else None

    def as_picture(self, layout: str, look: Look, instead: Mapping[str, Panel]) -> Picture:
        """The panels of the layout as a figure without widgets; `instead`: panels that differ from those shown."""
        shown = {name: instead.get(name, self.panels[name]) for name in names_in(layout)}
        shown = {name: _without_unlisted_names(panel) for name, panel in shown.items()}
        stage = _fit_into_layout(shown, layout, WIDTH, alone=True)
        places = [stage.places[name] for name in shown]
        return panels_picture(list(shown.values()), places, look.paints, stage.margins)


def _without_unlisted_names(panel: Panel) -> Panel:
    """A panel whose legend keeps no room for what it does not list."""
    traces = [trace if trace.get("showlegend", True) else {**trace, "name": ""} for trace in panel.traces]
    return replace(panel, traces=traces)


def _fit_into_layout(
    panels: dict[str, Panel], layout: str, width: int, *, narrow: bool = False, alone: bool = False
) -> Arrangement:
    """Fit the panels into their places on a page of this width; return where they lie."""
    stage = arrange(layout, panels, narrow=narrow, alone=alone)
    for name, place in stage.places.items():
        pixels = (place.right - place.left) * (width - stage.margins.beside)
        panels[name] = fitted_panel(panels[name], pixels)
    # Again: the height of each legend is known now.
    return arrange(layout, panels, narrow=narrow, alone=alone)


def restyling(traces: Sequence[tuple[Spec, Spec]]) -> tuple[dict[str, list[Any]], list[int]]:
    """Arguments of `plotly_update` that turn the first of each pair into the second: values, numbers of traces.

    A key that changes in one trace is sent for every changed trace: if a value is left out, the copy of the figure
    that new views start from loses its old value. That copy could even contain an empty `marker`, which plotly cannot
    handle: so the parts of such a container are sent, never the whole.
    """
    pairs = {
        number: (_flat_plotly_trace(before), _flat_plotly_trace(after))
        for number, (before, after) in enumerate(traces)
        if not _same_figure_value(before, after)
    }
    changes = {number: difference(*pair) for number, pair in pairs.items()}
    changed = [number for number, change in changes.items() if change]
    keys = sorted({key for change in changes.values() for key in change})
    values = {key: [pairs[number][1].get(key, Undefined) for number in changed] for key in keys}
    return values, changed


def _flat_plotly_trace(trace: Spec) -> Spec:
    """{"line": {"width": 1}} as {"line.width": 1}; `meta` is our own, and plotly has no keys for its parts."""
    flat: dict[str, Any] = {}
    for key, value in trace.items():
        if isinstance(value, dict) and key != "meta":
            flat |= {f"{key}.{part}": inner for part, inner in _flat_plotly_trace(value).items()}
        else:
            flat[key] = value
    return flat


def difference(before: Spec, after: Spec) -> dict[str, Any]:
    """The items of a plotly figure `after` that differ in `before`."""
    return {key: value for key, value in after.items() if not _same_figure_value(before.get(key), value)}


def relayouting(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The argument of `plotly_update` that turns `before` into `after`: {"xaxis.title.text": ..., "xaxis9": {...}}.

    Of a list of dicts, such as the annotations, it has the parts that differ: for a whole list, plotly draws all of
    them once more. It has a template only whole.
    """
    found: dict[str, Any] = {}
    for key, value in difference(before, after).items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and key != "template":
            found |= relayouting(old, value, f"{path}{key}.")
        elif _is_plotly_list(value) and _is_plotly_list(old) and len(value) == len(old):
            for number, (one, other) in enumerate(zip(old, value, strict=True)):
                found |= relayouting(one, other, f"{path}{key}[{number}].")
        else:
            found[path + key] = value
    return found


def _is_plotly_list(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Whether a part of a plotly figure is a list of dicts, such as its annotations."""
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _same_figure_value(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        # Compare bytes: a tenth of the cost of array_equal, and NaN equals NaN.
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            value is other[key] or _same_figure_value(value, other[key]) for key, value in one.items()
        )
    return bool(type(one) is type(other) and one == other)
