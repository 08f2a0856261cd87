"""Plotly's script in the page: sent once for all figures, without what a dashboard does not need."""

import gc
import gzip
import json
import shutil
import subprocess
from threading import Thread

import comm
import numpy as np
import pytest
from ipywidgets.widgets.widget import _instances
from plotly.basedatatypes import Undefined
from unit.figures.synthetic import busy_trace

import bfcviz
from bfcviz.dashboard import side_by_side, widget_lifetime
from bfcviz.dashboard.figure_widget import (
    FigureView,
    OneWayFigureWidget,
    PlotlyScriptWidget,
    difference,
    relayouting,
    restyling,
)
from bfcviz.dashboard.layouts import names_in
from bfcviz.dashboard.panel_data import PanelData
from bfcviz.errors import BfcvizError
from bfcviz.figures.panel import CONFIG
from bfcviz.figures.theme import DARK
from bfcviz.figures.view_options import Look


def test_figures_share_one_script():
    one, other = OneWayFigureWidget(), OneWayFigureWidget()
    assert {one._script_model_id, other._script_model_id} == {PlotlyScriptWidget.shared().model_id}
    assert 300_000 < len(PlotlyScriptWidget.shared().script) < 600_000
    assert len(str(one.get_state())) < 50_000
    sent = list(_instances)
    assert sent.index(PlotlyScriptWidget.shared().model_id) < sent.index(
        one.model_id
    )  # the page needs it first


def test_the_script_stays_when_a_dashboard_is_closed():
    script = PlotlyScriptWidget.shared()
    bfcviz.Inspector(bfcviz.open(bfcviz.sample("oom_log"))).close()
    assert script.comm is not None
    assert PlotlyScriptWidget.shared() is script


def test_the_script_is_sent_again_after_all_widgets_were_closed():
    before = PlotlyScriptWidget.shared().model_id
    widget_lifetime.close(PlotlyScriptWidget.shared())
    after = OneWayFigureWidget()._script_model_id
    assert after != before
    assert PlotlyScriptWidget.shared().model_id == after


def test_the_page_does_not_search_hidden_traces_for_arrays():
    """Holds as long as plotly's script defines this function as it does now."""
    body = (
        gzip.decompress(PlotlyScriptWidget.shared().script)
        .decode()
        .split(".findArrayAttributes=function(")[1:]
    )
    assert [part.split("{")[1].split(";")[0] for part in body] == [
        f"if({body[0][0]}.visible===false)return[]"
    ]


def test_the_script_leaves_the_plotly_of_the_page_alone():
    """Holds as long as plotly's script begins and ends as it does now."""
    script = gzip.decompress(PlotlyScriptWidget.shared().script).decode()
    assert "\nvar Plotly=(" in script  # a name of the module
    assert "window.Plotly=" not in script


def figure(**options):
    return OneWayFigureWidget(data=[{"type": "scatter", "x": np.arange(3.0), "y": [1, 2, 3]}], **options)


def test_a_page_gets_the_whole_figure_at_once(monkeypatch):
    sent = []
    monkeypatch.setattr(comm.DummyComm, "send", lambda *_, **__: sent.append(_))
    opened = []
    monkeypatch.setattr(comm, "create_comm", lambda **given: opened.append(given) or comm.DummyComm())
    shown = figure(config={"responsive": True}, step=7)
    state = next(each["data"]["state"] for each in opened if "_widget_data" in each["data"]["state"])
    assert state["_widget_data"][0]["y"] == [1, 2, 3]
    assert state["_config"] == {"responsive": True}
    assert state["_shown"] == {"number": 0, "step": 7}
    assert shown._repr_mimebundle_()
    assert sent == []


def test_a_page_that_loads_later_begins_with_the_newest_state():
    shown = figure(step=7)
    with shown.changes(8):
        shown.plotly_restyle({"y": [[4, 5, 6]]}, [0])
        shown.plotly_relayout({"height": 99})
        shown.add_traces([{"type": "scatter", "x": [1], "y": [1]}])
    shown.plotly_relayout({"xaxis.range": [0, 1]})
    state = shown.get_state()
    assert [trace["y"] for trace in state["_widget_data"]] == [[4, 5, 6], [1]]
    assert (state["_widget_layout"]["height"], state["_widget_layout"]["xaxis"]["range"]) == (99, [0, 1])
    assert state["_shown"] == {"number": 2, "step": 8}


def test_a_page_that_misses_a_change_gets_the_whole_figure():
    shown = figure()
    shown.plotly_restyle({"y": [[4, 5, 6]]}, [0])
    sent = []
    shown._updates.send_update = lambda number, update: sent.append((number, update))
    shown._handle_custom_msg({"do": "whole"}, [])
    [(number, update)] = sent
    assert (number, update["number"]) == (2, 2)
    assert update["parts"][0]["data"][0]["y"] == [4, 5, 6]
    shown.data = ()  # a change that has no message of its own
    assert sent[-1][1]["parts"] == [{"data": [], "layout": shown._layout}]


def test_a_page_never_begins_with_half_of_an_update():
    shown, states = figure(step=1), []
    with shown.changes(2):
        shown.plotly_restyle({"y": [[4, 5, 6]]}, [0])
        page = Thread(target=lambda: states.append(shown.get_state()))
        page.start()
        page.join(0.1)
        assert states == []
        shown.plotly_relayout({"height": 99})
    page.join()
    assert (states[0]["_shown"]["step"], states[0]["_widget_layout"]["height"]) == (2, 99)


def test_arrays_travel_as_bytes(monkeypatch):
    sent = []
    shown = figure()
    monkeypatch.setattr(
        shown._updates, "_send", lambda message, buffers=None: sent.append((message, buffers))
    )
    shown.plotly_restyle({"x": [np.arange(4.0)]}, [0])
    [(message, [buffer])] = sent
    assert np.frombuffer(buffer).tolist() == [0, 1, 2, 3]
    assert message["buffer_paths"] == [["update 1", "parts", 0, "restyle", "x", 0, "buffer"]]


def test_the_way_of_the_updates_is_closed_with_the_figure():
    shown = figure()
    ways = {shown.model_id, shown._updates.model_id}
    assert ways <= {*_instances}
    widget_lifetime.close(shown)
    assert not ways & {*_instances}


# ------------------------------------------------------------------------------
# figure_widget.js without a page: what a notebook that is saved with its widgets keeps of a figure.


NODE = shutil.which("node")
PAGE = """
const changed = [];
const updates = { attributes: {}, on: (_, changes) => changed.push(changes), off() {} };
const state = {
  _shown: { number: 0, step: 3 },
  _widget_data: [{ x: { dtype: "float64", shape: [2], value: bytes(new Float64Array([1, 2])) }, y: [1, null] }],
  _widget_layout: { title: "before", height: 360 },
};
function bytes(array) { return new DataView(array.buffer); }
const get_model = async () => updates;
const set = (name, value) => (state[name] = value);
const model = { get: (name) => state[name], set, widget_manager: { get_model } };
globalThis.setTimeout = (call) => queueMicrotask(call);
make().initialize({ model });
await new Promise((done) => setImmediate(done));
updates.attributes["update 1"] = { number: 1, step: 4, parts: [{
  traces: [0],
  restyle: { x: [{ dtype: "int16", shape: [3], value: bytes(new Int16Array([7, 8, 9])) }], "marker.color": ["red"] },
  relayout: { "xaxis.range[0]": 5, title: null },
}] };
for (const each of changed) each();
await new Promise((done) => setImmediate(done));
const listed = (_, value) => (value instanceof DataView ? [...new Uint8Array(value.buffer)] : value);
console.log(JSON.stringify(state, listed));
"""


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_a_notebook_saved_with_its_widgets_keeps_the_newest_figure(tmp_path):
    module, page = tmp_path / "figure.mjs", tmp_path / "page.mjs"
    module.write_text(OneWayFigureWidget._esm)
    page.write_text(f'import make from "./{module.name}";{PAGE}')
    state = json.loads(subprocess.check_output([NODE, page], text=True, timeout=150))
    assert state["_shown"] == {"number": 1, "step": 4}
    assert state["_widget_layout"] == {"height": 360, "xaxis": {"range": [5]}}
    (trace,) = state["_widget_data"]
    assert trace["x"] == {"dtype": "int16", "shape": [3], "value": [7, 0, 8, 0, 9, 0]}
    assert (trace["y"], trace["marker"]) == ([1, None], {"color": "red"})


def test_only_what_differs_is_sent():
    x = np.arange(3.0)
    before = {"x": x, "y": np.array([1.0, np.nan]), "name": "a", "text": ["t"]}
    after = {"x": x, "y": np.array([1.0, np.nan]), "name": "b", "text": ["t"]}
    assert difference(before, after) == {"name": "b"}


def test_an_array_is_not_mistaken_for_a_list():
    assert "x" in difference({"x": [1.0]}, {"x": np.array([1.0])})


def test_changed_traces_send_all_keys_that_change_anywhere():
    one, two, three = {"x": 1, "y": 2}, {"x": 1, "text": 5}, {"x": 9, "y": 9}
    values, changed = restyling([(one, one | {"x": 7}), (two, two | {"text": 6}), (three, three)])
    assert changed == [0, 1]
    assert values == {"text": [Undefined, 6], "x": [7, 1]}


def test_of_a_marker_only_parts_are_sent():
    """Else a trace without a marker gets an empty one in the page, which plotly cannot handle."""
    dots = {"x": 1, "marker": {"size": 1, "line": {"width": 1}}, "meta": {"a": 1}}
    line = {"x": 1}
    moved = dots | {"marker": {"size": 2, "line": {"width": 3}}, "meta": {"a": 2}}
    values, changed = restyling([(dots, moved), (line, {"x": 2})])
    assert changed == [0, 1]
    assert values["marker.size"] == [2, Undefined]
    assert values["marker.line.width"] == [3, Undefined]
    assert values["meta"] == [{"a": 2}, Undefined]
    assert "marker" not in values


def test_a_panel_is_added_when_first_shown_and_then_only_hidden():
    panel_data, look = PanelData(busy_trace(), 0), Look()
    panel_data.model.seek(300)
    view = FigureView(panel_data.panels(names_in("active_memory"), look), "active_memory", Look())
    traces = len(view.widget.data)
    map_axis, lower_axis = view.widget.layout.xaxis, view.widget.layout.xaxis3
    view.show(panel_data.panels(names_in("fragmentation"), look), "fragmentation", Look())
    joined = len(view.widget.data)
    assert joined > traces
    assert map_axis.visible is True
    assert lower_axis.visible is False
    assert not any(trace.visible for trace in view.widget.data if trace.xaxis == "x3")
    view.show(panel_data.panels(names_in("active_memory"), look), "active_memory", Look())
    assert len(view.widget.data) == joined
    assert lower_axis.visible is True
    assert [panel.name for panel in view.panels.values()][:3] == ["region_map", "strip", "active_memory"]
    assert view.panel_at(1) is view.panels["region_map"]
    assert view.panel_at(99) is None


def test_another_theme_changes_paper_and_paint():
    panel_data = PanelData(busy_trace(), 0)
    panel_data.model.seek(300)
    view = FigureView(panel_data.panels(names_in("active_memory"), Look()), "active_memory", Look())
    view.show(
        panel_data.panels(names_in("active_memory"), Look(theme="dark")), "active_memory", Look(theme="dark")
    )
    assert view.widget.layout.template.layout.paper_bgcolor == DARK.paper
    assert next(trace for trace in view.widget.data if trace.name == "free").fillcolor == DARK.free.fill


def test_only_what_differs_of_a_layout_is_sent():
    before = {"xaxis": {"title": {"text": "a"}, "range": [0, 1]}, "height": 5}
    after = {"xaxis": {"title": {"text": "b"}, "range": [0, 1]}, "height": 5, "xaxis2": {"range": [0, 1]}}
    assert relayouting(before, after) == {"xaxis.title.text": "b", "xaxis2": {"range": [0, 1]}}


def test_of_a_list_of_dicts_only_parts_are_sent():
    one, two = {"text": "a", "x": 0}, {"text": "b", "x": 1}
    before, after = {"annotations": [one, two]}, {"annotations": [one, two | {"text": "c"}]}
    assert relayouting(before, after) == {"annotations[1].text": "c"}
    longer = {"annotations": [one, two, one]}
    assert relayouting(before, longer) == longer


def test_a_step_sends_no_whole_list_of_titles(monkeypatch):
    panel_data, look = PanelData(busy_trace(), 0), Look()
    panel_data.model.seek(300)
    view = FigureView(panel_data.panels(names_in("everything"), look), "everything", look)
    sent = []
    monkeypatch.setattr(view.widget, "_send_update_msg", lambda **parts: sent.append(parts["relayout_data"]))
    panel_data.model.seek(400)
    panels = panel_data.panels(names_in("everything"), look)
    view.show(panels, "everything", look)
    titles = {key: text for key, text in sent[0].items() if key.startswith("annotations")}
    number = list(view.panels).index("ladder")
    assert panels["ladder"].caption in titles[f"annotations[{number}].text"]
    assert {key.split("].")[-1] for key in titles} == {"text"}
    assert view.widget.layout.annotations[number].text == titles[f"annotations[{number}].text"]


def test_a_zoom_does_not_change_the_drawn_ranges():
    panel_data = PanelData(busy_trace(), 0)
    panel_data.model.seek(300)
    view = FigureView(panel_data.panels(names_in("active_memory"), Look()), "active_memory", Look())
    panel_data.model.seek(1)  # other ranges
    view.show(panel_data.panels(names_in("active_memory"), Look()), "active_memory", Look())
    drawn = {name: list(panel.yaxis["range"]) for name, panel in view.panels.items()}
    # As plotly does when the page sends a zoom.
    view.widget.plotly_relayout(
        {f"yaxis{number}.range[0]": 0.125 for number in range(2, 4)} | {"yaxis.range[0]": 0.125}
    )
    assert {name: list(panel.yaxis["range"]) for name, panel in view.panels.items()} == drawn


def test_a_step_is_one_message_to_the_figure(monkeypatch):
    panel_data, look = PanelData(busy_trace(), 0), Look()
    panel_data.model.seek(300)
    view = FigureView(panel_data.panels(names_in("active_memory"), look), "active_memory", look, step=300)
    sent = messages_to(monkeypatch, view.widget)
    for step, layout in ((400, "active_memory"), (500, "fragmentation")):  # the second adds axes and traces
        panel_data.model.seek(step)
        view.show(panel_data.panels(names_in(layout), look), layout, look, step=step)
    updates = [update for state in sent for update in state.values()]
    assert [(update["number"], update["step"]) for update in updates] == [(1, 400), (2, 500)]
    assert len(sent) == 2
    assert any("add" in part for part in updates[1]["parts"])


def test_a_step_with_the_same_picture_is_told_too(monkeypatch):
    """Else the page believes that the figure does not follow the header."""
    panel_data, look = PanelData(busy_trace(), 0), Look()
    panel_data.model.seek(300)
    panels = panel_data.panels(names_in("active_memory"), look)
    view = FigureView(panels, "active_memory", look, step=300)
    sent = messages_to(monkeypatch, view.widget)
    view.show(panels, "active_memory", look, step=300)
    assert sent == []
    view.show(panels, "active_memory", look, step=301)
    assert [[update["step"] for update in state.values()] for state in sent] == [[301]]


def messages_to(monkeypatch, figure):
    """The states that are sent to the page from now on, of the figure and of the widget that has its updates."""
    sent = []
    for widget in (figure, figure._updates):
        monkeypatch.setattr(widget, "_send", lambda message, buffers=None: sent.append(message["state"]))
    return sent


def test_only_traces_that_draw_something_or_have_a_legend_entry_are_visible():
    """Plotly lays out each visible trace with each step: most rectangles of the map are empty while it is an image."""
    panel_data, look = PanelData(busy_trace(), 0), Look()
    panel_data.model.seek(300)
    view = FigureView(panel_data.panels(names_in("active_memory"), look), "active_memory", look)
    of_map = [trace for trace in view.widget.data if trace.xaxis == "x"]
    empty = [
        trace for trace in of_map if trace.type == "scatter" and np.isnan(trace.x).all() and len(trace.x)
    ]
    assert len(empty) > 10
    assert [trace.visible for trace in empty] == [trace.showlegend is not False for trace in empty]
    assert all(trace.visible for trace in of_map if trace.type == "scatter" and not np.isnan(trace.x).any())


# ------------------------------------------------------------------------------
# Figures beside each other in a notebook.


def row_of(*names):
    trace = bfcviz.open(bfcviz.sample("oom_log"))
    figures = [bfcviz.draw(name, trace).update_layout(width=400) for name in names]
    return figures, side_by_side(*figures)


def test_it_shows_the_figures_in_their_order_and_sends_one_script():
    figures, row = row_of("region_map", "bin_histogram")
    assert len(row.children) == 2
    for child, figure in zip(row.children, figures, strict=True):
        assert child.layout == figure.layout
        assert [trace.name for trace in child.data] == [trace.name for trace in figure.data]
        assert child._config == CONFIG
    assert {child._script_model_id for child in row.children} == {PlotlyScriptWidget.shared().model_id}
    assert row.layout.flex_flow == "row wrap"


@pytest.mark.parametrize("given", [[], [[]], ["region_map"]])
def test_what_is_no_figure_is_refused(given):
    with pytest.raises(BfcvizError, match="figure"):
        side_by_side(*given)


def test_it_is_freed_after_its_last_view():
    _, row = row_of("region_map", "bin_histogram")
    numbers = {row.model_id, *(child.model_id for child in row.children)}
    assert numbers <= {*_instances}
    for views in (1, 0):
        row._view_count = views
    del row
    gc.collect()
    assert not numbers & {*_instances}
