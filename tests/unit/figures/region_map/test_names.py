"""Names and sizes in the boxes of the region map, the gaps between them, fading and search."""

import base64
import sys

import numpy as np
import pytest
from unit.figures.region_map.drawn_map import at_step, ends
from unit.figures.style.test_raster_image import decode
from unit.figures.synthetic import KiB, MiB, PlainHeap

import bfcviz
from bfcviz.figures.colouring import COLOURINGS
from bfcviz.figures.region_map import map_search_matches, region_panel
from bfcviz.figures.theme import DARK, LIGHT, contrasting, mixed, rgb, translucent
from bfcviz.figures.view_options import FADE, Look
from bfcviz.model.filters import found_by
from bfcviz.model.grouping import HolderChoice
from bfcviz.model.model import CHUNK


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
    found = texts(region_panel(model, None, Look(map_pixels=(800, 400))))
    assert "layer/MatMul, 2 MiB" in list(found["text"])
    assert sum("Relu" in text for text in found["text"]) == 0
    assert [text for text in found["text"] if text.startswith("free, ")]
    small = texts(region_panel(model, None, Look(map_pixels=(800, 60))))
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


def test_a_hostile_label_is_escaped_in_its_box():
    found = texts(region_panel(heap_of(("<img src=x>", 4 * MiB)), None, Look()))
    assert any("&lt;img" in text for text in found["text"])
    assert not any("<img" in text for text in found["text"])


def test_a_chunk_of_several_rows_has_one_text():
    found = texts(region_panel(heap_of(("long", 9 * MiB)), None, Look()))
    assert sum(text.startswith("long") for text in found["text"]) == 1


def test_neighbours_that_are_wide_enough_have_a_gap_in_the_colour_of_the_paper():
    model = heap_of(("a", 300 * KiB), ("b", 300 * KiB), ("c", 256), ("d", 300 * KiB))
    panel = region_panel(model, None, Look(theme="dark"))
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
    panel = region_panel(at_step(heap.trace(), len(heap.events)), None, Look(map_pixels=(1000, high)))
    drawn = [each for each in panel.traces if each.get("mode") == "lines" and np.isfinite(each["y"]).any()]
    covering = [each for each in drawn if each.get("fill") is None]
    assert bool(covering) is lines


def test_chunks_outside_of_a_holder_fade_and_have_no_text():
    model = heap_of(("a/x", 2 * MiB), ("a/y", MiB), ("b", 4 * MiB))
    used = 7 * MiB
    assert boxes_of_fade(region_panel(model, None, Look())) == 0
    for look, kept in (
        (Look(holder=HolderChoice("op", ("a",))), 3 * MiB),
        (Look(holder=HolderChoice("op", ("a",)), hovered=HolderChoice("op", ("b",))), 4 * MiB),
        (Look(holder=HolderChoice("op", ("nothing",))), 0),
        (Look(hovered=HolderChoice("op", ())), used),
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
    panel = region_panel(model, None, Look(search="MATMUL"))
    (found,) = (each for each in panel.traces if (each.get("line") or {}).get("color") == LIGHT.search)
    left, right = ends({"fill": None, **found}).T
    assert round(float((right - left).sum()) * panel.x_unit) == 3 * MiB
    assert found["showlegend"]
    for search in (None, "", "  ", "nothing"):
        (none,) = (
            each
            for each in region_panel(model, None, Look(search=search)).traces
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
        assert boxes_of_fade(region_panel(model, None, Look(search=search))) == pale
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
