"""What all timelines draw: the whole trace or a window, before and after it grew, with its signs."""

import numpy as np
import pytest
from figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.style.view_options import Look
from bfcviz.figures.timelines import axis as timelines
from bfcviz.figures.timelines.history import history
from bfcviz.figures.timelines.stats import stats_panel, stats_timeline
from bfcviz.model import Model, timeline
from bfcviz.model.timelines import rolling


def marked_trace(count=5, every=40, label="<b>epoch</b> \u05d0"):
    """A busy heap with a mark after every few operations."""
    heap = PlainHeap(64 * MiB)
    number = heap.labels.intern(label)
    for i in range(count * every):
        heap.free(heap.allocate(1000 + 300 * i))
        if i % every == every - 1:
            heap._event(Kind.MARK, label=number, size=i)
    return heap.trace()


def named(panel, start):
    (trace,) = [trace for trace in panel.traces if trace["name"].startswith(start)]
    return trace


@pytest.fixture
def coarse(monkeypatch):
    """Pictures of 50 points, from series of at most 200 rows."""
    monkeypatch.setattr(timelines, "POINTS", 50)
    monkeypatch.setattr(rolling, "POINTS", 100)
    monkeypatch.setattr(rolling.Running.__init__, "__defaults__", (0, 100, 0))


def test_a_narrow_window_is_exact_and_reaches_over_both_edges(coarse):
    trace = busy_trace(2000)
    seen = history(trace, look=Look(steps=(1000, 1040)))
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
    whole = history(trace)
    seen = history(trace, look=Look(steps=(500, 2500)), before=whole)
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
    grown.source.length = 2000
    before = history(grown)
    grown.source.length = len(events)
    read = []
    blocks = grown.blocks
    monkeypatch.setattr(grown, "blocks", lambda a, b: read.append((a, b)) or blocks(a, b))
    after = history(grown, before=before)
    assert [stretch for stretch in read if stretch[0] < stretch[1]] == [(2000, len(events))]
    assert np.array_equal(after.series, history(trace).series)
    assert after.clock.last == len(events)


def test_another_request_is_measured_for(coarse):
    trace = busy_trace(2000)
    whole = history(trace)
    narrow, wide = Look(steps=(100, 120), wanted=MiB), Look(wanted=MiB)
    one = history(trace, look=narrow, before=whole)
    assert one.running is whole.running
    assert np.array_equal(one.series, timeline(trace, 0, 99, 121, wanted=MiB))
    other = history(trace, look=wide, before=one)
    assert other.running is not whole.running
    assert other.series["too_small_share_max"].max() > 0
    assert history(trace, before=other).series["too_small_share_max"].max() == 0


def test_a_history_of_another_heap_is_of_no_use():
    trace, other = busy_trace(), busy_trace(50)
    assert history(other, before=history(trace)).running.step == len(other)


@pytest.mark.parametrize("steps", [(0, 0), (5, 5), (609, 609), (608, 609), (0, 609)])
def test_any_window_can_be_drawn(steps):
    figure = stats_timeline(busy_trace(), 5, look=Look(steps=steps))
    left, right = figure.layout.xaxis.range
    assert left == steps[0]
    assert right == max(steps[1], steps[0] + 1)


def test_marks_are_upright_lines_with_their_label_on_hover():
    panel = stats_panel(history(marked_trace()), None, Look())
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
    assert not named(stats_panel(history(busy_trace()), None, Look()), "mark")["showlegend"]


def test_many_marks_are_thinned_and_said_to_be():
    trace = marked_trace(200, 1)  # a mark after every fifth step
    mark = named(stats_panel(history(trace), None, Look()), "mark")
    assert len(mark["x"]) <= 3 * 60
    shown = len(mark["x"]) // 3
    assert 50 <= shown <= 60
    assert mark["name"] == f"mark ({shown} of 200 shown)"
    assert np.diff(mark["x"][::3]).min() > 0
    zoomed = Look(steps=(0, 40))
    assert named(stats_panel(history(trace, look=zoomed), None, zoomed), "mark")["name"] == "mark"


def test_zoomed_in_no_mark_is_left_out():
    events = np.zeros(5000, EVENT)
    events["seq"], events["kind"], events["bin"] = np.arange(5000), Kind.MARK, -1
    trace = trace_of(events)
    whole = history(trace)
    assert whole.marks.every == 8
    window = history(trace, look=Look(steps=(1000, 1040)), before=whole)
    assert window.marks.every == 1
    assert window.marks.events["seq"].tolist() == list(range(999, 1041))


def test_the_same_traces_for_every_look_in_the_same_order():
    shapes = set()
    for trace in (busy_trace(), marked_trace(), trace_of(np.zeros(0, EVENT))):
        for look in (Look(), Look(axis="time", theme="dark"), Look(wanted=MiB)):
            panel = stats_panel(history(trace, look=look), None, look)
            shapes.add(tuple((t["type"], t["name"].split(" (")[0], t["mode"]) for t in panel.traces))
    assert len(shapes) == 1


def test_a_crowd_of_marks_hides_no_lonely_one():
    heap = PlainHeap(64 * MiB)
    for _ in range(500):
        heap._event(Kind.MARK)
    for i in range(2000):
        heap.free(heap.allocate(500 + i))
    heap._event(Kind.MARK)
    trace = heap.trace()
    mark = named(stats_panel(history(trace), None, Look()), "mark")
    assert len(mark["x"]) // 3 < 10
    assert mark["x"][-1] == len(trace)
