"""Plotly's script in the page: sent once for all figures, without what a dashboard does not need."""

from ipywidgets.widgets.widget import _instances

import bfcviz
from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.panels.figure_widget import OneWayFigureWidget, PlotlyScript


def test_figures_share_one_script():
    one, other = OneWayFigureWidget(), OneWayFigureWidget()
    assert {one._script_model_id, other._script_model_id} == {PlotlyScript.shared().model_id}
    assert len(PlotlyScript.shared().script) > 3_000_000
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


def test_the_page_sends_no_traces_and_no_layout_back():
    """Holds as long as plotly's script defines these two functions as it does now."""
    for name in ("_sendTraceDeltas(", "_sendLayoutDelta("):
        parts = PlotlyScript.shared().script.split(name)[1:]
        assert len([part for part in parts if "{return;" in part[:12]]) == 1


def test_the_page_does_not_search_hidden_traces_for_arrays():
    """Holds as long as plotly's script defines this function as it does now."""
    body = PlotlyScript.shared().script.split(".findArrayAttributes=function(")[1:]
    assert [part.split("{")[1].split(";")[0] for part in body] == [
        f"if({body[0][0]}.visible===false)return[]"
    ]
