"""Clock: steps to places on the axis and back."""

import numpy as np
import pytest
from figures.synthetic import busy_trace, trace_of

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.timelines.axis import Clock


def marks_at(*times):
    events = np.zeros(len(times), EVENT)
    events["seq"], events["kind"], events["bin"], events["time"] = range(len(times)), Kind.MARK, -1, times
    return trace_of(events)


def test_steps_are_their_own_places():
    clock = Clock.of(busy_trace())
    assert clock.unit == 1
    assert [clock.position(step) for step in (0, 7, 609)] == [0, 7, 609]
    assert [clock.step_at(x) for x in (-3.0, 0.0, 6.999, 7.0, 1e9)] == [0, 0, 6, 7, 609]


def test_a_step_is_at_the_time_of_the_event_that_led_to_it():
    clock = Clock.of(marks_at(5_000_000, 6_000_000, 6_000_000, 9_000_000), "time")
    assert clock.title == "time (ms)"
    assert clock.unit == 1e6
    assert [clock.position(step) for step in range(5)] == [5, 5, 6, 6, 9]
    # Before anything happened step 0; where several events share a time, the last of them.
    assert [clock.step_at(x) for x in (0, 5, 5.9, 6, 8.99, 9, 100)] == [0, 1, 1, 3, 3, 4, 4]


def test_there_and_back_is_the_same_step_in_any_unit():
    times = np.cumsum(np.random.default_rng(0).integers(1, 3_000_000_000, 500)) + 123_456_789_012
    clock = Clock.of(marks_at(*times), "time")
    assert clock.unit == 1e9
    assert [clock.step_at(clock.position(step)) for step in range(1, 501)] == list(range(1, 501))


def test_places_of_many_steps_are_those_of_each():
    trace = busy_trace()
    events = trace.read(0, len(trace))
    for axis in ("step", "time"):
        clock = Clock.of(trace, axis)
        many = clock.positions(events["seq"] + 1, events["time"])
        assert many.tolist() == [clock.position(step) for step in range(1, len(trace) + 1)]
        assert many.dtype == np.float64


@pytest.mark.parametrize("axis", ["step", "time"])
def test_a_window_is_shown_exactly_and_the_whole_with_room(axis):
    clock = Clock.of(busy_trace(), axis)
    assert clock.range((100, 200)) == [clock.position(100), clock.position(200)]
    left, right = clock.range(None)
    assert left == 0
    assert 1 < right / clock.position(609) < 1.02
    assert clock.xaxis((100, 200))["title"]["text"] == clock.xaxis(None)["title"]["text"] == clock.title


@pytest.mark.parametrize("axis", ["step", "time"])
def test_a_range_is_never_empty(axis):
    for trace in (marks_at(), marks_at(7), marks_at(7, 7, 7)):
        clock = Clock.of(trace, axis)
        for steps in (None, (0, 0), (0, len(trace))):
            left, right = clock.range(steps)
            assert left < right
