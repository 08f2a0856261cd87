"""Buttons, menus, the search and the request size, in an Inspector."""

from dataclasses import replace

import pytest
import traitlets
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard import Inspector
from bfcviz.figures.view_options import Selected
from bfcviz.model.grouping import HolderChoice


@pytest.fixture
def inspector():
    return Inspector(busy_trace(), 0)


def test_buttons_without_effect_are_disabled(inspector):
    buttons = inspector.toolbar.buttons
    assert buttons["back"].disabled
    assert buttons["first"].disabled
    assert not buttons["forward"].disabled
    inspector.step = 609
    assert buttons["forward"].disabled
    assert not buttons["back"].disabled


def test_the_number_shows_and_sets_the_step(inspector):
    inspector.step = 42
    assert inspector.toolbar.step.value == 42
    inspector.toolbar.step.value = 44
    assert inspector.step == 44


def test_a_second_row_is_shown_on_demand(inspector):
    second = inspector.toolbar.rows[1]
    assert second.layout.display == "none"
    inspector.toolbar.more.value = True
    assert second.layout.display is None


def test_the_search_box_sets_the_search_and_shows_it(inspector):
    inspector.toolbar.search.value = " conv "
    assert inspector.look.search == "conv"
    inspector.toolbar.search.value = ""
    assert inspector.look.search is None
    inspector.look = replace(inspector.look, search="bias")
    assert inspector.toolbar.search.value == "bias"


def test_escape_undoes_filter_search_and_selection_in_turn_and_hovering_at_once(inspector):
    choice = HolderChoice("op", ("a",))
    inspector.look = replace(
        inspector.look, hovered=choice, holder=choice, search="b", selected=Selected(256)
    )
    left = []
    for _ in range(3):
        inspector.act("unselect")
        look = inspector.look
        left.append(
            [name for name in ("hovered", "holder", "search", "selected") if getattr(look, name) is not None]
        )
    assert left == [["search", "selected"], ["selected"], []]


def test_the_window_of_steps_follows_a_step_out_of_it(inspector):
    inspector.look = replace(inspector.look, steps=(100, 200))
    inspector.step = 150
    assert inspector.look.steps == (100, 200)
    inspector.step = 205
    assert inspector.look.steps == (195, 295)
    inspector.step = 190
    assert inspector.look.steps == (100, 200)
    inspector.step = 609
    assert inspector.look.steps == (509, 609)
    inspector.step = 0
    assert inspector.look.steps == (0, 100)


def test_one_pool_needs_no_menu(inspector):
    assert inspector.toolbar.pool.layout.display == "none"


def test_the_request_size_may_be_text():
    shown = Inspector(busy_trace(), wanted="1MiB")
    assert shown.wanted == shown.look.wanted == 1 << 20
    shown.wanted = "2 MiB"
    assert shown.look.wanted == 2 << 20
    assert shown.toolbar.wanted.value == 2 << 20
    shown.wanted = 3_000_001
    assert shown.toolbar.wanted.value == 3_000_001
    shown.toolbar.wanted.box.value = "5 MiB"
    assert shown.wanted == 5 << 20
    shown.toolbar.wanted.box.value = ""
    assert shown.look.wanted is None
    with pytest.raises(traitlets.TraitError, match="wanted='much'"):
        shown.wanted = "much"
