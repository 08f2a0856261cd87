"""The layout for print: widths, one legend, and a caption that says what is shown."""

import plotly.graph_objects as go
import pytest
from unit.figures.synthetic import PlainHeap, busy_trace

from bfcviz.errors import BfcvizError
from bfcviz.figures import FIGURES, draw
from bfcviz.figures.paper import COLUMN_MM, MM, PAGE_MM, paper


def caption(figure):
    return figure.layout.annotations[-1].text.replace("<br>", " ")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_width_and_a_caption(name):
    drawn = draw(name, busy_trace(), 300)
    for width in (COLUMN_MM, PAGE_MM):
        printed = paper(drawn, width)
        assert printed.layout.width * MM == pytest.approx(width, abs=0.2)
        said = caption(printed)
        assert drawn.facts in said
        assert all(note.title in said for note in drawn.notes)
        assert all(note.definition.split("<br>")[0].rstrip(".") in said for note in drawn.notes)


def test_the_caption_has_room_below_the_plot():
    drawn = draw("fragmentation_timeline", busy_trace(), 300)
    narrow, wide = paper(drawn, 84), paper(drawn, 174)
    for printed in (narrow, wide):
        lines = printed.layout.annotations[-1].text.count("<br>") + 1
        assert printed.layout.margin.b > 11 * lines
        inner = printed.layout.height - printed.layout.margin.t - printed.layout.margin.b
        assert inner == drawn.layout.height - drawn.layout.margin.t - drawn.layout.margin.b
    assert narrow.layout.height > wide.layout.height


def test_there_is_one_legend_and_each_name_is_in_it_once():
    printed = paper(draw("bin_histogram", busy_trace(), 300))
    shown = [trace.name for trace in printed.data if trace.type in {"bar", "scatter"} and trace.showlegend]
    assert sorted(shown) == sorted(set(shown))
    assert {"free", "in use"} <= set(shown)
    assert {trace.legend for trace in printed.data if trace.name} <= {"legend", None}
    assert not printed.layout.legend2.to_plotly_json()


def test_the_title_of_an_axis_fits_and_the_caption_has_the_rest():
    heap = PlainHeap(4096, regions=600, gap=4096)
    for _ in range(600):
        heap.allocate(4096)
    printed = paper(draw("region_map", heap.trace(), 600), COLUMN_MM)
    assert printed.layout.xaxis.title.text == "offset within the row (KiB)"
    assert "each pixel has the colour of one of its chunks, paler by what is free." in caption(printed)


def test_the_figure_itself_does_not_change():
    drawn = draw("region_map", busy_trace(), 300)
    before = drawn.to_json()
    paper(drawn)
    assert drawn.to_json() == before


@pytest.mark.parametrize("width", [0, 59, 401, float("nan")])
def test_a_width_is_one_of_a_page(width):
    with pytest.raises(BfcvizError, match="84"):
        paper(draw("ladder", busy_trace(), 300), width)


def test_paper_is_light():
    with pytest.raises(BfcvizError, match="light"):
        paper(draw("ladder", busy_trace(), 300, theme="dark"))


def test_a_figure_of_the_user_has_no_caption():
    printed = paper(go.Figure(go.Scatter(x=[1, 2], y=[1, 2])))
    assert caption(printed) == ""
