"""The region map as a whole: hover texts, clicks, windows, its table."""

import base64
import re
import sys
from dataclasses import replace
from threading import Thread

import numpy as np
import pyarrow.compute as pc
import pytest
from shared import sample_trace
from unit.analysis.built import state
from unit.figures.drawn import region_map
from unit.figures.drawn_map import (
    area,
    at_step,
    ends,
    hover_points,
    hover_texts,
    named,
    of_mode,
    rectangles,
    unit,
)
from unit.figures.synthetic import BASE, KiB, MiB, PlainHeap, busy_trace, trace_of
from unit.figures.test_map_image import decode

import bfcviz
from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.colouring import COLOURINGS, colouring
from bfcviz.figures.map_image import LINES
from bfcviz.figures.map_rows import lay_out, rows_of
from bfcviz.figures.region_map import (
    EXACT_CHUNKS,
    MOST_BLOCKERS,
    MOST_FRAMES,
    MOST_TAKERS,
    MOST_TEXTS,
    chunk_at,
    chunk_table,
    map_search_matches,
    points_in_pieces,
    points_on_grid,
    region_panel,
    touched,
)
from bfcviz.figures.theme import DARK, LIGHT, contrasting, mixed, rgb, translucent
from bfcviz.figures.view_options import FADE, Look, MapWindow, Selected
from bfcviz.model import Model
from bfcviz.model.filters import found_by
from bfcviz.model.find_steps import last_event
from bfcviz.model.grouping import HolderChoice
from bfcviz.model.model import CHUNK


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
    panel = region_panel(model, last_event(model), Look(colour="state", map_window=window))
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
        look = Look(colour="state", map_window=window)
        figure = region_map(model, look=look)
        texts, width = hover_texts(figure), figure.layout.xaxis.range[1] * unit(figure)
        assert texts
        for x, y, text in texts:
            chunk = chunk_at(model, x, y, look)
            narrow = int(chunk["size"]) < width / 50
            assert narrow or f"{int(chunk['address']):#x}" in text
    for x, y in ((-1, 0), (0, -1), (0, 99), (1e9, 0)):
        assert chunk_at(model, x, y, Look(colour="state")) is None
    assert chunk_at(Model(busy_trace()), 0.5, 0.5, Look(colour="state")) is None


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
    panel = region_panel(model, None, Look(colour="state"))
    labels = dict(zip(panel.yaxis["tickvals"], panel.yaxis["ticktext"], strict=True))
    assert [text.split()[0] for _, text in sorted(labels.items())] == ["30"] * 3
    rows = rows_of(model)
    assert rows.are_by_size
    for row in (0, 40, 89):
        chunk = chunk_at(model, 0.5, row + 0.5, Look(colour="state"))
        region = int(rows.region_of(np.array([row]))[0])
        assert (chunk["address"], chunk["size"]) == (rows.address[region], rows.size[region])


def test_offsets_of_rows_are_short_enough_for_the_margin():
    trace = state([[14 << 10]])
    labels = region_panel(at_step(trace, len(trace)), None, Look(colour="state")).yaxis["ticktext"]
    assert labels[:2] == ["region 0", "+1 GiB"]
    assert max(map(len, labels)) <= len("+9,999 MiB")


def test_each_place_of_a_map_of_many_regions_is_near_a_hover_text():
    trace = state([[1 << 10] * 4] * 800)
    model = at_step(trace, len(trace))
    rows = rows_of(model)
    part = rows.part(None)
    points = points_on_grid(model.chunks(), rows, part, trace.labels)
    across = np.unique(points["x"]) / (part.right - part.left)
    gaps = np.diff(across, prepend=-across[0], append=2 - across[-1])
    assert gaps.max() / 2 * 1500 < 60  # pixels: `hoverdistance`


# ------------------------------------------------------------------------------
# The traces of the region map: rectangles up to a number of chunks, then an image.


def test_the_legend_is_always_the_same():
    for figure in (region_map(Model(busy_trace())), region_map(at_step(busy_trace(), 1))):
        assert all(len(trace.x) for trace in figure.data if trace.type == "scatter" and trace.name)


def test_few_traces_whatever_the_number_of_chunks():
    trace = busy_trace()
    assert len(region_map(at_step(trace, 1)).data) == len(region_map(at_step(trace, 500)).data) <= 40
    names = [[each.name for each in region_map(at_step(trace, step)).data] for step in (1, 500)]
    assert names[0] == names[1]


def test_many_chunks_become_an_image_of_the_same_place():
    heap = PlainHeap(4 * MiB)
    held = [heap.allocate(256) for _ in range(EXACT_CHUNKS + 100)]
    for address in held[::2]:
        heap.free(address)
    model = at_step(heap.trace(), len(heap.events))
    assert len(model.chunks()) > EXACT_CHUNKS
    figure = region_map(model, look=Look(colour="state", theme="dark"))
    image = figure.data[0]
    assert image.visible
    assert "each pixel" in figure.layout.xaxis.title.text
    assert len(rectangles(figure, "in use")) == 0
    pixels = decode(base64.b64decode(image.source.partition(",")[2]))
    assert image.dx * pixels.shape[1] == pytest.approx(figure.layout.xaxis.range[1])
    assert image.dy * pixels.shape[0] == pytest.approx(figure.layout.yaxis.range[0])
    assert figure.layout.paper_bgcolor is None
    assert figure.layout.template.layout.paper_bgcolor == DARK.paper
    assert 0 < len(hover_texts(figure)) <= 1500
    assert any(text.startswith("<b>in use</b>") for _, _, text in hover_texts(figure))
    assert len(figure.to_json()) < 500_000


def test_an_image_is_not_shown_where_rectangles_are():
    assert not region_map(at_step(busy_trace(), 300)).data[0].visible


@pytest.mark.parametrize(
    ("colour", "high", "shared"), [("label", 620, True), ("state", 246, True), ("label", 9000, False)]
)
def test_where_rows_share_pixels_all_bytes_in_use_are_in_the_colours_of_use(colour, high, shared):
    regions = 2 * LINES
    heap = PlainHeap(192 * KiB, regions=regions, gap=4 * KiB)
    for number in range(regions):
        heap.allocate(192 * KiB, "ab"[number % 2])
    model = at_step(heap.trace(), len(heap.events))
    look = Look(colour=colour, map_pixels=(1000, high))
    image, *others = region_panel(model, None, look).traces
    assert image["visible"] == shared
    y = np.concatenate([each["y"] for each in others if each.get("fill") == "toself"])
    assert np.isnan(y).all() == shared  # no rectangles, which the browser would mix
    if shared:
        made = colouring(model.trace, 0, colour, LIGHT, model.chunks())
        classes = made.classes(model.chunks(), model.step)[:2]
        expected = {(*rgb(made.paints[number].fill), 255) for number in classes}
        pixels = decode(base64.b64decode(image["source"].partition(",")[2])).astype(int)
        columns = int(192 / 256 * pixels.shape[1])
        assert pixels.shape[0] == LINES
        assert {*map(tuple, pixels[:, : columns - 1].reshape(-1, 4).tolist())} == expected
        assert not pixels[:, columns + 1 :, 3].any()


@pytest.mark.parametrize("high", [246, 9000])
def test_in_rows_too_low_for_outlines_all_matches_of_a_search_light_up(high):
    """More than are outlined, each in a pixel line that a browser shows; higher rows have outlines only."""
    regions = 2 * LINES
    heap = PlainHeap(192 * KiB, regions=regions, gap=4 * KiB)
    for number in range(regions):
        for part in range(3):
            heap.allocate(64 * KiB, "needle" if number % 2 == 0 and part == number % 3 else "hay")
    model = at_step(heap.trace(), len(heap.events))
    panel = region_panel(model, None, Look(colour="state", search="needle", map_pixels=(1000, high)))
    image = panel.traces[0]
    if not image["visible"]:
        assert high == 9000
        return
    pixels = decode(base64.b64decode(image["source"].partition(",")[2])).astype(int)
    lit = (pixels[..., :3] == rgb(LIGHT.search)).all(axis=2)
    parts = np.array_split(lit[:, : int(0.75 * lit.shape[1])], 3, axis=1)
    found = np.array([[part[:, 3:-3].all(axis=1), part[:, 3:-3].any(axis=1)] for part in parts])
    assert (found[:, 0] == found[:, 1]).all()
    seen = found[:, 0, ::2] | found[:, 0, 1::2]  # two lines of the image share a pixel
    assert seen.any(axis=0).all()
    nothing = region_panel(
        model, None, Look(colour="state", search="nothing", map_pixels=(1000, high))
    ).traces[0]
    pixels = decode(base64.b64decode(nothing["source"].partition(",")[2])).astype(int)
    assert not (pixels[..., :3] == rgb(LIGHT.search)).all(axis=2).any()


def test_zooming_in_turns_the_image_into_rectangles():
    heap = PlainHeap(4 * MiB)
    for _ in range(EXACT_CHUNKS + 500):
        heap.allocate(256)
    model = at_step(heap.trace(), len(heap.events))
    assert region_panel(model, None, Look(colour="state")).traces[0]["visible"]
    near = Look(colour="state", map_window=MapWindow((0.0, 64 * KiB), (0.0, 2.0)))
    panel = region_panel(model, None, near)
    assert not panel.traces[0]["visible"]
    assert len(ends(panel.traces[2])) == 2 * 64 * KiB // 256
    half = region_panel(model, None, Look(colour="state", map_window=MapWindow((0.0, 256 * KiB), (0.0, 3.3))))
    image = half.traces[0]
    assert image["visible"] == (EXACT_CHUNKS < 4 * 1024)
    assert image["y0"] - image["dy"] / 2 == pytest.approx(0)
    assert len(lay_out(model.regions()).part(near.map_window)) == 2


@pytest.mark.parametrize("colour", COLOURINGS)
@pytest.mark.parametrize("exact", [True, False])
def test_every_colouring_has_the_same_traces_and_names_its_classes(colour, exact, monkeypatch):
    if not exact:
        monkeypatch.setattr(sys.modules["bfcviz.figures.region_map"], "EXACT_CHUNKS", 10)
    model = at_step(busy_trace(), 400)
    look = Look(colour=colour)
    panel = region_panel(model, last_event(model), look)
    assert [each["type"] for each in panel.traces] == ["image", *["scatter"] * (len(panel.traces) - 1)]
    assert len(panel.traces) == len(region_panel(Model(model.trace), None, Look(colour="state")).traces)
    made = colouring(model.trace, 0, colour, LIGHT, model.chunks())
    shown = [each["name"] for each in panel.traces if "name" in each and each.get("showlegend", True)]
    there = set(made.classes(model.in_use(), model.step).tolist())
    others = {"other", "other or unknown"}
    classes = [
        name for number, name in enumerate(made.names) if name and (number in there or name not in others)
    ]
    assert [name for name in shown if name in classes] == classes
    assert ("waste (size - requested)" in shown) == (colour in {"state", "holder"})
    listed = region_panel(model, None, replace(look, legend=False)).traces
    assert not {each.get("name") for each in listed if each.get("showlegend", True)} & set(classes)


def test_the_legend_names_the_holders_of_the_largest_chunks_and_each_entry_hides_its_own():
    trace = sample_trace("conv")
    model = at_step(trace, bfcviz.peak(trace))
    chunks = model.in_use()
    largest = chunks[np.argsort(-chunks["size"].astype(np.int64))[:5]]
    made = colouring(trace, 0, "holder", LIGHT, model.chunks())
    figure = region_map(model, look=Look(colour="holder"))
    listed = {each.fillcolor: each for each in figure.select_traces({"showlegend": True, "fill": "toself"})}
    for number in set(made.classes(largest, model.step).tolist()):
        entry = listed[made.paints[number].fill]
        assert entry.name == made.names[number] != ""
        assert len(entry.x) >= 4
    fills = [each.fillcolor for each in figure.select_traces({"fill": "toself"}) if len(each.x) > 1]
    assert len(set(fills)) == len(fills)  # what is of one colour is hidden at once


# ------------------------------------------------------------------------------
# Rectangles of the region map: the bytes that they cover, and their lines.


@pytest.mark.parametrize("step", [1, 2, 150, 609])
def test_rectangles_cover_exactly_the_bytes_of_each_state(step):
    model = at_step(busy_trace(), step)
    figure = region_map(model)
    stats = model.stats()
    assert area(figure, "free") == stats.free_bytes
    assert area(figure, "in use") == stats.bytes_in_use
    assert area(figure, "waste (size - requested)") == stats.bytes_in_use - stats.requested_bytes_in_use
    assert area(figure, "region") == stats.pool_bytes


@pytest.mark.parametrize("since", [1, 150, 400])
def test_what_is_gone_is_shaded_where_it_is_free_so_that_what_is_new_is_seen(since):
    def spans(model, *, used):
        chunks = model.chunks()
        mine = chunks[chunks["in_use"] == used]
        return zip(mine["address"].tolist(), (mine["address"] + mine["size"]).tolist(), strict=True)

    trace = busy_trace()
    before, model = at_step(trace, since), at_step(trace, 600)
    figure = region_map(model, look=Look(since=since))
    free = [*spans(model, used=False)]
    gone = sum(
        max(min(ends[1], other[1]) - max(ends[0], other[0]), 0)
        for ends in spans(before, used=True)
        for other in free
    )
    x = np.asarray(named(figure, "gone").x)
    boxes = x[~np.isnan(x)].reshape(-1, 5)  # closed rectangles
    assert round(float((boxes.max(axis=1) - boxes.min(axis=1)).sum()) * unit(figure)) == gone
    assert (gone > 0) == (since > 1)
    chunks = model.chunks()
    new = chunks["size"][chunks["in_use"] & (chunks["born"] >= since)].sum()
    names = [trace.name for trace in figure.data if (trace.name or "").startswith("new")]
    assert sum(area(figure, name) for name in names) == new


@pytest.mark.parametrize(("regions", "mode"), [(100, "lines"), (200, "none")])
def test_where_no_frame_hides_them_there_are_no_lines_between_rectangles(regions, mode):
    heap = PlainHeap(4 * KiB, regions=regions, gap=4 * KiB)
    for _ in range(regions):
        heap.allocate(3 * KiB)
    figure = region_map(at_step(heap.trace(), len(heap.events)))
    assert len(rectangles(figure, "in use")) > 0
    assert {named(figure, name).mode for name in ("in use", "free")} == {mode}
    assert (len(rectangles(figure, "region")) > 0) == (mode == "lines")


def test_classes_cover_the_bytes_in_use():
    model = at_step(busy_trace(), 400)
    chunks = model.chunks()
    for colour in COLOURINGS:
        figure = region_map(model, look=Look(colour=colour))
        made = colouring(model.trace, 0, colour, LIGHT, chunks)
        classes = made.classes(chunks, 400)
        for number, name in enumerate(made.names):
            if name:
                assert area(figure, name) == chunks["size"][classes == number].sum()


# ------------------------------------------------------------------------------
# Names and sizes in the boxes of the region map, the gaps between them, fading and search.


def heap_of(*sizes):
    heap = PlainHeap(16 * MiB)
    for label, size in sizes:
        heap.allocate(size, label)
    return at_step(heap.trace(), len(heap.events))


def texts(panel):
    return next(each for each in panel.traces if each.get("mode") == "text")


def boxes_of_fade(panel):
    """Bytes under the trace that fades."""
    (trace,) = (each for each in panel.traces if each.get("fillcolor") == translucent(LIGHT.paper, FADE))
    left, right = ends({"fill": "toself", "x": trace["x"]}).T
    return round(float((right - left).sum()) * panel.x_unit)


def test_boxes_with_room_have_label_and_size_others_none():
    model = heap_of(("layer/MatMul", 2 * MiB), ("layer/Relu", 256), ("", MiB))
    found = texts(region_panel(model, None, Look(colour="state", map_pixels=(800, 400))))
    assert "layer/MatMul, 2 MiB" in list(found["text"])
    assert sum("Relu" in text for text in found["text"]) == 0
    assert [text for text in found["text"] if text.startswith("free, ")]
    small = texts(region_panel(model, None, Look(colour="state", map_pixels=(800, 60))))
    assert list(small["text"]) == []


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_a_text_contrasts_with_its_box(theme):
    model = heap_of(("a/x", 4 * MiB), ("b/x", 4 * MiB), ("c/x", 4 * MiB))
    for colour in COLOURINGS:
        panel = region_panel(model, None, Look(theme=theme.name, colour=colour))
        found = texts(panel)
        assert len(found["text"]) == 4
        fills = {
            each.get("fillcolor", "") for each in panel.traces if len(np.atleast_1d(each.get("x", 0))) > 1
        }
        assert set(found["textfont"]["color"]) <= {
            contrasting(fill) for fill in fills if fill.startswith("#")
        }


def test_a_text_is_in_the_requested_part_where_waste_has_its_own_colour():
    heap = PlainHeap(MiB)
    hole = heap.allocate(40 * KiB)
    heap.allocate(256)
    heap.free(hole)
    heap.allocate(24 * KiB, "a")  # gets the hole: it is less than twice as large
    model = at_step(heap.trace(), len(heap.events))
    for colour, size in (("state", 24 * KiB), ("holder", 24 * KiB), ("size", 40 * KiB)):
        panel = region_panel(model, None, Look(colour=colour))
        found = texts(panel)
        (place,) = (x for x, text in zip(found["x"], found["text"], strict=True) if text.startswith("a"))
        assert place * panel.x_unit == size / 2


def test_a_chunk_of_several_rows_has_one_text():
    found = texts(region_panel(heap_of(("long", 9 * MiB)), None, Look(colour="state")))
    assert sum(text.startswith("long") for text in found["text"]) == 1


def test_neighbours_that_are_wide_enough_have_a_gap_in_the_colour_of_the_paper():
    model = heap_of(("a", 300 * KiB), ("b", 300 * KiB), ("c", 256), ("d", 300 * KiB))
    panel = region_panel(model, None, Look(colour="state", theme="dark"))
    (gap,) = (each for each in panel.traces if (each.get("line") or {}).get("color") == DARK.paper)
    edges = np.unique(np.asarray(gap["x"])[~np.isnan(gap["x"])]) * panel.x_unit
    assert 300 * KiB in edges.tolist()
    assert 600 * KiB not in edges.tolist()


@pytest.mark.parametrize(("high", "lines"), [(620, True), (60, False)])
def test_rows_that_are_lower_than_a_line_have_none(high, lines):
    """A line along the edge of such a row would cover the chunks of its neighbours too."""
    heap = PlainHeap(256 * KiB, regions=40, gap=4 * KiB)
    for _ in range(4 * 40):
        heap.allocate(64 * KiB)
    panel = region_panel(
        at_step(heap.trace(), len(heap.events)), None, Look(colour="state", map_pixels=(1000, high))
    )
    drawn = [each for each in panel.traces if each.get("mode") == "lines" and np.isfinite(each["y"]).any()]
    covering = [each for each in drawn if each.get("fill") is None]
    assert bool(covering) is lines


def test_chunks_outside_of_a_holder_fade_and_have_no_text():
    model = heap_of(("a/x", 2 * MiB), ("a/y", MiB), ("b", 4 * MiB))
    used = 7 * MiB
    assert boxes_of_fade(region_panel(model, None, Look(colour="state"))) == 0
    for look, kept in (
        (Look(colour="state", holder=HolderChoice("op", ("a",))), 3 * MiB),
        (
            Look(colour="state", holder=HolderChoice("op", ("a",)), hovered=HolderChoice("op", ("b",))),
            4 * MiB,
        ),
        (Look(colour="state", holder=HolderChoice("op", ("nothing",))), 0),
        (Look(colour="state", hovered=HolderChoice("op", ())), used),
    ):
        panel = region_panel(model, None, look)
        assert boxes_of_fade(panel) == used - kept
        names = [text.split(",")[0] for text in texts(panel)["text"] if not text.startswith("free")]
        assert len(names) == {3 * MiB: 2, 4 * MiB: 1, 0: 0, used: 3}[kept]


def test_an_image_fades_the_same_chunks(monkeypatch):
    monkeypatch.setattr(sys.modules["bfcviz.figures.region_map"], "EXACT_CHUNKS", 0)
    model = heap_of(("a", 8 * MiB), ("b", 8 * MiB))
    pixels = {}
    for name in ("a", "b"):
        look = Look(colour="size", hovered=HolderChoice("op", (name,)))
        source = region_panel(model, None, look).traces[0]["source"]
        colours = np.unique(decode_source(source).view("<u4")).view(np.uint8).reshape(-1, 4)[:, :3]
        pixels[name] = {tuple(colour) for colour in colours.tolist()}
    fill = next(paint.fill for paint in LIGHT.ramp if rgb(paint.fill) in pixels["a"])
    pale = np.array(rgb(mixed(fill, LIGHT.paper, FADE)))
    for found in pixels.values():
        assert rgb(fill) in found
        assert min(np.abs(pale - colour).max() for colour in found) <= 1


def decode_source(source):
    return decode(base64.b64decode(source.partition(",")[2]))


def test_matches_of_a_search_are_outlined_once_in_the_legend():
    model = heap_of(("layer/MatMul", 2 * MiB), ("other/matmul", MiB), ("Relu", MiB))
    panel = region_panel(model, None, Look(colour="state", search="MATMUL"))
    (found,) = (each for each in panel.traces if (each.get("line") or {}).get("color") == LIGHT.search)
    left, right = ends({"fill": None, **found}).T
    assert round(float((right - left).sum()) * panel.x_unit) == 3 * MiB
    assert found["showlegend"]
    for search in (None, "", "  ", "nothing"):
        (none,) = (
            each
            for each in region_panel(model, None, Look(colour="state", search=search)).traces
            if (each.get("line") or {}).get("color") == LIGHT.search
        )
        assert np.isnan(none["x"]).all()
        assert not none["showlegend"]


def test_labels_that_a_growing_trace_adds_are_searched_too():
    heap = PlainHeap(16 * MiB)
    heap.allocate(256, "first")
    first = np.zeros(1, CHUNK)
    first["label"] = 1
    assert found_by(heap.labels, "r")(first).tolist() == [True]
    heap.allocate(256, "later")
    first["label"] = 2
    assert found_by(heap.labels, "r")(first).tolist() == [True]


def test_a_search_fades_what_it_does_not_find_and_an_address_finds_free_memory():
    model = heap_of(("layer/MatMul", 2 * MiB), ("Relu", MiB), ("matmul/tail", 4 * MiB))
    for search, pale in (
        (None, 0),
        ("matmul", MiB),
        (">=3 MiB", 3 * MiB),
        ("MAT <3MiB", 5 * MiB),
        ("?", 7 * MiB),
    ):
        assert boxes_of_fade(region_panel(model, None, Look(colour="state", search=search))) == pale
    free = model.chunks()[~model.chunks()["in_use"]][0]
    chunks = model.chunks()[
        map_search_matches(model.chunks(), model.trace.labels, f"{int(free['address']) + 1:#x}")
    ]
    assert chunks["address"].tolist() == [free["address"]]


def test_a_picture_of_its_own_fits_names_to_its_height():
    """Its rows are lower than those of a dashboard: they have room for one line."""
    heap = PlainHeap(160 * MiB)
    for number in range(10):
        heap.allocate(16 * MiB, f"layer_{number}/MatMul")
    figure = bfcviz.draw("region_map", heap.trace())
    (names,) = (trace for trace in figure.select_traces({"mode": "text"}) if len(trace.text))
    assert list(names.text) == [f"layer_{number}/MatMul, 16 MiB" for number in range(10)]


def small_chunks(count, region=2 * MiB):
    heap = PlainHeap(region)
    for number in range(count):
        heap.allocate(200, f"op {number % 3}")
    model = Model(heap.trace())
    model.seek(len(heap.events))
    return model, lay_out(model.regions(), wrapped_rows=2)


def points_of(model, rows):
    chunks = model.chunks()
    pieces = rows.pieces(chunks["address"], chunks["size"])
    return points_in_pieces(chunks, pieces, rows.part(None), model.trace.labels)


def test_each_of_many_chunks_has_a_point_and_the_widest_have_full_texts():
    model, rows = small_chunks(2000)
    points = points_of(model, rows)
    referred = [int(re.match(r"%{meta\[(\d+)]}", text)[1]) for text in points["hovertemplate"]]
    assert set(referred) == set(range(2001))
    assert len(referred) < 4000
    texts = points["meta"][:2001]
    whole = sum("zoom in" not in text for text in texts)
    assert MOST_TEXTS - 1 <= whole <= MOST_TEXTS  # the widest chunk is in two pieces
    assert texts[-1].startswith("<b>free</b>, 1.5 MiB")
    assert len(set(points["y"] % 1)) > 1  # a tall row has points from top to bottom


def test_labels_are_written_once():
    model, rows = small_chunks(300)
    points = points_of(model, rows)
    assert sorted(points["meta"][301:]) == ["no label", "op 0", "op 1", "op 2"]
    assert not any("op" in text for text in points["hovertemplate"])


def test_a_grid_has_no_more_points_than_fit_however_many_rows():
    for regions in (1, 3, 2000):
        heap = PlainHeap(4 * KiB, regions=regions, gap=4 * KiB)
        for _ in range(regions):
            heap.allocate(4 * KiB)
        model = Model(heap.trace())
        model.seek(len(heap.events))
        rows = lay_out(model.regions())
        points = points_on_grid(model.chunks(), rows, rows.part(None), model.trace.labels)
        assert 100 <= len(points["x"]) <= 1000
        assert len(points["x"]) == len(points["y"]) == len(points["hovertemplate"])
        assert np.ptp(points["y"]) >= 0.9 * (len(rows) - 1)


def test_an_image_of_low_rows_has_a_point_for_each_chunk_of_each_row():
    trace = state([[1 << 10] * 2] * 600)
    model = at_step(trace, len(trace))
    chunks, rows = model.chunks(), rows_of(model)
    points = hover_points(region_map(model))
    assert next(each.type for each in region_map(model).data) == "image"
    assert set(np.floor(points.y).tolist()) == set(range(len(rows)))
    named = {text.split("chunk ")[1].split()[0] for text in points.meta if "chunk " in text}
    assert named == {str(handle) for handle in chunks["handle"].tolist()}


def test_points_are_no_farther_apart_than_rows_are_high():
    """In a map 1,000 pixels wide and 300 high: plotly takes the nearest point, and a row has one in its middle."""
    heap = PlainHeap(64 * MiB)
    heap.allocate(30 * MiB)
    model = Model(heap.trace())
    model.seek(len(heap.events))
    rows = lay_out(model.regions())
    points = points_of(model, rows)
    for row in range(7):  # those with nothing but this chunk
        x = np.sort(points["x"][np.floor(points["y"]) == row]) / rows.width * 1000
        assert np.diff(x).max() / 2 < 300 / len(rows) / 2


def test_as_many_rows_as_there_may_be_have_not_too_many_points():
    heap = PlainHeap(4 * KiB, regions=1500, gap=4 * KiB)
    for _ in range(1500):
        heap.allocate(4 * KiB)
    model = Model(heap.trace())
    model.seek(len(heap.events))
    assert len(points_of(model, lay_out(model.regions()))["x"]) <= 6000


def test_the_innermost_frames_of_a_stack_are_shown_one_per_line():
    heap = PlainHeap(64 * KiB)
    heap.allocate(KiB, "few", stack="layer (<model>.py:3)\n<module> (train.py:9)")
    heap.allocate(
        KiB, "many", stack="\n".join(f"f{n} (a.py:{n})" for n in range(MOST_FRAMES + 3)), shape="[4]"
    )
    model = Model(heap.trace())
    model.seek(len(heap.events))
    texts = points_of(model, lay_out(model.regions()))["meta"]
    assert "few<br>layer (&lt;model&gt;.py:3)<br>&lt;module&gt; (train.py:9)" in texts
    (many,) = (text.split("<br>") for text in texts if text.startswith("many"))
    assert many[1:] == ["f0 (a.py:0)", *many[2 : MOST_FRAMES + 1], "… 3 more", "shape: [4]"]


def test_a_stack_of_torch_has_the_readers_lines_first_and_no_frame_of_the_allocator():
    inside = [f"c10::cuda::CUDACachingAllocator::Native::f{n}() (:0)" for n in range(10)]
    own = ["update (/home/me/models.py:181)", "train (/home/me/train.py:9)"]
    heap = PlainHeap(64 * KiB)
    heap.allocate(KiB, "models.py:181 update", stack="\n".join([*inside, "at::native::mul(int) (:0)", *own]))
    model = Model(heap.trace())
    model.seek(len(heap.events))
    (text,) = (
        text for text in points_of(model, lay_out(model.regions()))["meta"] if text.startswith("models")
    )
    assert text.split("<br>")[1:] == [*own, "at::native::mul", "… 10 more"]


def test_a_thread_has_its_name_in_the_texts_of_the_map_and_of_addresses_over_time():
    kept = []
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False, capture="nothing") as w:
        thread = Thread(target=lambda: kept.append(np.empty(KiB)), name="<loader>")
        thread.start()
        thread.join()
    number = next(number for number, name in w.trace.origin.details["threads"].items() if name == "<loader>")
    of_map = " ".join(text for each in bfcviz.draw("region_map", w.trace).data for text in each.meta or ())
    over_time = " ".join(
        text for each in bfcviz.draw("address_time", w.trace).data for text in each.hovertext or ()
    )
    for texts in (of_map, over_time):
        assert f"thread {number}: &lt;loader&gt;, stream" in texts
    model, rows = small_chunks(3)
    assert "thread 0, stream" in points_of(model, rows)["meta"][0]


# ------------------------------------------------------------------------------
# Touched, selected and lone chunks on the region map.


def test_the_touched_chunk_is_outlined_and_a_narrow_one_gets_a_marker():
    heap = PlainHeap(64 * MiB)
    heap.allocate(4 * KiB)
    model = at_step(heap.trace(), 3)
    figure = region_map(model)
    outline = rectangles(figure, "touched by this step")
    assert (outline[:, 1] - outline[:, 0]) * unit(figure) == 4 * KiB
    _, _, marker = of_mode(figure, "markers")
    assert list(marker.x) == [2 * KiB / unit(figure)]
    model.seek(0)
    assert len(rectangles(region_map(model), "touched by this step")) == 0


def test_the_selected_chunk_is_outlined_while_it_is_there():
    model = at_step(busy_trace(), 400)
    chunks = model.chunks()
    for in_use in (True, False):
        chunk = chunks[chunks["in_use"] == in_use][2]
        chosen = Selected(int(chunk["address"]), int(chunk["born"]) if in_use else None)
        assert (
            area(region_map(model, look=Look(colour="state", selected=chosen)), "selected") == chunk["size"]
        )
        for other in (Selected(chosen.address, 399), Selected(chosen.address + 1, chosen.born), Selected(0)):
            assert not area(region_map(model, look=Look(colour="state", selected=other)), "selected")


def test_one_small_chunk_in_a_terabyte_can_be_found_clicked_and_zoomed_to():
    heap = PlainHeap(1 << 40)
    held = [heap.allocate(256), heap.allocate(1 << 37), heap.allocate(1)]
    heap.free(held[1])
    model = at_step(heap.trace(), len(heap.events))
    figure = region_map(model)
    mark, *_ = of_mode(figure, "markers")
    assert len(mark.x) == 2
    assert mark.showlegend
    found = chunk_at(model, mark.x[1] + 0.05, mark.y[1], Look(colour="state"))
    assert (int(found["address"]), int(found["size"])) == (held[2], 256)
    offset = (held[2] - held[0]) % (1 << 36)
    look = Look(colour="state", map_window=MapWindow((offset - 300.0, offset + 700.0), (2.0, 3.0)))
    near = region_map(model, look=look)
    assert area(near, "in use") == 256
    assert np.isnan(of_mode(near, "markers")[0].x).all()
    assert chunk_at(model, (offset + 100) / unit(near), 2.5, look)["address"] == held[2]


def test_a_lone_chunk_in_an_image_is_marked_too(monkeypatch):
    monkeypatch.setattr(sys.modules["bfcviz.figures.region_map"], "EXACT_CHUNKS", 1)
    heap = PlainHeap(1 << 40)
    heap.allocate(256)
    mark, *_ = of_mode(region_map(at_step(heap.trace(), 3)), "markers")
    assert list(mark.y) == [0.98]


@pytest.fixture
def small():
    """EXTEND, SPLIT, ALLOCATE a, SPLIT, ALLOCATE b, FREE a, FREE b, MERGE, MERGE, OOM."""
    heap = PlainHeap(64 * MiB)
    a, b = heap.allocate(MiB), heap.allocate(2 * MiB)
    heap.free(a)
    heap.free(b)
    heap.allocate(65 * MiB)
    return heap.trace()


@pytest.mark.parametrize(
    ("step", "kind", "spans"),
    [
        (1, Kind.EXTEND, [(0, 64)]),
        (2, Kind.SPLIT, [(0, 1), (1, 63)]),
        (3, Kind.ALLOCATE, [(0, 1)]),
        (6, Kind.FREE, [(0, 1)]),
        (8, Kind.MERGE, [(1, 63)]),
        (9, Kind.MERGE, [(0, 64)]),
        (10, Kind.OOM, [(0, 64)]),
    ],
)
def test_each_event_points_at_what_it_touched(small, step, kind, spans):
    model = Model(small)
    model.seek(step)
    event = last_event(model)
    assert event["kind"].tolist() == [kind]
    found = touched(event, model.chunks(), model.regions())
    assert found.tolist() == [(BASE + at * MiB, size * MiB) for at, size in spans]


def test_before_the_first_event_nothing_is_touched(small):
    model = Model(small)
    assert last_event(model) is None
    assert len(touched(None, model.chunks(), model.regions())) == 0


def test_marks_releases_and_other_heaps_touch_nothing():
    events = np.zeros(3, EVENT)
    events["seq"], events["kind"], events["bin"] = range(3), Kind.MARK, -1
    events["pool"] = [0, 0, 1]
    model = Model(trace_of(events, pools=2))
    model.seek(1)
    assert len(touched(last_event(model), model.chunks(), model.regions())) == 0
    model.seek(3)
    assert last_event(model) is None


def test_events_that_only_build_a_state_are_not_highlighted():
    trace = state([[2, -3, 1]], 4)
    model = Model(trace)
    model.seek(len(trace) - 1)
    assert last_event(model) is None
    model.seek(len(trace))
    assert [Kind(kind) for kind in last_event(model)["kind"]] == [Kind.OOM]


# ------------------------------------------------------------------------------
# What a request finds on the region map: chunks that would take it, or the nearest miss and its blockers.


def at_end(heap):
    trace = heap.trace()
    model = Model(trace)
    model.seek(len(trace))
    return model


@pytest.fixture
def heap():
    """[free 16 | a 12 | free 18 | <b>b</b> 9 | free 9] MiB of a region of 64 MiB."""
    heap = PlainHeap(64 * MiB)
    names = ("x", "a", "y", "<b>b</b>", "z")
    places = [heap.allocate(size * MiB, name) for name, size in zip(names, (16, 12, 18, 9, 9), strict=True)]
    for place in places[::2]:
        heap.free(place)
    return heap


def boxes(figure, name):
    """(address in MiB, size in MiB) of each outlined rectangle, pieces of one chunk joined."""
    (trace,) = [trace for trace in figure.data if trace.name == name]
    x, y = np.reshape(trace.x, (-1, 6)), np.reshape(trace.y, (-1, 6))
    width = 4  # MiB of a row: 64 MiB in 16 rows
    spans = [
        (int(np.floor(low)) * width + left, right - left)
        for left, right, low in zip(x[:, 0], x[:, 1], y[:, 0], strict=True)
    ]
    joined = []
    for start, size in spans:
        if joined and joined[-1][0] + joined[-1][1] == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        else:
            joined.append((start, size))
    return sorted(joined)


def marked(figure, symbol):
    points = [trace for trace in figure.data if trace.type == "scatter" and trace.mode == "markers"]
    return [trace for trace in points if trace.marker.symbol == symbol]


def names(figure):
    return {trace.name for trace in figure.data if trace.type == "scatter" and trace.showlegend}


def test_what_a_step_touched_has_one_tip_beside_its_name_however_wide():
    trace = state([[2, -40, 22]])
    model = at_step(trace, len(trace) - 1)
    chunk = max(model.in_use(), key=lambda each: each["size"])
    event = trace.read(int(chunk["born"]), int(chunk["born"]) + 1)
    traces = region_panel(model, event, Look(colour="state")).traces
    (tips,) = (each for each in traces if each.get("marker", {}).get("symbol") == "triangle-down")
    assert len(tips["x"]) == 1


def test_chunks_that_would_take_it_are_outlined_and_the_best_fit_has_a_star(heap):
    figure = region_map(at_end(heap), look=Look(colour="state", wanted=10 * MiB))
    assert boxes(figure, "would take it") == [(0, 16), (28, 18)]
    (star,) = marked(figure, "star")
    assert len(star.x) == 1
    assert hex(BASE) in star.hovertext[0]
    assert names(figure).isdisjoint({"nearest miss", "in the way"})


def test_the_nearest_miss_is_framed_and_its_blockers_are_crossed_and_named(heap):
    heap.allocate(22 * MiB)  # fails: the pool cannot grow
    model = at_end(heap)
    figure = region_map(model)
    assert boxes(figure, "nearest miss") == [(28, 36)]
    (cross,) = marked(figure, "x")
    assert cross.marker.color == Look(colour="state").paints.oom
    assert {"&lt;b&gt;b&lt;/b&gt;" in text and "9.0 MiB" in text for text in cross.hovertext} == {True}
    assert "36.0 MiB" in figure.layout.annotations[0].text
    asked = region_map(model, look=Look(colour="state", wanted=1))
    assert boxes(asked, "would take it") == [(0, 16), (28, 18), (55, 9)]


def test_a_chunk_with_room_for_a_cross_only_has_no_name_below_it():
    trace = state([[-20, 1, -20, 12, 180]], asked=30, limit=233)

    model = at_step(trace, len(trace) - 1)
    plain, asked = region_map(model), region_map(model, look=Look(colour="state", wanted=30 * MiB))
    (cross,) = marked(asked, "x")
    assert len(cross.x) == 1
    before, after = ([text for each in of_mode(one, "text") for text in each.text] for one in (plain, asked))
    assert "1 MiB" in before
    assert after == [text for text in before if text != "1 MiB"]


def test_a_request_that_growth_serves_has_no_miss(heap):
    figure = region_map(
        at_end(heap), look=Look(colour="state", wanted=22 * MiB)
    )  # the trace's limit is 512 MiB
    assert names(figure).isdisjoint({"would take it", "nearest miss", "in the way"})


def test_without_a_request_nothing_is_marked_and_the_traces_are_the_same(heap):
    model = at_end(heap)
    plain, asked = region_map(model), region_map(model, look=Look(colour="state", wanted=MiB))
    assert len(plain.data) == len(asked.data)
    assert names(plain).isdisjoint({"would take it", "nearest miss", "in the way"})


def test_only_so_many_are_marked_and_only_those_on_screen():
    heap = PlainHeap(MiB)
    places = [heap.allocate(KiB) for _ in range(1024)]
    for place in places[::2]:
        heap.free(place)
    model = at_end(heap)
    figure = region_map(model, look=Look(colour="state", wanted=KiB))
    (trace,) = [trace for trace in figure.data if (trace.name or "").startswith("would take it")]
    assert len(trace.x) == 6 * MOST_TAKERS
    assert f"{512 - MOST_TAKERS:,}" in trace.name
    window = MapWindow((0, 64 * KiB), (0, 1))
    figure = region_map(model, look=Look(colour="state", wanted=KiB, map_window=window))
    (trace,) = [trace for trace in figure.data if (trace.name or "").startswith("would take it")]
    assert len(trace.x) == 6 * 32
    heap.allocate(MiB // 2)  # fails
    (cross,) = marked(region_map(at_end(heap)), "x")
    assert len(cross.x) == MOST_BLOCKERS


def test_numbers_that_a_file_does_not_have_are_unknown_in_hover_texts_and_null_in_the_table():
    log, dump, history = (sample_trace(name) for name in ("oom_log", "oom_dump", "lstm"))
    for trace, unknown in ((log, 5), (dump, 3), (history, 0)):  # requested, waste, step, thread, stream
        model = at_step(trace, len(trace) - 1)
        texts = {text for _, _, text in hover_texts(region_map(model)) if "<b>in use</b>, size" in text}
        assert {text.count("unknown") for text in texts} == {unknown}
        table = chunk_table(model)
        used = table.filter(pc.equal(table["state"], "in use"))
        empty = {name for name in used.column_names if used[name].null_count == len(used)}
        columns = ["thread", "stream", "allocated_at_step", "requested", "waste"]
        assert empty == set(columns[:unknown])
        assert used.schema == chunk_table(at_step(history, 100)).schema  # the same types


def test_the_tables_of_lifetimes_of_a_state_are_null_there_too():
    trace = sample_trace("oom_log")
    for name in ("address_time", "active_memory"):
        table = bfcviz.draw(name, trace, len(trace)).table
        for column in ("requested", "thread", "stream", "allocated_at_step"):
            assert table[column].null_count == len(table) > 0
