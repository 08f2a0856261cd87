import numpy as np
from plotly.basedatatypes import Undefined
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard.figure_widget import FigureView, difference, relayouting, restyling
from bfcviz.dashboard.layouts import names_in
from bfcviz.dashboard.panels_and_zoom import PanelData
from bfcviz.figures.theme import DARK
from bfcviz.figures.view_options import Look


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
