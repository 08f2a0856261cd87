"""Marks on the stats timeline."""

import numpy as np
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, marked_trace

from bfcviz.events.schema import Kind
from bfcviz.figures.stats_timeline import stats_panel
from bfcviz.figures.timelines import measure_history
from bfcviz.figures.view_options import Look


def named(panel, start):
    (trace,) = [trace for trace in panel.traces if trace["name"].startswith(start)]
    return trace


def test_marks_are_upright_lines_with_their_label_on_hover():
    panel = stats_panel(measure_history(marked_trace()), None, Look())
    mark = named(panel, "mark")
    events = marked_trace().read(0, len(marked_trace()))
    steps = np.flatnonzero(events["kind"] == Kind.MARK) + 1
    assert mark["x"].tolist() == np.repeat(steps, 3).tolist()
    assert np.isnan(mark["y"][2::3]).all()
    assert (mark["y"][1::3] > 0).all()
    assert "&lt;b&gt;epoch&lt;/b&gt;" in mark["hovertext"][1]
    assert "<b>epoch" not in mark["hovertext"][1]
    assert f"step {steps[0]:,}" in mark["hovertext"][1]
    assert mark["showlegend"]
    assert not named(stats_panel(measure_history(busy_trace()), None, Look()), "mark")["showlegend"]


def test_many_marks_are_thinned_and_the_legend_counts_them():
    trace = marked_trace(200, 1)  # a mark after every fifth step
    mark = named(stats_panel(measure_history(trace), None, Look()), "mark")
    assert len(mark["x"]) <= 3 * 60
    shown = len(mark["x"]) // 3
    assert 50 <= shown <= 60
    assert mark["name"] == f"mark ({shown} of 200 shown)"
    assert np.diff(mark["x"][::3]).min() > 0
    zoomed = Look(steps=(0, 40))
    assert named(stats_panel(measure_history(trace, look=zoomed), None, zoomed), "mark")["name"] == "mark"


def test_a_crowd_of_marks_hides_no_lonely_one():
    heap = PlainHeap(64 * MiB)
    for _ in range(500):
        heap.record(Kind.MARK)
    for i in range(2000):
        heap.free(heap.allocate(500 + i))
    heap.record(Kind.MARK)
    trace = heap.trace()
    mark = named(stats_panel(measure_history(trace), None, Look()), "mark")
    assert len(mark["x"]) // 3 < 10
    assert mark["x"][-1] == len(trace)
