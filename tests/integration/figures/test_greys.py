"""Greys and patterns: what colours told apart is told apart without them."""

import plotly.graph_objects as go
import pytest
from shared import sample_trace
from unit.figures.synthetic import PlainHeap, busy_trace

import bfcviz
from bfcviz.figures import FIGURES, draw
from bfcviz.figures.export import _with_rim
from bfcviz.figures.paper import in_greys, paper, printed_grey
from bfcviz.figures.theme import LIGHT, rgb


def is_grey(colour):
    return len(set(rgb(colour))) == 1


def paints(figure):
    """Name -> grey and pattern of each filled trace in the legend."""
    found = {}
    for trace in figure.data:
        if trace.type == "bar" and isinstance(trace.marker.color, str) and trace.showlegend is not False:
            found[trace.name] = (trace.marker.color, trace.marker.pattern.shape)
        if (
            trace.type == "scatter"
            and trace.fill == "toself"
            and trace.showlegend is not False
            and trace.name
        ):
            found[trace.name] = (trace.fillcolor, trace.fillpattern.shape)
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_no_colour_is_left(name):
    figure = in_greys(go.Figure(draw(name, busy_trace(), 300)))
    for trace in figure.data:
        colours = []
        if trace.type == "bar":
            marker = trace.marker.color
            colours = [marker] if isinstance(marker, str) else list(marker)
        if trace.type == "scatter":
            colours = [trace.line.color if "lines" in (trace.mode or "") else None, trace.fillcolor]
            colours += [trace.marker.color if "markers" in (trace.mode or "") else None]
        for colour in colours:
            assert colour is None or not colour.startswith("#") or is_grey(colour)


def test_rows_that_share_pixels_are_an_image_and_keep_their_colours():
    heap = PlainHeap(4096, regions=600, gap=4096)
    for _ in range(600):
        heap.allocate(4096)
    figure = go.Figure(draw("region_map", heap.trace(), 600))
    before = figure.to_json()
    assert figure.data[0].visible
    assert in_greys(figure).to_json() == before


@pytest.mark.parametrize("colour", ["label", "size"])
def test_fills_of_the_legend_differ_without_colour(colour):
    figure = in_greys(go.Figure(draw("region_map", busy_trace(), 300, colour=colour)))
    found = paints(figure)
    assert len(found) > 2
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize("name", ["region_map", "active_memory"])
def test_holders_of_the_legend_differ_without_colour(name):
    trace = sample_trace("conv")
    figure = in_greys(go.Figure(draw(name, trace, bfcviz.peak(trace), colour="holder")))
    found = paints(figure)
    assert {"functional_1", "no label", "adam/AssignAddVariableOp*", "other"} <= found.keys()
    assert len(set(found.values())) == len(found)


def test_lines_without_a_fill_differ_by_their_dashes():
    lines = [go.Scatter(mode="lines", name=name, line={"color": "#D6006E", "width": 2}) for name in "abcd"]
    figure = in_greys(go.Figure(lines))
    assert len({trace.line.dash for trace in figure.data}) == 4
    assert {trace.line.color for trace in figure.data} == {"#000000"}


def test_the_same_fill_has_the_same_paint_in_every_panel():
    figure = in_greys(go.Figure(draw("bin_histogram", busy_trace(), 300)))
    free = {trace.marker.color for trace in figure.data if trace.type == "bar" and trace.name == "free"}
    assert len(free) == 1


def test_the_rim_of_a_pdf_page_leaves_the_legend_between_plots_and_caption():
    figure = paper(draw("region_map", busy_trace(), 300))
    above = [
        each.layout.height * each.layout.legend.y - each.layout.margin.b
        for each in (figure, _with_rim(figure, 20))
    ]
    assert above[1] == pytest.approx(above[0])


def test_a_grey_is_as_bright_as_its_colour():
    assert [printed_grey(colour) for colour in ("#000000", "#FFFFFF", "#00FF00")] == [
        "#000000",
        "#FFFFFF",
        "#969696",
    ]
    fills = [LIGHT.in_use.fill, LIGHT.waste.fill, LIGHT.free.fill]
    assert sorted(fills, key=printed_grey) == fills
