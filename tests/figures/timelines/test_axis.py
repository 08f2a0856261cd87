"""StepAxis: steps to positions on the axis and back."""

import numpy as np
import pytest
from figures.synthetic import busy_trace, trace_of

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.timelines.axis import StepAxis


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
