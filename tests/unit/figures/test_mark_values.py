"""Values of marks: what a program gave, as lines over the trace and as text."""

import math
from time import process_time

import numpy as np
import pytest
from heaps import KIB
from hypothesis import given
from hypothesis import strategies as st
from unit.figures.synthetic import marked_trace

import bfcviz
from bfcviz.analysis.event_text import short_words
from bfcviz.errors import InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.events.marks import mark_value, measured_names, packed_value, valued_marks
from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.mark_values import MOST_LINES, MOST_POINTS, HasValues, marked_series
from bfcviz.figures.timeline_parts import measure_history, without_phases
from bfcviz.figures.view_options import Look


@given(st.floats() | st.integers(0, (1 << 64) - 1))
def test_a_value_is_read_as_it_was_given(value):
    labels = Labels()
    size, details = packed_value(value)
    found = mark_value(labels, labels.intern("loss", **details), size)
    assert type(found) is (float if isinstance(value, float) else type(value))
    assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.parametrize("value", ["0.5", None, [1.0], 1j])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(InvalidRequest):
        packed_value(value)


def caption(picture):
    return " ".join(each.text for each in picture.layout.annotations)


def trained(steps=40, names=("loss",)):
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False, capture="nothing") as w:
        for step in range(steps):
            np.empty(KIB)
            bfcviz.mark("step", step)
            for number, name in enumerate(names):
                bfcviz.mark(name, np.float32((number + 1) / (step + 1)))
        w.mark("final loss", 0.25)
    return w.trace


def test_each_name_is_a_line_through_its_values():
    trace = trained(names=("loss", "accuracy"))
    found = {each.name: each for each in marked_series(measure_history(trace))}
    assert found.keys() == {"loss", "accuracy", "final loss"}
    assert found["loss"].values == pytest.approx([1 / (step + 1) for step in range(40)])
    assert found["final loss"].values.tolist() == [0.25]
    events = trace.read(0, len(trace))
    names = [trace.labels.name(label) for label in events["label"][found["accuracy"].steps - 1].tolist()]
    assert names == ["accuracy"] * 40
    picture = bfcviz.draw("mark_values", trace)
    drawn = {line.name: line for line in picture.data if line.showlegend}
    assert drawn.keys() == found.keys()
    assert drawn["loss"].y == pytest.approx(found["loss"].values)
    assert picture.table.num_rows == 81


def test_of_a_window_and_of_many_names_the_rest_is_said():
    trace = trained(names=[f"loss {number}" for number in range(MOST_LINES + 2)])
    part = marked_series(measure_history(trace, look=Look(steps=(0, len(trace) // 2))))
    assert 0 < len(part[0].values) < 40
    picture = bfcviz.draw("mark_values", trace)
    assert sum(bool(line.showlegend) for line in picture.data) == MOST_LINES
    assert str(MOST_LINES + 3) in caption(picture)


def test_thousands_of_other_marks_hide_no_value():
    steps = 3000
    trace = trained(steps=steps)
    (found, _) = marked_series(history := measure_history(trace))
    assert history.marks.every > 1
    assert found.values == pytest.approx([1 / (step + 1) for step in range(steps)])
    picture = bfcviz.draw("mark_values", trace)
    (line, _) = (each for each in picture.data if each.showlegend)
    assert 1000 <= len(line.y) <= MOST_POINTS
    assert picture.table.num_rows == steps + 1
    assert f"{MOST_POINTS:,}" in caption(picture)


def test_whole_numbers_among_the_floats_of_a_name_belong_to_them():
    values = [0.5, 1, -1, 0, 0.25]
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False, capture="nothing") as w:
        for value in values:
            np.empty(KIB)
            bfcviz.mark("loss", value)
    (found,) = marked_series(measure_history(w.trace))
    assert found.values.tolist() == values
    low, high = bfcviz.draw("mark_values", w.trace).layout.yaxis.range
    assert low < -1
    assert high > 1


def marked(values, name="queue"):
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False, capture="nothing") as w:
        for step, value in enumerate(values):
            np.empty(KIB)
            bfcviz.mark("step", step)
            bfcviz.mark("checkpoint")
            bfcviz.mark(name, value)
        with bfcviz.phase("forward"):
            np.empty(KIB)
    return w.trace


def test_whole_numbers_are_drawn_with_their_zeros_as_if_they_were_floats():
    for values in ([3, 0, 2], [0, 0, 2], [3.0, 0.0, 2.0]):
        history = measure_history(trace := marked(values))
        (found,) = marked_series(history)
        assert (found.name, found.values.tolist()) == ("queue", values)
        lines = {trace.labels.name(label) for label in without_phases(history).events["label"].tolist()}
        assert lines == {"step", "checkpoint"}
        assert [line.name for line in bfcviz.draw("mark_values", trace).data if line.showlegend] == ["queue"]


@pytest.mark.parametrize("values", [[0, 0, 0], [3]])
def test_marks_without_values_and_a_single_whole_number_are_no_line(values):
    trace = marked(values)
    assert marked_series(measure_history(trace)) == []
    assert not HasValues(trace, 0)()


@pytest.mark.parametrize("name", ["step", "Train Step", "epoch", "batch 7", "alert: bytes above 3"])
def test_what_counts_steps_and_alerts_are_no_values(name):
    assert marked_series(measure_history(marked([1, 2, 3], name))) == []


def test_a_float_makes_any_name_a_value():
    (found,) = marked_series(measure_history(marked([1, 2, 3.5], "batch loss")))
    assert found.values.tolist() == [1, 2, 3.5]


def test_the_largest_numbers_have_an_axis():
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False, capture="nothing") as w:
        for value in (-1.7e308, 1.7e308, math.inf):
            np.empty(KIB)
            bfcviz.mark("loss", value)
    assert np.isfinite(bfcviz.draw("mark_values", w.trace).layout.yaxis.range).all()


def test_such_marks_are_no_vertical_lines_and_read_as_numbers():
    trace = trained(steps=3)
    history = measure_history(trace)
    shown = [trace.labels.name(label) for label in without_phases(history).events["label"].tolist()]
    assert shown == ["step"] * 3
    last = trace.read(len(trace) - 1, len(trace))[0]
    assert "0.25" in bfcviz.explain(trace, len(trace) - 1)
    fields = {name: last[name].item() for name in last.dtype.names}
    assert short_words(fields, trace.labels) == "value 0.25"


def test_without_such_marks_the_picture_says_how_to_make_one():
    picture = bfcviz.draw("mark_values", marked_trace())
    assert not any(line.showlegend for line in picture.data)
    assert "bfcviz.mark(" in caption(picture)


def test_whole_numbers_of_other_libraries_stay_whole():
    assert [packed_value(each)[0] for each in (np.int64(7), np.uint8(7), True)] == [7, 7, 1]
    assert mark_value(Labels(), 0, 7) == 7


def test_a_dashboard_offers_the_tab_where_there_is_a_value():
    for trace, is_offered in ((trained(steps=2), True), (marked_trace(), False)):
        inspector = bfcviz.Inspector(trace)
        assert (">values</button>" in inspector.stage.tabs.value) == is_offered
        inspector.close()


def test_a_value_that_comes_later_is_seen():
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False, capture="nothing") as w:
        bfcviz.mark("queue", 3)
        w.trace.refresh()
        has_values = HasValues(w.trace, 0)
        assert not has_values()
        bfcviz.mark("queue", 3)
        w.trace.refresh()
        assert has_values()


def test_a_name_for_each_mark_takes_no_long_time():
    labels, marks = Labels(), np.zeros(20_000, EVENT)
    marks["kind"] = Kind.MARK
    marks["label"] = [labels.intern(f"request {number}") for number in range(len(marks) - 2)] + [0, 0]
    marks["label"][-2:] = labels.intern("queue")
    marks["size"][-1] = 5
    began = process_time()
    assert measured_names(labels, valued_marks(labels, marks)) == {"queue"}
    assert process_time() - began < 2
