"""The picture of two recordings: curves laid over each other, and a bar for each holder that differs."""

import numpy as np
import pytest
from shared import sample_trace
from unit.analysis.programs import Training
from unit.figures.odd_traces import ODD, assert_drawable
from unit.figures.synthetic import MiB, busy_trace

import bfcviz
from bfcviz.analysis.recording_comparison import peaks_text
from bfcviz.figures.compared_recordings import recordings_compared
from bfcviz.figures.export import rendered
from bfcviz.figures.theme import THEMES


def picture(a, b):
    found = bfcviz.compare_recordings(a, b)
    return found, recordings_compared(found, "light")


def named(figure):
    return {trace.name: trace for trace in figure.data}


BEFORE, AFTER = Training(), Training(steps=10, leak=True, more={"forward/attention": 4 * MiB})


def test_the_curves_have_the_most_bytes_and_the_peaks():
    found, figure = picture(BEFORE.trace(), AFTER.trace())
    traces = named(figure)
    peak = found.moments.to_pylist()[0]
    for letter in "ab":
        curve = traces[f"{letter.upper()}: in use"]
        # A row is one event here: no peak is lost.
        assert curve.y.max() * MiB == peak[f"{letter}_bytes"]
        assert len(curve.x) == len(curve.y)
    assert traces["A: in use"].x.tolist() == found.series[0]["step"].tolist()
    assert (traces["peaks"].y * MiB).tolist() == [peak["a_bytes"], peak["b_bytes"]]


def test_steps_of_b_lie_at_the_same_marks_of_a():
    found, figure = picture(BEFORE.trace(), AFTER.trace())
    curve = named(figure)["B: in use"]
    for moment in found.alignment.moments:
        at = np.flatnonzero(curve.customdata == moment.b)
        assert curve.x[at].tolist() == [moment.a]
    assert set(figure.layout.xaxis.ticktext) <= {moment.name for moment in found.alignment.moments}


def test_a_pool_far_above_is_only_named():
    _, figure = picture(BEFORE.trace(), BEFORE.trace())
    pools = [trace for trace in figure.data if "pool" in trace.name]
    assert all("64.0 MiB" in trace.name for trace in pools)
    assert all(np.isnan(trace.y).all() for trace in pools)
    assert figure.layout.yaxis.range[1] < 64


def test_a_bar_is_a_part_of_the_difference_and_the_others_share_one():
    many = {f"op_{number}": 4096 * (number + 1) for number in range(30)}
    found, figure = picture(BEFORE.trace(), Training(more=many).trace())
    bars, names = named(figure)["change"], list(named(figure)["holders"].text)
    unit = {"KiB": 1024, "MiB": MiB}[figure.layout.xaxis2.title.text[-4:-1]]
    assert (bars.x * unit).sum() == pytest.approx(found.moments["bytes_change"][0].as_py())
    assert (bars.x[:-1] * unit).tolist() == pytest.approx([part.bytes for part in found.spread.named])
    assert names == [*(part.holder for part in found.spread.named), "all others"]
    assert figure.table.num_rows == found.holders_at("peak").num_rows


def test_names_stand_on_the_other_side_of_their_bars():
    _, figure = picture(BEFORE.trace(), Training(more={"new": MiB}, without=("forward/layer_0",)).trace())
    traces = named(figure)
    bars, names = traces["change"].x, traces["holders"].x
    assert len(bars) >= 2
    assert (np.sign(bars) == -np.sign(names)).all()
    left, right = figure.layout.xaxis2.range
    assert left < min(bars.min(), names.min()) < max(bars.max(), names.max()) < right


def test_files_of_one_moment_have_only_bars():
    found, figure = picture(sample_trace("oom_log"), BEFORE.trace())
    assert peaks_text(found) in figure.layout.annotations[0].text
    assert {trace.name for trace in figure.data} == {"change", "holders", "amounts"}


@pytest.mark.parametrize("name", ODD)
def test_odd_traces_are_drawn_without_harm(name):
    trace, ordinary = ODD[name](), busy_trace(60)
    for pair in ((trace, trace), (ordinary, trace), (trace, ordinary)):
        found = bfcviz.compare_recordings(*pair)
        for theme in THEMES:
            figure = recordings_compared(found, theme)
            assert_drawable([entry.to_plotly_json() for entry in figure.data if entry.name == "holders"])
            assert_drawable(figure.layout.to_plotly_json())
            assert_drawable(figure.facts)


def test_the_table_is_exported():
    _, figure = picture(BEFORE.trace(), AFTER.trace())
    head = rendered(figure, ".csv").decode().splitlines()[0]
    assert {"holder", "change", "bytes_change"} <= set(head.replace('"', "").split(","))
