import numpy as np
import pytest
from unit.figures.drawn import bin_histogram
from unit.figures.synthetic import busy_trace

from bfcviz.events.schema import Kind
from bfcviz.figures.bin_histogram import bin_panels, histogram_bins
from bfcviz.figures.view import HeapData
from bfcviz.figures.view_options import PLAIN, Look
from bfcviz.model import Model
from bfcviz.model.navigation import next_step


@pytest.fixture
def model():
    model = Model(busy_trace())
    model.seek(300)
    return model


def bars_of(figure):
    """The bars that stand for something the heap holds."""
    return [trace for trace in figure.data if trace.type == "bar" and trace.name != "searched"]


def test_bars_reach_what_the_bins_hold(model):
    bars = bars_of(bin_histogram(model))
    bins = model.bins()
    fields = ("free_bytes", "in_use_bytes", "free_chunks", "in_use_chunks")
    for bar, field in zip(bars, fields, strict=True):
        tops = np.nan_to_num(np.asarray(bar.y) + bar.base)
        assert tops == pytest.approx(bins[field].astype(float), rel=1e-3)


def test_hover_says_count_bytes_and_range(model):
    (free, *_) = bars_of(bin_histogram(model))
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


def test_panels_have_the_same_traces_whatever_is_marked(model):
    names = [
        [trace["name"] for trace in panel.traces]
        for panel in bin_panels(histogram_bins(HeapData(model), PLAIN), PLAIN)
    ]
    model.seek(next_step(model.trace, 200, [Kind.ALLOCATE]))
    panels = bin_panels(histogram_bins(HeapData(model), PLAIN), PLAIN)
    assert [[trace["name"] for trace in panel.traces] for panel in panels] == names
    for panel in panels:
        for trace in panel.traces:
            assert trace["x"].dtype == trace["y"].dtype == np.float64


def test_an_empty_heap_has_no_bars():
    for trace in bin_histogram(Model(busy_trace()), look=Look(theme="dark")).data:
        assert trace.name not in ("free", "in use") or np.isnan(np.asarray(trace.y)).all()


def test_the_table_has_21_rows(model):
    table = bin_histogram(model).table
    assert table.num_rows == 21
    assert sum(table["free_bytes"].to_pylist()) == model.stats().free_bytes
