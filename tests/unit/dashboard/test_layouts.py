"""Legends and captions of panels on narrow pages."""

import pytest
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard import Inspector
from bfcviz.dashboard.layouts import arrange, layouts, names_in, tabs
from bfcviz.figures.export import exported_with_facts
from bfcviz.figures.panel import Margins, Panel, fitted_panel

PANELS = {
    name: Panel(name, "title", "caption", [{"legend": 1}], {}, {})
    for layout in layouts()
    for name in names_in(layout)
}
TICKS = 20  # pixels


def rooms(stage):
    """The boxes of a stage: left and right in shares of the width, top and bottom in pixels, ticks included."""
    for name, place in stage.places.items():
        yield (
            name,
            place.left,
            place.right,
            place.top - PANELS[name].above,
            place.top + place.height + TICKS,
        )
    for name, place in (("side", stage.side), ("tabs", stage.tabs)):
        if place is not None:
            yield name, place.left, place.right, place.top, place.top + place.height


@pytest.mark.parametrize("how", [{}, {"narrow": True}, {"alone": True}])
@pytest.mark.parametrize("layout", layouts())
def test_nothing_overlaps(layout, how):
    stage = arrange(layout, PANELS, **how)
    assert list(stage.places) == names_in(layout)
    found = list(rooms(stage))
    for one in found:
        assert one[3] >= 0
        for other in found:
            beside = one[2] <= other[1] or other[2] <= one[1]
            below = one[4] <= other[3] or other[4] <= one[3]
            assert one is other or beside or below, (one, other)


@pytest.mark.parametrize("layout", layouts())
def test_on_a_narrow_page_everything_has_the_whole_width(layout):
    stage = arrange(layout, PANELS, narrow=True)
    for _, left, right, *_ in rooms(stage):
        assert (left, right) == (0, 1)


@pytest.mark.parametrize("layout", layouts())
def test_a_picture_alone_leaves_no_room_for_panes(layout):
    stage = arrange(layout, PANELS, alone=True)
    assert (stage.side, stage.tabs) == (None, None)
    assert stage.places["region_map"].right == 1


def test_the_side_pane_is_as_high_as_the_map_and_the_tabs_are_under_both():
    stage = arrange("active_memory", PANELS)
    place, side = stage.places["region_map"], stage.side
    assert side.left == place.right
    assert side.top <= place.top
    assert side.top + side.height >= place.top + place.height
    assert stage.tabs.top >= side.top + side.height
    assert stage.places["active_memory"].top > stage.tabs.top + stage.tabs.height


def test_every_tab_opens_a_layout():
    folded = {"event_rate", "mark_values"}
    assert tabs().keys() == layouts().keys() - {"everything"} - folded
    assert tabs("event_rate").keys() == layouts().keys() - {"everything", "mark_values"}


def panel(*names, **of_each):
    traces = [{"type": "scatter", "name": name, **of_each} for name in names]
    return Panel("p", "Title", "a caption of some length", traces, {}, {}, definition="what it is")


def test_a_wide_page_changes_nothing():
    wide = panel("one", "two")
    assert fitted_panel(wide, 1000) is wide


def test_a_legend_takes_as_many_lines_as_it_needs():
    narrow = fitted_panel(panel(*["ten letters"] * 6), 300)
    assert [trace["legend"] for trace in narrow.traces] == [0, 0, 1, 1, 2, 2]
    assert narrow.above > panel("one").above


def test_a_legend_without_a_name_takes_no_room():
    assert fitted_panel(panel(*[""] * 50), 300).legend_lines == 0


def test_a_shortened_caption_is_complete_on_hover():
    narrow = fitted_panel(panel("one"), 200)
    assert narrow.caption == "a caption of some…"
    assert narrow.definition == "a caption of some length<br>what it is"
    assert fitted_panel(panel("one"), 60).caption == ""


# ------------------------------------------------------------------------------
# Everything shown, as a picture to export.


@pytest.fixture(params=[("light", "active_memory"), ("dark", "everything"), ("light", "export")])
def picture(request):
    theme, views = request.param
    inspector = Inspector(busy_trace(), 400, views=views)
    inspector.theme = theme
    figure, _ = inspector.draw_for_export("everything")
    colours = inspector.panel_data.colours(inspector.look)
    inspector.close()
    return figure, colours


def test_the_legend_of_a_picture_names_the_colours_of_the_map(picture):
    figure, colours = picture
    listed = {each.name: each for each in figure.select_traces({"showlegend": True, "xaxis": "x"})}
    named = [(name, paint.fill) for name, paint in zip(colours.names, colours.paints, strict=True) if name]
    assert len(named) > 5
    for name, fill in named:
        if name != "other":
            assert listed[name].fillcolor == fill
    lines = {int(each.legend.removeprefix("legend") or 1) // 10 for each in listed.values()}
    assert lines == set(range(len(lines)))  # no line is empty
    assert f"legend{10 * len(lines) + 1}" not in figure.layout.to_plotly_json()


def test_below_and_beside_the_plots_of_a_picture_is_room_for_the_titles_of_the_axes(picture):
    figure, _ = picture
    layout = figure.layout
    assert layout.yaxis.title.text
    assert layout.margin.l >= Margins().left  # ticks such as `+16 MiB`, and the title
    plots = layout.height - layout.margin.t - layout.margin.b
    tops = [axis.domain[1] * plots for axis in figure.select_yaxes() if axis.visible]
    for number, axis in enumerate(figure.select_xaxes(), start=1):
        if axis.visible and axis.title.text:
            bottom = layout[f"yaxis{number if number > 1 else ''}"].domain[0] * plots
            nearest = max((top for top in tops if top < bottom), default=-layout.margin.b)
            assert bottom - nearest >= 40
    exported = exported_with_facts(figure)
    assert exported.layout.margin.b - layout.margin.b == exported.layout.height - layout.height > 0
