"""Figures drawn without plotly's script: the same numbers at the same places, the same texts, and nothing else."""

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from shared import sample_trace
from unit.figures.odd_traces import ODD
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.figures import region_map
from bfcviz.figures.panel import Page, Panel, Place, panels_page
from bfcviz.figures.svg import as_svg, picture
from bfcviz.figures.theme import DARK, LIGHT
from bfcviz.figures.view import VIEWS, HeapData
from bfcviz.figures.view_options import Look
from bfcviz.model import Model

TAGS = {"svg", "path", "rect", "text", "tspan", "image", "title", "div"}


def parsed(text):
    return ET.fromstring(text)  # noqa: S314  our own text


def drawn(name, trace, step, **look):
    model = Model(trace)
    model.seek(step)
    chosen = Look(**look)
    page = VIEWS[name].page(HeapData(model), chosen)
    return page, parsed(as_svg(page, chosen.paints, 1000))


def texts(root):
    return [" ".join("".join(each.itertext()).split()) for each in root.iter("text")]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_is_drawn_with_its_title_its_legend_and_its_ticks(name, theme):
    trace = sample_trace("conv")
    page, root = drawn(name, trace, len(trace) // 2, theme=theme, colour="holder")
    assert {each.tag for each in root.iter()} <= TAGS
    found = texts(root)
    for trace_drawn in page.data:
        settings = page.layout[trace_drawn["legend"]] if trace_drawn["visible"] is True else {}
        if settings.get("visible") and trace_drawn.get("showlegend", True) and trace_drawn.get("name"):
            assert any(text == trace_drawn["name"] for text in found)
    for axis in (each for key, each in page.layout.items() if "axis" in key and each["visible"]):
        assert axis.get("title", {}).get("text", "") in [*found, ""]
        if len(axis.get("ticktext") or []) > 1 and axis.get("showticklabels", True):
            assert len(set(axis["ticktext"]) & set(found)) >= len(axis["ticktext"]) - 2


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ODD)
def test_odd_traces_are_drawn_and_their_labels_are_only_text(name, view):
    trace = ODD[name]()
    model = Model(trace)
    model.seek(len(trace))
    look = Look(colour="holder")
    text = as_svg(VIEWS[view].page(HeapData(model), look), look.paints)
    assert {each.tag for each in parsed(text).iter()} <= TAGS
    assert not re.search(
        r"(?<![a-z])(nan|inf)(?![a-z])", re.sub(r">[^<]*<|href=\"[^\"]*\"|aria-label=\"[^\"]*\"", "", text)
    )
    text.encode()


def test_bars_are_as_long_as_their_numbers():
    heap = PlainHeap(64 * MiB)
    held = [heap.allocate(MiB << number, "a") for number in range(4)]
    heap.free(held[1])
    trace = heap.trace()
    page, root = drawn("failure", trace, len(trace))
    sizes = [each["x"][0] for each in page.data[:4]]
    low, high = page.layout["xaxis"]["range"]
    plot = root.find("svg")
    wide = [float(each.get("width")) for each in plot.findall("rect")]
    assert wide == pytest.approx([size / (high - low) * (1000 - 108) for size in sizes], abs=0.1)


def test_a_step_is_where_its_axis_has_it():
    trace = busy_trace(400)
    page, root = drawn("stats_timeline", trace, 100)
    (line,) = [
        each for each in root.iter("path") if each.get("stroke") == LIGHT.highlight and "V" in each.get("d")
    ]
    low, high = page.layout["xaxis"]["range"]
    at = 88 + (100 - low) / (high - low) * (1000 - 108)
    assert float(re.match(r"M([\d.]+) ", line.get("d"))[1]) == pytest.approx(at, abs=0.06)


def one_plot(trace, **axes):
    panel = Panel(
        "one",
        "One",
        "",
        [trace],
        {"range": [0, 10], **axes.get("x", {})},
        {"range": [0, 100], **axes.get("y", {})},
    )
    return panels_page([panel], [Place(0, 1, panel.above, 100)], DARK)


def line(**more):
    points = {"x": np.array([0.0, 5.0, np.nan, 10.0, 10.0]), "y": np.array([0.0, 50.0, 1.0, 0.0, 100.0])}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "",
        "line": {"color": "#123456", "width": 1},
        **points,
        **more,
    }


def path_of(page):
    (found,) = [
        each for each in parsed(as_svg(page, DARK, 1108)).iter("path") if each.get("stroke") == "#123456"
    ]
    return found.get("d")


def test_a_line_ends_where_a_number_is_missing():
    top = one_plot(line()).layout["margin"]["t"]  # 1000 x 100 pixels from (88, top)
    assert path_of(one_plot(line())) == f"M88.0 {top + 100}.0L588.0 {top + 50}.0M1088.0 {top + 100}.0V{top}.0"


def test_a_stepped_line_is_level_up_to_its_next_point():
    top = one_plot(line()).layout["margin"]["t"]
    stepped = line(line={"color": "#123456", "width": 1, "shape": "hv"})
    assert (
        path_of(one_plot(stepped)) == f"M88.0 {top + 100}.0H588.0V{top + 50}.0M1088.0 {top + 100}.0V{top}.0"
    )


@pytest.mark.parametrize(
    ("form", "step", "end", "expected"),
    [
        (",~g", 2500, 10_000, ["0", "2,500", "5,000", "7,500", "10,000"]),
        (",~g", 0.25, 2, ["0", "0.25", "0.5", "1", "1.75"]),
        ("~s", 5000, 10_000, ["0", "5k", "10k"]),
        ("", 2000, 10_000, None),
    ],
)
def test_ticks_are_written_as_plotly_writes_them(form, step, end, expected):
    page = one_plot(line(), x={"range": [0, end], "dtick": step, "tickformat": form})
    found = texts(parsed(as_svg(page, DARK)))
    assert set(expected or ["0", "2000", "8000", "10,000"]) <= set(found)


@pytest.mark.parametrize(
    "odd", [{"type": "heatmap"}, {"fill": "tonexty"}, {"mode": "markers", "marker": {"symbol": "hexagon"}}]
)
def test_what_is_not_known_is_an_error(odd):
    with pytest.raises(NotImplementedError):
        as_svg(one_plot(line(**odd)), DARK)


def test_the_chunks_of_an_image_are_measured_once_for_both_themes(monkeypatch):
    heap = PlainHeap(4 * MiB)
    for _ in range(region_map.EXACT_CHUNKS + 500):
        heap.allocate(256)
    model = Model(heap.trace())
    model.seek(len(heap.events))
    measured = []
    measure = region_map.cell_bytes
    monkeypatch.setattr(
        region_map, "cell_bytes", lambda *arguments: measured.append(1) or measure(*arguments)
    )
    light, dark = re.findall(r'href="(data:[^"]*)"', picture("region_map", model, Look(colour="holder")))
    assert (len(measured), light == dark) == (1, False)


def test_both_themes_are_there_once():
    trace = busy_trace(50)
    text = picture("region_map", Model(trace), Look())
    assert [text.count(f'class="bfcviz-{name}"') for name in ("light", "dark")] == [1, 1]
    assert LIGHT.text in text
    assert DARK.text in text


def test_a_page_without_a_panel_in_sight_is_empty():
    page = Page([], {"margin": {"l": 1, "r": 1, "t": 1, "b": 1}, "height": 10, "annotations": []})
    assert list(parsed(as_svg(page, LIGHT))) == []


def test_rows_that_share_pixels_are_an_image():
    heap = PlainHeap(4096, regions=600, gap=4096)
    for _ in range(600):
        heap.allocate(4096)
    model = Model(heap.trace())
    model.seek(600)
    assert picture("region_map", model, Look()).count("<image") == 2  # in light and in dark colours
