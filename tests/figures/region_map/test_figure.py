import base64
import re
import sys

import numpy as np
import pytest
from figures.style.test_png import decode
from figures.synthetic import KiB, MiB, PlainHeap, busy_trace, trace_of

from bfcviz.events.schema import Kind
from bfcviz.figures.region_map.figure import EXACT_CHUNKS, chunk_at, region_map, region_panel
from bfcviz.figures.region_map.highlights import last_event
from bfcviz.figures.region_map.rows import lay_out
from bfcviz.figures.style.colouring import COLOURINGS, colouring
from bfcviz.figures.style.theme import DARK, LIGHT
from bfcviz.figures.style.view_options import Look, MapWindow, Selected
from bfcviz.model import Model

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def at_step(trace, step):
    model = Model(trace)
    model.seek(step)
    return model


def named(figure, name):
    (trace,) = [trace for trace in figure.data if trace.name == name]
    return trace


def of_mode(figure, mode):
    return [trace for trace in figure.data if trace.type == "scatter" and trace.mode == mode]


def hover_points(figure):
    """The unseen points."""
    (points,) = (each for each in of_mode(figure, "none") if each.hovertemplate)
    return points


def told(figure):
    """The hover points as (x, y, text), labels filled in as the page does."""
    points = hover_points(figure)
    texts = [re.sub(r"%{meta\[(\d+)]}", lambda m: points.meta[int(m[1])], t) for t in points.hovertemplate]
    return list(zip(points.x.tolist(), points.y.tolist(), texts, strict=True))


def unit(figure):
    return UNITS[figure.layout.xaxis.title.text.partition("(")[2].partition(")")[0]]


def area(figure, name):
    """Bytes that the rectangles of a state cover."""
    left, right = ends(named(figure, name)).T
    return round(float((right - left).sum()) * unit(figure))


def rectangles(figure, name):
    """Left and right of each, (rectangles, 2)."""
    return ends(named(figure, name))


def ends(trace):
    """Left and right of each rectangle of a trace: outlines are closed, filled ones a line a row."""
    x = np.asarray(trace["x"])
    if len(x) == 1:
        return np.zeros((0, 2))
    return x[~np.isnan(x)].reshape(-1, 4 if trace["fill"] == "toself" else 5)[:, [0, 2]]


def test_the_legend_is_always_the_same():
    for figure in (region_map(Model(busy_trace())), region_map(at_step(busy_trace(), 1))):
        assert all(len(trace.x) for trace in figure.data if trace.type == "scatter" and trace.name)


@pytest.mark.parametrize("step", [1, 2, 150, 609])
def test_rectangles_cover_exactly_the_bytes_of_each_state(step):
    model = at_step(busy_trace(), step)
    figure = region_map(model)
    stats = model.stats()
    assert area(figure, "free") == stats.free_bytes
    assert area(figure, "in use") == stats.bytes_in_use
    assert area(figure, "waste (size - requested)") == stats.bytes_in_use - stats.requested_bytes_in_use
    assert area(figure, "region") == stats.pool_bytes


def test_few_traces_whatever_the_number_of_chunks():
    trace = busy_trace()
    assert len(region_map(at_step(trace, 1)).data) == len(region_map(at_step(trace, 500)).data) <= 18
    names = [[each.name for each in region_map(at_step(trace, step)).data] for step in (1, 500)]
    assert names[0] == names[1]


def test_the_touched_chunk_is_outlined_and_a_narrow_one_gets_a_marker():
    heap = PlainHeap(64 * MiB)
    heap.allocate(4 * KiB)
    model = at_step(heap.trace(), 3)
    figure = region_map(model, last_event(model))
    outline = rectangles(figure, "touched by this step")
    assert (outline[:, 1] - outline[:, 0]) * unit(figure) == 4 * KiB
    _, marker = of_mode(figure, "markers")
    assert list(marker.x) == [2 * KiB / unit(figure)]
    assert len(rectangles(region_map(model), "touched by this step")) == 0


def test_hovering_anywhere_in_a_chunk_tells_that_chunk():
    model = at_step(busy_trace(), 400)
    figure = region_map(model)
    points = told(figure)
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


def test_a_hover_text_tells_all_about_a_chunk():
    heap = PlainHeap(64 * MiB)
    heap.allocate(1000, "layer/MatMul", shape="[10,25]")
    figure = region_map(at_step(heap.trace(), 3))
    text = told(figure)[0][2]
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
    assert [list(trace.text) for trace in of_mode(figure, "text")] == [["no region at this step"]]
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
        region_map(model, last_event(model), Look(colour=colour))


def test_many_chunks_become_an_image_of_the_same_place():
    heap = PlainHeap(4 * MiB)
    held = [heap.allocate(256) for _ in range(EXACT_CHUNKS + 100)]
    for address in held[::2]:
        heap.free(address)
    model = at_step(heap.trace(), len(heap.events))
    assert len(model.chunks()) > EXACT_CHUNKS
    figure = region_map(model, last_event(model), look=Look(theme="dark"))
    image = figure.data[0]
    assert image.visible
    assert "each pixel mixes" in figure.layout.xaxis.title.text
    assert len(rectangles(figure, "in use")) == 0
    pixels = decode(base64.b64decode(image.source.partition(",")[2]))
    assert image.dx * pixels.shape[1] == pytest.approx(figure.layout.xaxis.range[1])
    assert image.dy * pixels.shape[0] == pytest.approx(figure.layout.yaxis.range[0])
    assert figure.layout.paper_bgcolor is None
    assert figure.layout.template.layout.paper_bgcolor == DARK.paper
    assert 0 < len(told(figure)) <= 1500
    assert any(text.startswith("<b>in use</b>") for _, _, text in told(figure))
    assert len(figure.to_json()) < 500_000


def test_an_image_is_not_shown_where_rectangles_are():
    assert not region_map(at_step(busy_trace(), 300)).data[0].visible


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


@pytest.mark.parametrize(("regions", "mode"), [(100, "lines"), (300, "none")])
def test_where_no_frame_hides_them_there_are_no_lines_between_rectangles(regions, mode):
    heap = PlainHeap(4 * KiB, regions=regions, gap=4 * KiB)
    for _ in range(regions):
        heap.allocate(3 * KiB)
    figure = region_map(at_step(heap.trace(), len(heap.events)))
    assert len(rectangles(figure, "in use")) > 0
    assert {named(figure, name).mode for name in ("in use", "free")} == {mode}
    assert (len(rectangles(figure, "region")) > 0) == (mode == "lines")


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
            left, right = ends({"fill": None, **trace}).T * panel.x_unit
            assert not np.any((right <= window.bytes[0]) | (left >= window.bytes[1]))


def test_zooming_in_turns_the_image_into_rectangles():
    heap = PlainHeap(4 * MiB)
    for _ in range(EXACT_CHUNKS + 500):
        heap.allocate(256)
    model = at_step(heap.trace(), len(heap.events))
    assert region_panel(model, None, Look()).traces[0]["visible"]
    near = Look(map_window=MapWindow((0.0, 64 * KiB), (0.0, 2.0)))
    panel = region_panel(model, None, near)
    assert not panel.traces[0]["visible"]
    assert len(ends(panel.traces[2])) == 2 * 64 * KiB // 256
    half = region_panel(model, None, Look(map_window=MapWindow((0.0, 256 * KiB), (0.0, 3.3))))
    image = half.traces[0]
    assert image["visible"] == (EXACT_CHUNKS < 4 * 1024)
    assert image["y0"] - image["dy"] / 2 == pytest.approx(0)
    assert len(lay_out(model.regions()).part(near.map_window)) == 2


@pytest.mark.parametrize("colour", COLOURINGS)
@pytest.mark.parametrize("exact", [True, False])
def test_every_colouring_has_the_same_traces_and_names_its_classes(colour, exact, monkeypatch):
    if not exact:
        monkeypatch.setattr(sys.modules["bfcviz.figures.region_map.figure"], "EXACT_CHUNKS", 10)
    model = at_step(busy_trace(), 400)
    look = Look(colour=colour)
    panel = region_panel(model, last_event(model), look)
    assert [each["type"] for each in panel.traces] == ["image", *["scatter"] * (len(panel.traces) - 1)]
    assert len(panel.traces) == len(region_panel(Model(model.trace), None, Look()).traces)
    made = colouring(model.trace, 0, colour, LIGHT)
    shown = [each["name"] for each in panel.traces if "name" in each and each.get("showlegend", True)]
    assert [name for name in shown if name in made.names] == list(made.names)
    assert ("waste (size - requested)" in shown) == (colour == "state")


def test_classes_cover_the_bytes_in_use():
    model = at_step(busy_trace(), 400)
    chunks = model.chunks()
    for colour in COLOURINGS:
        figure = region_map(model, look=Look(colour=colour))
        made = colouring(model.trace, 0, colour, LIGHT)
        classes = made.classes(chunks, 400)
        for number, name in enumerate(made.names):
            assert area(figure, name) == chunks["size"][classes == number].sum()


def test_the_selected_chunk_is_outlined_while_it_is_there():
    model = at_step(busy_trace(), 400)
    chunks = model.chunks()
    for state in (True, False):
        chunk = chunks[chunks["in_use"] == state][2]
        chosen = Selected(int(chunk["address"]), int(chunk["born"]) if state else None)
        assert area(region_map(model, look=Look(selected=chosen)), "selected") == chunk["size"]
        for other in (Selected(chosen.address, 399), Selected(chosen.address + 1, chosen.born), Selected(0)):
            assert not area(region_map(model, look=Look(selected=other)), "selected")


def test_a_click_anywhere_finds_the_chunk_that_hovering_tells():
    model = at_step(busy_trace(), 400)
    for window in (None, MapWindow((0.0, 2.0 * MiB), (0.0, 4.0))):
        look = Look(map_window=window)
        figure = region_map(model, look=look)
        assert told(figure)
        for x, y, text in told(figure):
            chunk = chunk_at(model, x, y, look)
            narrow = int(chunk["size"]) < figure.layout.xaxis.range[1] * unit(figure) / 50
            assert narrow or f"{int(chunk['address']):#x}" in text
    for x, y in ((-1, 0), (0, -1), (0, 99), (1e9, 0)):
        assert chunk_at(model, x, y, Look()) is None
    assert chunk_at(Model(busy_trace()), 0.5, 0.5, Look()) is None


def test_one_small_chunk_in_a_terabyte_can_be_found_clicked_and_zoomed_to():
    heap = PlainHeap(1 << 40)
    held = [heap.allocate(256), heap.allocate(1 << 37), heap.allocate(1)]
    heap.free(held[1])
    model = at_step(heap.trace(), len(heap.events))
    figure = region_map(model)
    mark, _ = of_mode(figure, "markers")
    assert len(mark.x) == 2
    assert mark.showlegend
    found = chunk_at(model, mark.x[1] + 0.05, mark.y[1], Look())
    assert (int(found["address"]), int(found["size"])) == (held[2], 256)
    offset = (held[2] - held[0]) % (1 << 36)
    look = Look(map_window=MapWindow((offset - 300.0, offset + 700.0), (2.0, 3.0)))
    near = region_map(model, look=look)
    assert area(near, "in use") == 256
    assert np.isnan(of_mode(near, "markers")[0].x).all()
    assert chunk_at(model, (offset + 100) / unit(near), 2.5, look)["address"] == held[2]


def test_a_lone_chunk_in_an_image_is_marked_too(monkeypatch):
    monkeypatch.setattr(sys.modules["bfcviz.figures.region_map.figure"], "EXACT_CHUNKS", 1)
    heap = PlainHeap(1 << 40)
    heap.allocate(256)
    mark, _ = of_mode(region_map(at_step(heap.trace(), 3)), "markers")
    assert list(mark.y) == [0.98]


def test_labels_of_any_script_are_shown_apart():
    heap = PlainHeap(64 * MiB)
    heap.allocate(1000, "\u05e9\u05dc\u05d5\u05dd\u202e/<i>")
    heap.allocate(1000, "%{x}")
    figure = region_map(at_step(heap.trace(), len(heap.events)), look=Look(colour="label"))
    texts = [text for _, _, text in told(figure)]
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
