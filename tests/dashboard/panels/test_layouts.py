import pytest

from bfcviz.dashboard.panels.layouts import LAYOUTS, arrange, names_in
from bfcviz.figures.panel import BELOW, Panel

PANELS = {
    name: Panel(name, "title", "caption", [{"legend": 1}], {}, {})
    for layout in LAYOUTS
    for name in names_in(layout)
}


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_panels_do_not_overlap_and_leave_room_for_titles_and_axes(layout, narrow):
    places = arrange(layout, PANELS, narrow=narrow)
    assert list(places) == names_in(layout)
    for name, one in places.items():
        assert one.top >= PANELS[name].above
        for other_name, other in places.items():
            beside = one.right <= other.left or other.right <= one.left
            under = other.top >= one.top + one.height + BELOW + PANELS[other_name].above
            above = one.top >= other.top + other.height + BELOW + PANELS[name].above
            assert name == other_name or beside or under or above


@pytest.mark.parametrize("layout", LAYOUTS)
def test_on_a_narrow_page_every_panel_has_the_whole_width(layout):
    assert all((place.left, place.right) == (0, 1) for place in arrange(layout, PANELS, narrow=True).values())
