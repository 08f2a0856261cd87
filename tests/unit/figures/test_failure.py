"""The picture of a failed request: its bars and its table, counted by hand."""

import pytest
from unit.analysis.built import BASE, MIB, state
from unit.figures.drawn import failure
from unit.figures.odd_traces import assert_drawable
from unit.figures.synthetic import busy_trace

from bfcviz.figures import Look, draw
from bfcviz.figures.failure import MOST_BARS
from bfcviz.model import Model


def bars(figure, name):
    """The bars of one colour, as (row, start, end) in MiB."""
    trace = next(each for each in figure.data if each.name == name and each.base is not None)
    return [(row, base, base + width) for row, base, width in zip(trace.y, trace.base, trace.x, strict=True)]


@pytest.fixture
def trace():
    """Freeing op3 (1 MiB) makes 5 MiB at 5 MiB; freeing op1 (3 MiB) makes 7 MiB at the start."""
    return state([[-2, 3, -2, 1, -2, 1, (0.5, 0.25), -2]], 5, 13.5)


def test_each_row_is_a_run_from_its_start(trace):
    figure = draw("failure", trace)
    assert bars(figure, "in use: pins the place") == [(0, 2.0, 3.0), (1, 2.0, 5.0)]
    assert bars(figure, "free") == [(0, 0.0, 2.0), (0, 3.0, 5.0), (1, 0.0, 2.0), (1, 5.0, 7.0)]
    assert "needs 1.0 MiB freed in 1 chunk" in figure.layout.annotations[1].text
    assert next(each for each in figure.data if each.type == "scatter").text == (
        "op3, 1.0 MiB",
        "op1, 3.0 MiB",
    )


def test_the_sizes_are_on_one_scale(trace):
    figure = draw("failure", trace)
    sizes = {each.name: each.x[0] for each in figure.data[:4]}
    assert sizes == {"asked": 5.0, "largest free chunk": 2.0, "free": 8.0, "wasted": 0.25}
    assert "5.0 MiB asked: fragmentation" in figure.layout.annotations[0].text


def test_the_table_has_the_chunks_of_the_runs(trace):
    sizes, rows = (draw("failure", trace).table.to_pylist()[part] for part in (slice(4), slice(4, None)))
    assert [(row["what"], row["size"]) for row in sizes] == [
        ("asked", 5 * MIB),
        ("largest free chunk", 2 * MIB),
        ("free", 8 * MIB),
        ("wasted", MIB // 4),
    ]
    assert [(row["place"], row["address"] - BASE, row["state"], row["label"]) for row in rows[:3]] == [
        (1, 5 * MIB, "free", ""),
        (1, 7 * MIB, "in use", "op3"),
        (1, 8 * MIB, "free", ""),
    ]
    assert len(rows) == 6


def test_a_question_and_a_heap_without_a_failure():
    trace = state([[-2, 1, -2]], limit=5)
    asked = draw("failure", trace, wanted="4MiB")
    assert "4.0 MiB asked: fragmentation" in asked.layout.annotations[0].text
    nothing = draw("failure", trace)
    assert "no request failed" in nothing.layout.annotations[0].text
    assert nothing.table.num_rows == 4


def test_it_shows_the_failure_before_the_step_and_the_model_stays():
    trace = busy_trace()
    for step in (len(trace) // 2, len(trace)):
        model = Model(trace)
        model.seek(step)
        figure = failure(model, look=Look(theme="dark"))
        assert f"step {len(trace):,}" in figure.layout.annotations[0].text
        assert model.step == step
        assert_drawable(figure.to_dict())


def test_a_run_of_many_chunks_has_a_bar_for_the_rest():
    pieces = [piece for _ in range(MOST_BARS) for piece in (-0.5, 0.25)]
    figure = draw("failure", state([pieces], 700, 750))
    assert bars(figure, "smaller chunks")[0][1] == 0
    assert len(bars(figure, "free")) + len(bars(figure, "in use: pins the place")) == MOST_BARS
