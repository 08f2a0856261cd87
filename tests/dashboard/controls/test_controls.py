"""Buttons, slider, menus and the request size, in an Inspector."""

import pytest
import traitlets
from figures.synthetic import busy_trace

from bfcviz.dashboard import Inspector


@pytest.fixture
def inspector():
    return Inspector(busy_trace())


def test_buttons_without_effect_are_disabled(inspector):
    buttons = inspector.controls.buttons
    assert buttons["back"].disabled
    assert buttons["first"].disabled
    assert not buttons["forward"].disabled
    inspector.step = 609
    assert buttons["forward"].disabled
    assert not buttons["back"].disabled


def test_slider_and_number_show_and_set_the_step(inspector):
    inspector.step = 42
    assert inspector.controls.slider.value == inspector.controls.step.value == 42
    inspector.controls.slider.value = 43
    assert inspector.step == inspector.controls.step.value == 43
    inspector.controls.step.value = 44
    assert inspector.step == inspector.controls.slider.value == 44


def test_one_pool_needs_no_menu(inspector):
    assert inspector.controls.pool.layout.display == "none"


def test_the_request_size_may_be_text():
    shown = Inspector(busy_trace(), wanted="1MiB")
    assert shown.wanted == shown.look.wanted == 1 << 20
    shown.wanted = "2 MiB"
    assert shown.look.wanted == 2 << 20
    with pytest.raises(traitlets.TraitError, match="wanted='much'"):
        shown.wanted = "much"
