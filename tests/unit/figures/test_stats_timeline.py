"""The stats timeline: its lines are the totals of the model."""

import numpy as np
import pytest
from unit.figures.drawn import fragmentation_timeline, named, stats_timeline
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.events.schema import EVENT
from bfcviz.figures import timeline_parts
from bfcviz.figures.view_options import Look
from bfcviz.model import Model

EMPTY = trace_of(np.zeros(0, EVENT))


@pytest.fixture(scope="module")
def trace():
    return busy_trace()


def test_lines_go_through_the_stats_of_every_step(trace):
    figure = stats_timeline(trace)
    model = Model(trace)
    lines = {
        "in use": "bytes_in_use",
        "requested": "requested_bytes_in_use",
        "pool": "pool_bytes",
        "largest free chunk": "largest_free_chunk",
        "peak so far": "peak_bytes_in_use",
    }
    for step in (1, 77, 300, 609):
        model.seek(step)
        for name, field in lines.items():
            line = named(figure, name)
            assert line.x[step - 1] == step or name == "peak so far"
            assert line.y[step - 1] * MiB == getattr(model.stats(), field)


def test_a_long_trace_keeps_its_extremes(monkeypatch):
    trace = busy_trace(2000)
    monkeypatch.setattr(timeline_parts, "POINTS", len(trace))
    exact = stats_timeline(trace)
    monkeypatch.setattr(timeline_parts, "POINTS", 50)
    coarse = stats_timeline(trace)
    for name in ("in use", "largest free chunk"):
        assert len(named(coarse, name).x) == 52
        assert max(named(coarse, name).y) == max(named(exact, name).y)
        assert min(named(coarse, name).y) == min(named(exact, name).y)
        assert (named(exact, name).fill, named(coarse, name).fill) == ("none", "toself")
    assert max(named(fragmentation_timeline(trace), "external").y) == pytest.approx(
        100 * max(fragmentation_timeline(trace).table["external_max"].to_pylist())
    )


def test_only_lines_that_are_drawn_are_explained(trace):
    figure = stats_timeline(trace)
    explained = [line.partition(":")[0] for line in figure.notes[0].definition.split("<br>")]
    assert {"pool", "in use", "limit"} <= set(explained)
    assert all(named(figure, name) for name in explained)


def test_the_step_is_marked(trace):
    for draw in (stats_timeline, fragmentation_timeline):
        line = named(draw(trace, 300), "this step")
        assert list(line.x) == [300, 300]
        assert line.y[1] > line.y[0]


def test_failed_requests_are_marked_where_they_happened(trace):
    ooms = named(stats_timeline(trace), "OOM")
    assert list(ooms.x) == [609]
    assert "128.0 MiB" in ooms.hovertext[0]


def test_the_limit_is_drawn_where_it_does_not_flatten_the_rest(trace):
    far = named(stats_timeline(trace), "limit 512.0 MiB")
    assert far.name.endswith("(far above)")
    assert np.isnan(far.y).all()
    near = PlainHeap(500 * MiB)
    near.allocate(MiB)
    assert list(named(stats_timeline(near.trace()), "limit").y) == [512, 512]


def test_over_time_the_axis_is_time(trace):
    figure = stats_timeline(trace, 300, look=Look(axis="time"))
    assert figure.layout.xaxis.title.text == "time (µs)"
    assert list(named(figure, "this step").x) == [299, 299]
    assert named(figure, "in use").x[300] == 300


@pytest.mark.parametrize("draw", [stats_timeline, fragmentation_timeline])
@pytest.mark.parametrize("axis", ["step", "time"])
def test_no_event_and_one_event_are_drawn(draw, axis):
    assert draw(EMPTY, 0, look=Look(axis=axis)).table.num_rows == 0
    one = PlainHeap(MiB)
    one.extend(256)
    figure = draw(one.trace(), 1, look=Look(theme="dark", axis=axis))
    assert figure.table.num_rows == 1


def test_every_axis_has_a_unit(trace):
    assert "MiB" in stats_timeline(trace).layout.yaxis.title.text
    assert "%" in fragmentation_timeline(trace).layout.yaxis.title.text
    assert "events" in stats_timeline(trace).layout.xaxis.title.text
