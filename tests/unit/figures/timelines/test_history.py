"""The history that timelines draw: of the whole trace or a window, before and after the trace grew."""

import numpy as np
import pytest
from unit.figures.drawn import stats_timeline
from unit.figures.synthetic import MiB, busy_trace, marked_trace, trace_of

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures import timelines
from bfcviz.figures.stats_timeline import stats_panel
from bfcviz.figures.timelines import measure_history
from bfcviz.figures.view_options import Look
from bfcviz.model import Model, timeline
from bfcviz.model import timelines as series


def named(panel, start):
    (trace,) = [trace for trace in panel.traces if trace["name"].startswith(start)]
    return trace


@pytest.fixture
def coarse(monkeypatch):
    """Pictures of 50 points, from series of at most 200 rows."""
    monkeypatch.setattr(timelines, "POINTS", 50)
    monkeypatch.setattr(series, "POINTS", 100)
    monkeypatch.setattr(series.RollingTimeline.__init__, "__defaults__", (0, 100, 0))


def test_a_narrow_window_is_exact_and_reaches_over_both_edges(coarse):
    trace = busy_trace(2000)
    seen = measure_history(trace, look=Look(steps=(1000, 1040)))
    assert seen.series["step"].tolist() == list(range(1000, 1042))
    assert np.array_equal(seen.series, timeline(trace, 0, 999, 1041))
    panel = stats_panel(seen, 1010, Look(steps=(1000, 1040)))
    assert panel.xaxis["range"] == [1000, 1040]
    model = Model(trace)
    model.seek(1020)
    line = named(panel, "in use")
    assert line["y"][line["x"] == 1020] * MiB == model.stats().bytes_in_use
    model.seek(1000)
    assert named(panel, "peak so far")["y"][0] * MiB == model.stats().peak_bytes_in_use


def test_a_wide_window_keeps_its_extremes_in_few_points(coarse):
    trace = busy_trace(2000)
    whole = measure_history(trace)
    seen = measure_history(trace, look=Look(steps=(500, 2500)), before=whole)
    assert seen.running is whole.running
    assert len(whole.series) <= 50
    assert len(seen.series) <= 50
    first, last = int(seen.series["step"][0] - seen.series["events"][0]), int(seen.series["step"][-1])
    assert first < 500
    assert last > 2500
    exact = timeline(trace, 0, first, last, points=last)
    for name in ("bytes_in_use", "external_fragmentation", "internal_fragmentation"):
        assert seen.series[f"{name}_max"].max() == exact[f"{name}_max"].max()
        assert seen.series[f"{name}_min"].min() == exact[f"{name}_min"].min()


def test_only_what_is_new_is_read_again(coarse, monkeypatch):
    trace = busy_trace(2000)
    events = trace.read(0, len(trace))
    grown = trace_of(events, trace.labels)
    grown.source.length, grown.source.following = 2000, True
    before = measure_history(grown)
    grown.source.length = len(events)
    read = []
    blocks = grown.blocks
    monkeypatch.setattr(grown, "blocks", lambda a, b: read.append((a, b)) or blocks(a, b))
    after = measure_history(grown, before=before)
    assert [stretch for stretch in read if stretch[0] < stretch[1]] == [(2000, len(events))]
    assert np.array_equal(after.series, measure_history(trace).series)
    assert after.step_axis.last == len(events)


def test_another_request_is_measured_for(coarse):
    trace = busy_trace(2000)
    whole = measure_history(trace)
    narrow, wide = Look(steps=(100, 120), wanted=MiB), Look(wanted=MiB)
    one = measure_history(trace, look=narrow, before=whole)
    assert one.running is whole.running
    assert np.array_equal(one.series, timeline(trace, 0, 99, 121, wanted=MiB))
    other = measure_history(trace, look=wide, before=one)
    assert other.running is not whole.running
    assert other.series["too_small_share_max"].max() > 0
    assert measure_history(trace, before=other).series["too_small_share_max"].max() == 0


def test_a_history_of_another_heap_is_of_no_use():
    trace, other = busy_trace(), busy_trace(50)
    assert measure_history(other, before=measure_history(trace)).running.step == len(other)


@pytest.mark.parametrize("steps", [(0, 0), (5, 5), (609, 609), (608, 609), (0, 609)])
def test_any_window_can_be_drawn(steps):
    figure = stats_timeline(busy_trace(), 5, look=Look(steps=steps))
    left, right = figure.layout.xaxis.range
    assert left == steps[0]
    assert right == max(steps[1], steps[0] + 1)


def test_zoomed_in_no_mark_is_left_out():
    events = np.zeros(5000, EVENT)
    events["seq"], events["kind"], events["bin"] = np.arange(5000), Kind.MARK, -1
    trace = trace_of(events)
    whole = measure_history(trace)
    assert whole.marks.every == 8
    window = measure_history(trace, look=Look(steps=(1000, 1040)), before=whole)
    assert window.marks.every == 1
    assert window.marks.events["seq"].tolist() == list(range(999, 1041))


def test_the_same_traces_for_every_look_in_the_same_order():
    shapes = set()
    for trace in (busy_trace(), marked_trace(), trace_of(np.zeros(0, EVENT))):
        for look in (Look(), Look(axis="time", theme="dark"), Look(wanted=MiB)):
            panel = stats_panel(measure_history(trace, look=look), None, look)
            shapes.add(tuple((t["type"], t["name"].split(" (")[0], t["mode"]) for t in panel.traces))
    assert len(shapes) == 1
