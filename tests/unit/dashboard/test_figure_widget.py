"""Plotly's script in the page: sent once for all figures, without what a dashboard does not need."""

import gzip
from threading import Thread

import comm
import numpy as np
from ipywidgets.widgets.widget import _instances

import bfcviz
from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.figure_widget import OneWayFigureWidget, PlotlyScript


def test_figures_share_one_script():
    one, other = OneWayFigureWidget(), OneWayFigureWidget()
    assert {one._script_model_id, other._script_model_id} == {PlotlyScript.shared().model_id}
    assert 300_000 < len(PlotlyScript.shared().script) < 600_000
    assert len(str(one.get_state())) < 50_000
    sent = list(_instances)
    assert sent.index(PlotlyScript.shared().model_id) < sent.index(one.model_id)  # the page needs it first


def test_the_script_stays_when_a_dashboard_is_closed():
    script = PlotlyScript.shared()
    bfcviz.Inspector(bfcviz.open(bfcviz.sample("oom_log"))).close()
    assert script.comm is not None
    assert PlotlyScript.shared() is script


def test_the_script_is_sent_again_after_all_widgets_were_closed():
    before = PlotlyScript.shared().model_id
    widget_lifetime.close(PlotlyScript.shared())
    after = OneWayFigureWidget()._script_model_id
    assert after != before
    assert PlotlyScript.shared().model_id == after


def test_the_page_does_not_search_hidden_traces_for_arrays():
    """Holds as long as plotly's script defines this function as it does now."""
    body = gzip.decompress(PlotlyScript.shared().script).decode().split(".findArrayAttributes=function(")[1:]
    assert [part.split("{")[1].split(";")[0] for part in body] == [
        f"if({body[0][0]}.visible===false)return[]"
    ]


def test_the_script_leaves_the_plotly_of_the_page_alone():
    """Holds as long as plotly's script begins and ends as it does now."""
    script = gzip.decompress(PlotlyScript.shared().script).decode()
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
