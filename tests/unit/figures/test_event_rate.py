"""The rate of events, over steps and over time."""

import numpy as np
import pytest
from shared import sample_trace
from unit.figures.drawn import event_rate
from unit.figures.synthetic import busy_trace, trace_of

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.event_rate import rate_panel, rates
from bfcviz.figures.timeline_parts import measure_history
from bfcviz.figures.view_options import Look


def marks_at(times):
    events = np.zeros(len(times), EVENT)
    events["seq"], events["kind"], events["bin"] = np.arange(len(times)), Kind.MARK, -1
    events["time"] = times
    return trace_of(events)


@pytest.mark.parametrize("axis", ["step", "time"])
def test_an_even_rate_is_even(axis):
    trace = marks_at(np.arange(5000) * 2_000)
    _, rate = rates(measure_history(trace, look=Look(axis=axis)))
    assert rate == pytest.approx(500_000)


def test_events_counted_are_all_there_are():
    times = np.cumsum(np.random.default_rng(0).integers(0, 50_000, 4000))
    edges, rate = rates(measure_history(marks_at(times), look=Look(axis="time")))
    counted = (rate * np.diff(edges) / 1e9).sum()
    assert counted == pytest.approx(3999, abs=7)  # the first interval has no start


def test_a_burst_shows_as_one():
    times = np.concatenate([np.arange(1000) * 1_000_000, 1_000_000_000 + np.arange(3000) * 100])
    edges, rate = rates(measure_history(marks_at(times)))
    assert rate[edges[:-1] < 900].max() == pytest.approx(1e3, rel=0.01)
    assert rate[edges[:-1] > 1100].min() == pytest.approx(1e7, rel=0.01)


def test_no_time_no_rate():
    for axis in ("step", "time"):
        assert np.isnan(rates(measure_history(marks_at(np.full(100, 7)), look=Look(axis=axis)))[1]).all()


@pytest.mark.parametrize("axis", ["step", "time"])
@pytest.mark.parametrize("count", [0, 1, 2, 609])
def test_it_is_drawn_however_short_the_trace(axis, count):
    trace = busy_trace()
    short = trace_of(trace.read(0, count).copy(), trace.labels)
    figure = event_rate(short, count, look=Look(axis=axis, theme="dark"))
    assert len(figure.data) == 2
    assert figure.data[0].x is None or len(figure.data[0].x) in {0, figure.table.num_rows + 1}


def test_the_axis_is_that_of_the_other_timelines():
    trace, look = busy_trace(), Look(steps=(100, 200))
    seen = measure_history(trace, look=look)
    panel = rate_panel(seen, 150, look)
    assert panel.name == "event_rate"
    assert panel.xaxis["range"] == [100, 200]
    assert panel.traces[0]["x"][0] <= 100
    assert panel.traces[0]["x"][-1] >= 200
    assert list(panel.traces[-1]["x"]) == [150, 150]
    assert len(panel.traces[0]["x"]) <= 60


def test_without_times_it_says_why_it_is_empty_and_has_no_ticks():
    panels = {
        name: rate_panel(measure_history(trace), None, Look())
        for name, trace in (("state", sample_trace("oom_log")), ("history", busy_trace()))
    }
    assert panels["state"].caption != panels["history"].caption
    assert "time" in panels["state"].caption
    assert [panels[name].yaxis["showticklabels"] for name in panels] == [False, True]
    assert not np.isfinite(panels["state"].traces[0]["y"]).any()
