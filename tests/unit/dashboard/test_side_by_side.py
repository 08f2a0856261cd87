"""Figures beside each other in a notebook."""

import gc

import pytest
from ipywidgets.widgets.widget import _instances

import bfcviz
from bfcviz.dashboard import side_by_side
from bfcviz.dashboard.figure_widget import PlotlyScript
from bfcviz.errors import BfcvizError
from bfcviz.figures.panel import CONFIG


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
    assert {child._script_model_id for child in row.children} == {PlotlyScript.shared().model_id}
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
