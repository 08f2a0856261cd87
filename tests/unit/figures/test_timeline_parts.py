"""StepAxis: steps to positions on the axis and back."""

import itertools

import numpy as np
import pytest
from heaps import new_heap
from unit.figures.drawn import stats_timeline
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, marked_trace, trace_of

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures import timeline_parts
from bfcviz.figures.stats_timeline import stats_panel
from bfcviz.figures.timeline_parts import StepAxis, envelope, measure_history, upper_edge
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model import timelines as series
from bfcviz.model.timelines import timeline
from bfcviz.model.trace_from_source import trace_of as trace_of_heap


def marks_at(*times):
    events = np.zeros(len(times), EVENT)
    events["seq"], events["kind"], events["bin"], events["time"] = range(len(times)), Kind.MARK, -1, times
    return trace_of(events)


def test_on_a_step_axis_positions_are_steps():
    step_axis = StepAxis.of(busy_trace())
    assert step_axis.unit == 1
    assert [step_axis.position(step) for step in (0, 7, 609)] == [0, 7, 609]
    assert [step_axis.step_at(x) for x in (-3.0, 0.0, 6.999, 7.0, 1e9)] == [0, 0, 6, 7, 609]


def test_a_step_is_at_the_time_of_the_event_that_led_to_it():
    step_axis = StepAxis.of(marks_at(5_000_000, 6_000_000, 6_000_000, 9_000_000), "time")
    assert step_axis.title == "time (ms)"
    assert step_axis.unit == 1e6
    assert [step_axis.position(step) for step in range(5)] == [5, 5, 6, 6, 9]
    # Before the first event it is step 0; of events with equal times it is the last.
    assert [step_axis.step_at(x) for x in (0, 5, 5.9, 6, 8.99, 9, 100)] == [0, 1, 1, 3, 3, 4, 4]


def test_there_and_back_is_the_same_step_in_any_unit():
    times = np.cumsum(np.random.default_rng(0).integers(1, 3_000_000_000, 500)) + 123_456_789_012
    step_axis = StepAxis.of(marks_at(*times), "time")
    assert step_axis.unit == 1e9
    assert [step_axis.step_at(step_axis.position(step)) for step in range(1, 501)] == list(range(1, 501))


def test_positions_of_many_steps_are_those_of_each():
    trace = busy_trace()
    events = trace.read(0, len(trace))
    for axis in ("step", "time"):
        step_axis = StepAxis.of(trace, axis)
        many = step_axis.positions(events["seq"] + 1, events["time"])
        assert many.tolist() == [step_axis.position(step) for step in range(1, len(trace) + 1)]
        assert many.dtype == np.float64


@pytest.mark.parametrize("axis", ["step", "time"])
def test_a_window_is_shown_exactly_and_the_whole_with_room(axis):
    step_axis = StepAxis.of(busy_trace(), axis)
    assert step_axis.range((100, 200)) == [step_axis.position(100), step_axis.position(200)]
    left, right = step_axis.range(None)
    assert left == 0
    assert 1 < right / step_axis.position(609) < 1.02
    assert (
        step_axis.xaxis((100, 200))["title"]["text"]
        == step_axis.xaxis(None)["title"]["text"]
        == step_axis.title
    )


@pytest.mark.parametrize("axis", ["step", "time"])
def test_a_range_is_never_empty(axis):
    for trace in (marks_at(), marks_at(7), marks_at(7, 7, 7)):
        step_axis = StepAxis.of(trace, axis)
        for steps in (None, (0, 0), (0, len(trace))):
            left, right = step_axis.range(steps)
            assert left < right


def at(x, y, where):
    """The value of a line of shape `hv` at a position where it does not change; it runs in either direction."""
    held = []
    for (x0, y0), x1 in zip(zip(x, y, strict=True), x[1:], strict=False):
        if min(x0, x1) < where < max(x0, x1):
            held.append(y0)
    return held


@pytest.mark.parametrize("axis", ["step", "time"])
def test_an_envelope_reaches_from_the_least_to_the_greatest_value_of_each_interval(axis):
    trace = busy_trace()
    series = timeline(trace, points=20)
    step_axis = StepAxis.of(trace, axis)
    x, y = envelope(series, "bytes_in_use", step_axis)
    assert x[0] == x[-1]
    ends = step_axis.positions(series["step"], series["time"])
    for row, (left, right) in zip(series[1:], itertools.pairwise(ends), strict=True):
        bounds = at(x, y, (left + right) / 2)
        assert bounds == [row["bytes_in_use_max"], row["bytes_in_use_min"]]
        for end, value in zip(("max", "min"), bounds, strict=True):
            edge = upper_edge(series, "bytes_in_use", step_axis, end)
            assert at(*edge, (left + right) / 2) == [value]


def test_single_events_have_a_line_instead_of_an_envelope():
    trace = busy_trace(10)
    series = timeline(trace)
    x, y = envelope(series, "bytes_in_use", StepAxis.of(trace))
    assert x.tolist() == series["step"].tolist()
    assert y.tolist() == series["bytes_in_use_last"].tolist()


def test_ticks_count_the_steps_of_the_program():
    heap = PlainHeap(64 * MiB)
    for number in range(100):
        heap.free(heap.allocate(1000))
        heap.mark("epoch" if number % 10 == 0 else "step", number)
    trace = heap.trace()
    step_axis = StepAxis.of(trace, "mark")
    assert "step" in step_axis.title
    settings = step_axis.xaxis(None)
    numbers = [int(text) for text in settings["ticktext"]]
    assert numbers == list(range(10, 91, 10))
    marks = [event["seq"] + 1 for event in heap.events if event["kind"] == Kind.MARK]
    steps = [step for number, step in enumerate(marks) if number % 10]
    assert settings["tickvals"].tolist() == [steps[number - 1] for number in numbers]
    near = step_axis.xaxis((steps[40], steps[44]))
    assert near["ticktext"] == ["41", "42", "43", "44", "45"]


def test_without_marks_the_axis_shows_steps():
    trace = busy_trace()
    assert StepAxis.of(trace, "mark") == StepAxis.of(trace, "step")


# ------------------------------------------------------------------------------
# The history that timelines draw: of the whole trace or a window, before and after the trace grew.


def named(panel, start):
    (trace,) = [trace for trace in panel.traces if trace["name"].startswith(start)]
    return trace


@pytest.fixture
def coarse(monkeypatch):
    """Pictures of 50 points, from series of at most 200 rows."""
    monkeypatch.setattr(timeline_parts, "POINTS", 50)
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


# ------------------------------------------------------------------------------
# Phases on the stats timeline: pairs of marks.


class Program:
    """A heap, and what the program around it says that it is at."""

    def __init__(self):
        self.heap = PlainHeap(64 * MiB)
        self.numbers = iter(range(1, 1000))

    def work(self, times=10):
        for _ in range(times):
            self.heap.free(self.heap.allocate(MiB))

    def begin(self, name):
        number = next(self.numbers)
        self.heap.mark(f"{name} begins", number, begins=name)
        return name, number

    def end(self, begun):
        self.heap.mark(f"{begun[0]} ends", begun[1], ends=begun[0])


def bars(figure):
    """Name, left, right and height of each bar; the name is the hover's."""
    (trace,) = [trace for trace in figure.data if trace.name.startswith("phase")]
    x, y = np.reshape(trace.x, (-1, 4)), np.reshape(trace.y, (-1, 4))
    names = [text.split("<b>")[1].split("</b>")[0] for text in trace.hovertext[::4]]
    return [(name, place[0], place[2], height[0]) for name, place, height in zip(names, x, y, strict=True)]


def test_phases_are_bars_and_inner_ones_lie_lower():
    program = Program()
    outer = program.begin("epoch")
    for name in ("forward", "backward"):
        inner = program.begin(name)
        program.work()
        program.end(inner)
    program.end(outer)
    epoch, forward, backward = bars(stats_timeline(program.heap.trace()))
    assert [epoch[0], forward[0], backward[0]] == ["epoch", "forward", "backward"]
    assert epoch[1] < forward[1] < forward[2] < backward[1] < backward[2] < epoch[2]
    assert forward[3] == backward[3] < epoch[3]


def test_a_phase_that_has_not_ended_reaches_the_edge_and_one_that_began_before_the_window_comes_in():
    program = Program()
    one = program.begin("one")
    program.work()
    program.end(one)
    program.begin("two")
    program.work()
    trace = program.heap.trace()
    _, (name, begins, ends, _) = bars(stats_timeline(trace))
    assert (name, ends) == ("two", stats_timeline(trace).layout.xaxis.range[1])
    (one, left, right, _), _ = bars(stats_timeline(trace, look=Look(steps=(5, len(trace)))))
    assert (one, left) == ("one", 5)
    assert 5 < right < begins


def test_other_marks_stay_marks():
    program = Program()
    program.heap.mark("checkpoint", 7)
    program.end(program.begin("forward"))
    figure = stats_timeline(program.heap.trace())
    (marks,) = [trace for trace in figure.data if trace.name == "mark"]
    assert len(marks.x) == 3
    assert "checkpoint" in marks.hovertext[0]


@pytest.mark.parametrize("count", [2, 600])
def test_the_legend_counts_phases_that_are_not_drawn(count):
    program = Program()
    begun = [program.begin(f"worker {number}") for number in range(count)]
    program.work(1)
    for each in begun:
        program.end(each)
    (name,) = [t.name for t in stats_timeline(program.heap.trace()).data if t.name.startswith("phase")]
    assert name == ("phase" if count == 2 else "phase (too many: zoom in)")


def test_phases_beside_more_others_than_there_are_lanes_are_counted():
    program = Program()
    begun = [program.begin(f"worker {number}") for number in range(7)]
    program.work(1)
    for each in begun:
        program.end(each)
    figure = stats_timeline(program.heap.trace())
    assert len(bars(figure)) == 4
    assert any(trace.name == "phase (3 more)" for trace in figure.data)


def test_names_are_harmless():
    program = Program()
    program.end(program.begin("<script>alert(1)</script>"))
    (trace,) = [t for t in stats_timeline(program.heap.trace()).data if t.name == "phase"]
    assert not any("<script" in text for text in (*trace.text, *trace.hovertext))


# ------------------------------------------------------------------------------
# Marks on the stats timeline.


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


def test_a_mark_without_a_value_shows_none_and_one_of_0_shows_it():
    heap = new_heap()
    for name, *value in (("begin",), ("step", 0), ("end",), ("step", 1), ("begin",)):
        heap.mark(name, *value)
    mark = named(stats_panel(measure_history(trace_of_heap(heap)), None, Look()), "mark")
    texts = dict(zip(mark["x"].tolist(), mark["hovertext"], strict=True))
    assert [("value 0" in texts[step], "value" in texts[step]) for step in range(1, 6)] == [
        (False, False),
        (True, True),
        (False, False),
        (False, True),
        (False, False),
    ]


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
