"""Legends and captions of panels on narrow pages."""

from bfcviz.figures.panel import Panel, fitted_panel


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
