"""The fragmentation timeline: its lines are the measures of the model."""

import pytest
from unit.figures.drawn import fragmentation_timeline, named
from unit.figures.synthetic import MiB, busy_trace

from bfcviz.figures import timeline_parts
from bfcviz.figures.fragmentation_timeline import MEASURES
from bfcviz.figures.view_options import Look
from bfcviz.model import Model, fragmentation


@pytest.fixture(scope="module")
def trace():
    return busy_trace()


def test_measures_are_those_of_the_model(trace):
    figure = fragmentation_timeline(trace)
    model = Model(trace)
    for step in (1, 40, 300, 609):
        model.seek(step)
        stats = model.stats()
        for name, shown in MEASURES.items():
            expected = getattr(fragmentation, name)(stats)
            assert named(figure, shown).y[step - 1] == pytest.approx(100 * expected, abs=1e-9)


def test_each_measure_carries_its_definition(trace):
    for name, shown in MEASURES.items():
        assert "1 - " in shown
        told = named(fragmentation_timeline(trace), shown).hovertemplate.replace("<br>", "")
        assert fragmentation.DEFINITIONS[name] in told


def test_inside_long_intervals_no_measure_loses_its_extremes(monkeypatch):
    trace = busy_trace(2000)
    monkeypatch.setattr(timeline_parts, "POINTS", len(trace))
    exact = fragmentation_timeline(trace, look=Look(wanted=MiB))
    monkeypatch.setattr(timeline_parts, "POINTS", 50)
    coarse = fragmentation_timeline(trace, look=Look(wanted=MiB))
    for one, other in zip(coarse.data[:4], exact.data[:4], strict=True):
        assert len(one.x) == 52
        assert max(one.y) == max(other.y) > 0
        assert min(one.y) == min(other.y)
    assert coarse.table.num_rows == 25
    assert max(coarse.table["internal_max"].to_pylist()) == max(exact.table["internal"].to_pylist())


def test_memory_of_no_use_to_a_request_is_the_share_in_smaller_chunks(trace):
    wanted = 128 * 1024
    line = named(fragmentation_timeline(trace, look=Look(wanted=wanted)), "too small for 128.0 KiB")
    model = Model(trace)
    for step in (1, 40, 300, 609):
        model.seek(step)
        free = model.chunks()[~model.chunks()["in_use"]]["size"].astype(float)
        expected = free[free < wanted].sum() / free.sum() if len(free) else 0
        assert line.y[step - 1] == pytest.approx(100 * expected)
    assert not named(fragmentation_timeline(trace), "too small").showlegend
    assert "too_small" not in fragmentation_timeline(trace).table.column_names
