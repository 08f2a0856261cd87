"""The traces of the region map: rectangles up to a number of chunks, then an image."""

import base64
import sys
from dataclasses import replace

import numpy as np
import pytest
from unit.figures.drawn import region_map
from unit.figures.region_map.drawn_map import (
    at_step,
    ends,
    hover_texts,
    rectangles,
)
from unit.figures.style.test_raster_image import decode
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace

from bfcviz.figures.colouring import COLOURINGS, colouring
from bfcviz.figures.map_rows import lay_out
from bfcviz.figures.raster_image import LINES
from bfcviz.figures.region_map import EXACT_CHUNKS, region_panel
from bfcviz.figures.theme import DARK, LIGHT, rgb
from bfcviz.figures.view_options import Look, MapWindow
from bfcviz.model import Model
from bfcviz.model.navigation import last_event


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
    figure = region_map(model, look=Look(theme="dark"))
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
    panel = region_panel(model, None, Look(search="needle", map_pixels=(1000, high)))
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
    nothing = region_panel(model, None, Look(search="nothing", map_pixels=(1000, high))).traces[0]
    pixels = decode(base64.b64decode(nothing["source"].partition(",")[2])).astype(int)
    assert not (pixels[..., :3] == rgb(LIGHT.search)).all(axis=2).any()


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
        monkeypatch.setattr(sys.modules["bfcviz.figures.region_map"], "EXACT_CHUNKS", 10)
    model = at_step(busy_trace(), 400)
    look = Look(colour=colour)
    panel = region_panel(model, last_event(model), look)
    assert [each["type"] for each in panel.traces] == ["image", *["scatter"] * (len(panel.traces) - 1)]
    assert len(panel.traces) == len(region_panel(Model(model.trace), None, Look()).traces)
    made = colouring(model.trace, 0, colour, LIGHT, model.chunks())
    shown = [each["name"] for each in panel.traces if "name" in each and each.get("showlegend", True)]
    classes = [name for name in made.names if name]
    assert [name for name in shown if name in classes] == classes
    assert ("waste (size - requested)" in shown) == (colour in {"state", "holder"})
    listed = region_panel(model, None, replace(look, legend=False)).traces
    assert not {each.get("name") for each in listed if each.get("showlegend", True)} & set(classes)
