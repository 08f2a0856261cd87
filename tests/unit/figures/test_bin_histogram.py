import numpy as np
import pytest
from unit.figures.drawn import bin_histogram
from unit.figures.synthetic import busy_trace

from bfcviz.analysis.free_chunk_search import search_of
from bfcviz.events.schema import Kind, bin_of
from bfcviz.figures.bin_histogram import bin_panels, histogram_bins
from bfcviz.figures.view import HeapData
from bfcviz.figures.view_options import PLAIN, Look, Selected
from bfcviz.model import Model
from bfcviz.model.find_steps import last_event, next_step


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


# ------------------------------------------------------------------------------
# Markers of the bin histogram: searched bins, this step, the selected chunk.


def marked(figure, name):
    """Where both panels have this marker."""
    above, below = [list(trace.x) for trace in figure.data if trace.name == name]
    assert above == below
    return above


def shaded(figure):
    """First and last of the bins that are shaded; None where none are."""
    above, below = [trace for trace in figure.data if trace.name == "searched"]
    assert list(above.x) == list(below.x)
    if not len(above.x):
        return None
    (width,), (offset,), (x,) = above.width, above.offset, above.x
    assert offset == -width / 2
    return x + offset + 0.5, x - offset - 0.5


def test_the_bin_of_the_event_is_marked():
    model = Model(busy_trace())
    model.seek(next_step(model.trace, 100, [Kind.FREE]))
    event = last_event(model)
    assert marked(bin_histogram(model), "this step") == [float(event["bin"][0])]
    assert shaded(bin_histogram(model)) is None
    assert marked(bin_histogram(model), "taken") == []


def test_the_bins_a_search_looked_at_are_shaded_and_where_it_ended_is_marked():
    trace = busy_trace()
    model = Model(trace)
    step = 0
    while (step := next_step(trace, step, [Kind.ALLOCATE, Kind.SPLIT, Kind.OOM])) is not None:
        if step % 9 and step < len(trace):
            continue
        model.seek(step)
        search = search_of(trace, step - 1, model)
        figure = bin_histogram(model)
        assert shaded(figure) == (search.first_bin, search.last_bin)
        assert marked(figure, "taken") == ([] if search.taken is None else [search.taken.bin])
        own = int(last_event(model)["bin"][0])
        assert marked(figure, "this step") == ([] if marked(figure, "taken") == [own] else [own])
    assert search.taken is None
    assert shaded(figure)[1] == 20


def test_the_shading_fills_the_plot_and_lies_behind_the_bars(model):
    model.seek(next_step(model.trace, 200, [Kind.ALLOCATE]))
    figure = bin_histogram(model)
    names = [trace.name for trace in figure.data if trace.type == "bar"]
    assert names == ["searched", "free", "in use"] * 2
    band = figure.data[0]
    low, high = figure.layout.yaxis.range
    assert (np.log10(band.base), np.log10(band.base + band.y[0])) == pytest.approx((low, high))


def test_the_bin_of_the_selected_chunk_is_marked(model):
    chunk = model.chunks()[3]
    born = int(chunk["born"]) if chunk["in_use"] else None
    look = Look(selected=Selected(int(chunk["address"]), born))
    assert marked(bin_histogram(model, look=look), "selected") == [bin_of(int(chunk["size"]))]
    gone = Look(selected=Selected(int(chunk["address"]) + 1, born))
    assert marked(bin_histogram(model, look=gone), "selected") == []
