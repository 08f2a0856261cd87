"""Notebook 01 in a real page: the first Inspector shows ten allocations, the second a real run."""

import pytest
from integration.browser.board import Board
from integration.browser.lab import watched_page

import bfcviz
from bfcviz.figures import draw, export

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

NOTEBOOK = "01_step_through.ipynb"


@pytest.fixture(scope="module")
def lab(lab_page):
    with lab_page.opened(NOTEBOOK) as lab:
        lab.run_all_and_draw(3)
        assert lab.printed_errors() == []
        yield lab


@pytest.fixture
def small(lab):
    return Board(lab, "inspector", 0)


@pytest.fixture
def real(lab):
    return Board(lab, "real", 1)


def test_the_inspector_renders_map_strip_and_active_memory(small):
    small.go_to(20)
    titles = small.view.locator(".js-plotly-plot .annotation-text").all_text_contents()
    shown = " ".join(titles)
    for title in ("Region map", "Active memory"):
        assert title in shown
    assert "M" in small.drawing("memory in use")


def test_the_pictures_are_as_wide_as_their_place(small, real):
    fits = (
        "view => Math.abs(view.querySelector('.js-plotly-plot .main-svg').getBoundingClientRect().width"
        " - view.getBoundingClientRect().width) < 20"
    )
    size = small.page.viewport_size
    for width in (1100, size["width"]):
        small.page.set_viewport_size({"width": width, "height": size["height"]})
        for shown in (small, real):
            small.page.wait_for_function(fits, arg=shown.view.element_handle())


def test_forward_and_back_change_words_and_picture(small):
    small.go_to(20)
    before, outline = small.words(), small.drawing("touched by this step")
    small.press("forward")
    small.wait_for_step(21)
    assert "hidden_2" in small.words()
    assert small.words() != before
    assert small.drawing("touched by this step") != outline
    small.press("back")
    small.wait_for_step(20)
    assert small.words() == before
    assert small.drawing("touched by this step") == outline


def test_next_goes_to_the_chosen_kind_and_next_oom_jumps(small):
    small.go_to(15)
    small.view.get_by_role("button", name="more").click()
    small.view.get_by_label("go to", exact=True).select_option("SPLIT")
    small.press("next")
    small.wait_for_step(18)
    assert "logits" in small.words(), small.words()
    small.press("oom")
    small.wait_for_step(23)
    assert "attention" in small.words()
    assert small.view.locator(".bfcviz-forward").is_disabled()


def test_the_strip_leads_through_a_real_run(real):
    real.go_to(1000)
    before = real.drawing("touched by this step")
    real.page.mouse.click(*real.at("strip", 0.9, 0.5))
    real.view.locator(".bfcviz-step-line:not(:has-text('step 1,000 of'))").wait_for()
    real.wait_for_step(real.step())
    assert 0.8 < real.step() / real.lab.python("len(run)") < 1
    assert real.drawing("touched by this step") != before
    real.key("Home")
    real.wait_for_step(0)
    assert real.view.locator(".js-plotly-plot :text('no region at this step')").count() == 1


def test_nothing_offers_to_send_a_figure_away(lab):
    offered = lab.page.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title)")
    assert offered.count("Zoom") == 1  # the figure at the end
    assert "Share chart..." not in offered


def test_an_exported_page_works_by_itself(browser, tmp_path):
    figure = draw("region_map", bfcviz.open(bfcviz.sample("lstm")), 500)
    export(figure, tmp_path / "map.html")
    context = browser.new_context(offline=True)
    page, outside, errors = watched_page(context, "file:")
    page.goto((tmp_path / "map.html").as_uri())
    page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for(state="attached")
    offered = page.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title)")
    context.close()
    assert "Zoom" in offered
    assert "Share chart..." not in offered
    assert outside == []
    assert errors == []
