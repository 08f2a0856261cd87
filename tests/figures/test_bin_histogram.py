import numpy as np
import pytest
from figures.synthetic import busy_trace

from bfcviz.figures.bin_histogram import bin_histogram
from bfcviz.figures.look import Look
from bfcviz.figures.touched import last_event
from bfcviz.model import Model


@pytest.fixture
def model():
    model = Model(busy_trace())
    model.seek(300)
    return model


def test_bars_reach_what_the_bins_hold(model):
    bars = [trace for trace in bin_histogram(model).data if trace.type == "bar"]
    bins = model.bins()
    fields = ("free_bytes", "in_use_bytes", "free_chunks", "in_use_chunks")
    for bar, field in zip(bars, fields, strict=True):
        tops = np.nan_to_num(np.asarray(bar.y) + bar.base)
        assert tops == pytest.approx(bins[field].astype(float), rel=1e-3)


def test_hover_says_count_bytes_and_range(model):
    (free, *_) = [trace for trace in bin_histogram(model).data if trace.type == "bar"]
    assert "bin 0: chunks of 256 B up to, not including, 512 B" in free.hovertext[0]
    assert "256.0 MiB or more" in free.hovertext[20]


def test_axes_hold_every_bar_and_name_their_unit(model):
    figure = bin_histogram(model)
    for axis, field in (("yaxis", "bytes"), ("yaxis2", "chunks")):
        bins = model.bins()
        top = 10 ** figure.layout[axis].range[1]
        assert top >= max(bins[f"free_{field}"].max(), bins[f"in_use_{field}"].max())
    assert figure.layout.yaxis.ticktext[0] == "256 B"
    assert figure.layout.xaxis2.title.text


def test_the_bin_of_the_event_is_marked(model):
    event = last_event(model)
    marks = [list(trace.x) for trace in bin_histogram(model, event).data if trace.type == "scatter"]
    assert marks == [[float(event["bin"][0])]] * 2
    assert all(len(trace.x) == 0 for trace in bin_histogram(model).data if trace.type == "scatter")


def test_an_empty_heap_has_no_bars():
    for trace in bin_histogram(Model(busy_trace()), look=Look(theme="dark")).data:
        assert trace.type != "bar" or np.isnan(np.asarray(trace.y)).all()


def test_the_table_has_21_rows(model):
    table = bin_histogram(model).table
    assert table.num_rows == 21
    assert sum(table["free_bytes"].to_pylist()) == model.stats().free_bytes
