"""The region map as a whole: hover texts, clicks, windows, its table."""

import numpy as np
import pytest
from unit.analysis.built import state
from unit.figures.drawn import region_map
from unit.figures.region_map.drawn_map import area, at_step, ends, hover_points, hover_texts, of_mode, unit
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace, trace_of

from bfcviz.events.schema import Kind
from bfcviz.figures.colouring import COLOURINGS
from bfcviz.figures.map_rows import lay_out, rows_of
from bfcviz.figures.region_map import chunk_at, region_panel
from bfcviz.figures.view_options import Look, MapWindow, Selected
from bfcviz.model import Model
from bfcviz.model.navigation import last_event


def test_hover_texts_anywhere_in_a_chunk_show_that_chunk():
    model = at_step(busy_trace(), 400)
    figure = region_map(model)
    points = hover_texts(figure)
    chunks, width = model.chunks(), figure.layout.xaxis.range[1]
    rows = lay_out(model.regions())
    for x, y, text in points:
        row = int(y)
        region = int(np.searchsorted(rows.first, row, side="right")) - 1
        offset = (row - int(rows.first[region])) * rows.width + int(x / width * rows.width)
        address = int(rows.address[region]) + offset
        chunk = chunks[np.searchsorted(chunks["address"], np.uint64(address), side="right") - 1]
        assert f"{int(chunk['address']):#x}" in text
        assert text.startswith("<b>in use</b>" if chunk["in_use"] else "<b>free</b>")
    handles = {text.partition("chunk ")[2].split()[0] for _, _, text in points}
    assert handles == {str(handle) for handle in chunks["handle"].tolist()}


def test_a_hover_text_shows_every_field_of_a_chunk():
    heap = PlainHeap(64 * MiB)
    heap.allocate(1000, "layer/MatMul", shape="[10,25]")
    figure = region_map(at_step(heap.trace(), 3))
    text = hover_texts(figure)[0][2]
    for part in (
        "1.0 KiB (1,024 B)",
        "requested 1000 B",
        "waste 24 B",
        "layer/MatMul",
        "shape: [10,25]",
        "allocated at step 3",
        "bin 2",
    ):
        assert part in text


def test_labels_cannot_inject_anything():
    heap = PlainHeap(64 * MiB)
    heap.allocate(1000, "<script>alert(1)</script>", **{"<b>": "<img src=x onerror=alert(2)>"})
    text = str(region_map(at_step(heap.trace(), 3)).to_dict())
    assert "<script" not in text
    assert "<img" not in text


def test_an_empty_heap_says_so():
    figure = region_map(Model(busy_trace()))
    assert [list(trace.text) for trace in of_mode(figure, "text") if len(trace.text)] == [
        ["no region at this step"]
    ]
    assert region_map(Model(trace_of(np.zeros(0, busy_trace().read(0, 0).dtype)))).data


@pytest.mark.parametrize("colour", COLOURINGS)
def test_no_region_one_event_and_a_window_beside_everything_are_drawn(colour):
    look = Look(colour=colour, map_window=MapWindow((5.0, 900.0), (1.0, 7.0)), selected=Selected(256, 1))
    nothing = Model(trace_of(np.zeros(0, busy_trace().read(0, 0).dtype)))
    single = PlainHeap(64 * MiB)
    single.allocate(1)
    for model in (
        nothing,
        at_step(single.trace(), 0),
        at_step(single.trace(), 1),
        at_step(single.trace(), 3),
    ):
        panel = region_panel(model, last_event(model), look)
        assert panel.yaxis["range"] == [7.0, 1.0]
        assert chunk_at(model, 6.0 / panel.x_unit, 20.0, look) is None
        region_map(model, look=Look(colour=colour))


def test_thousands_of_regions_and_a_terabyte_are_drawn():
    many = PlainHeap(4 * KiB, regions=4096, gap=4 * KiB)
    for _ in range(4096):
        many.allocate(3 * KiB)
    figure = region_map(at_step(many.trace(), len(many.events)))
    assert len(figure.layout.yaxis.tickvals) <= 20
    huge = PlainHeap(1 << 40)
    huge.allocate(1)
    figure = region_map(at_step(huge.trace(), 3))
    assert area(figure, "in use") == 256


@pytest.mark.parametrize("sizes", [[0.3, 0.4], [0.0, 1.0], [-1.0, 2.0], [2.0, 3.0]])
def test_a_window_is_the_range_and_only_what_is_in_it_is_there(sizes):
    model = at_step(busy_trace(), 400)
    rows = lay_out(model.regions())
    window = MapWindow((sizes[0] * rows.width, sizes[1] * rows.width), (1.25, 3.5))
    panel = region_panel(model, last_event(model), Look(map_window=window))
    assert [end * panel.x_unit for end in panel.xaxis["range"]] == pytest.approx(window.bytes)
    assert panel.yaxis["range"] == [3.5, 1.25]
    for trace in panel.traces:
        if trace["type"] == "scatter" and trace["mode"] == "lines":
            y = np.asarray(trace["y"])
            assert np.nanmax(y, initial=1.1) < 4
            assert np.nanmin(y, initial=3.9) > 1
            if not trace.get("name"):
                continue  # the gaps between boxes are no rectangles
            left, right = ends({"fill": None, **trace}).T * panel.x_unit
            assert not np.any((right <= window.bytes[0]) | (left >= window.bytes[1]))


def test_a_click_selects_the_chunk_of_the_hover_text():
    model = at_step(busy_trace(), 400)
    for window in (None, MapWindow((0.0, 2.0 * MiB), (0.0, 4.0))):
        look = Look(map_window=window)
        figure = region_map(model, look=look)
        texts, width = hover_texts(figure), figure.layout.xaxis.range[1] * unit(figure)
        assert texts
        for x, y, text in texts:
            chunk = chunk_at(model, x, y, look)
            narrow = int(chunk["size"]) < width / 50
            assert narrow or f"{int(chunk['address']):#x}" in text
    for x, y in ((-1, 0), (0, -1), (0, 99), (1e9, 0)):
        assert chunk_at(model, x, y, Look()) is None
    assert chunk_at(Model(busy_trace()), 0.5, 0.5, Look()) is None


def test_labels_of_any_script_are_shown_apart():
    heap = PlainHeap(64 * MiB)
    heap.allocate(1000, "\u05e9\u05dc\u05d5\u05dd\u202e/<i>")
    heap.allocate(1000, "%{x}")
    figure = region_map(at_step(heap.trace(), len(heap.events)), look=Look(colour="label"))
    texts = [text for _, _, text in hover_texts(figure)]
    assert any("\u2068\u05e9\u05dc\u05d5\u05dd /&lt;i&gt;\u2069" in text for text in texts)
    assert all("%{x}" not in text for text in hover_points(figure).hovertemplate)


def test_the_table_has_a_row_for_each_chunk():
    model = at_step(busy_trace(), 400)
    table = region_map(model).table
    chunks = model.chunks()
    assert table["address"].to_pylist() == chunks["address"].tolist()
    assert (
        sum(table["waste"].to_pylist()) == model.stats().bytes_in_use - model.stats().requested_bytes_in_use
    )
    free = [row for row in table.to_pylist() if row["state"] == "free"]
    assert len(free) == model.stats().chunks_free
    assert {row["allocated_at_step"] for row in free} == {None}
    for row in table.to_pylist():
        if row["state"] == "in use":
            event = model.trace.read(row["allocated_at_step"] - 1, row["allocated_at_step"])[0]
            assert (event["kind"], event["address"]) == (Kind.ALLOCATE, row["address"])


def test_many_regions_lie_by_size_and_a_click_finds_the_chunk_that_is_drawn():
    sizes = [1 + number % 3 for number in range(90)]
    trace = state([[size] for size in sizes])
    model = at_step(trace, len(trace))
    panel = region_panel(model, None, Look())
    labels = dict(zip(panel.yaxis["tickvals"], panel.yaxis["ticktext"], strict=True))
    assert [text.split()[0] for _, text in sorted(labels.items())] == ["30"] * 3
    rows = rows_of(model)
    assert rows.are_by_size
    for row in (0, 40, 89):
        chunk = chunk_at(model, 0.5, row + 0.5, Look())
        region = int(rows.region_of(np.array([row]))[0])
        assert (chunk["address"], chunk["size"]) == (rows.address[region], rows.size[region])
