"""StepAxis: steps to positions on the axis and back."""

import itertools

import numpy as np
import pytest
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.timelines import StepAxis, envelope, upper_edge
from bfcviz.model.timelines import timeline


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
