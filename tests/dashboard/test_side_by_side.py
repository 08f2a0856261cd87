"""Figures beside each other in a notebook."""

import bfcviz
from bfcviz.dashboard import side_by_side
from bfcviz.dashboard.panels.figure_widget import PlotlyScript


def test_it_shows_the_figures_in_their_order_and_sends_one_script():
    trace = bfcviz.open(bfcviz.sample("oom_log"))
    figures = [bfcviz.draw(name, trace).update_layout(width=400) for name in ("region_map", "bin_histogram")]
    row = side_by_side(*figures)
    assert len(row.children) == 2
    for child, figure in zip(row.children, figures, strict=True):
        assert child.layout == figure.layout
        assert [trace.name for trace in child.data] == [trace.name for trace in figure.data]
    assert {child._script_model_id for child in row.children} == {PlotlyScript.shared().model_id}
    assert row.layout.flex_flow == "row wrap"
