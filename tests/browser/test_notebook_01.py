"""Notebook 01 in a real page: the first Inspector shows ten allocations, the second a real run."""

import pytest
from browser.board import Board
from browser.lab import Lab

import bfcviz
from bfcviz.figures import draw, export

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

NOTEBOOK = "01_step_through.ipynb"


@pytest.fixture(scope="module")
def lab(browser, server):
    lab = Lab(browser, server)
    lab.open(NOTEBOOK)
    lab.run_all_and_draw(3)
    assert lab.printed_errors() == []
    yield lab
    lab.close()


@pytest.fixture
def small(lab):
    return Board(lab, "inspector", 0)


@pytest.fixture
def real(lab):
    return Board(lab, "real", 1)


def test_the_inspector_renders_its_four_pictures(small):
    small.go_to(20)
    titles = small.view.locator(".js-plotly-plot .annotation-text").all_text_contents()
    shown = " ".join(titles)
    for title in ("Region map", "Stats (MiB)", "Fragmentation (%)", "Bytes by bin", "Chunks by bin"):
        assert title in shown
    assert small.drawing("in use").count("M") >= 7


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
    small.view.get_by_label("go to", exact=True).select_option("SPLIT")
    small.press("next")
    small.wait_for_step(18)
    assert all(fact in small.words() for fact in ("3.0 MiB", "logits"))
    small.press("oom")
    small.wait_for_step(23)
    assert "attention" in small.words()
    assert small.view.locator(".bfcviz-forward").is_disabled()


def test_the_slider_moves_through_a_real_run(real):
    real.go_to(1000)
    before = real.drawing("in use")
    handle = real.view.locator(".bfcviz-slider .noUi-handle")
    handle.focus()
    handle.press("End")
    real.wait_for_step(real.lab.python("len(run)"))
    assert real.drawing("in use") != before
    handle.press("Home")
    real.wait_for_step(0)
    assert real.view.locator(".js-plotly-plot :text('no region at this step')").count() == 1


def test_dragging_the_slider_ends_where_it_is_let_go(real):
    real.go_to(1000)
    box = real.view.locator(".bfcviz-slider .slider-container").bounding_box()
    mouse = real.page.mouse
    handle = real.view.locator(".bfcviz-slider .noUi-handle").bounding_box()
    y = handle["y"] + handle["height"] / 2
    mouse.move(handle["x"] + handle["width"] / 2, y)
    mouse.down()
    for part in range(1, 11):
        mouse.move(box["x"] + box["width"] * (0.1 + 0.04 * part), y)
    mouse.up()
    at = real.view.locator(".bfcviz-slider .noUi-handle").get_attribute("aria-valuenow")
    step = round(float(at))
    assert 0.3 < step / real.lab.python("len(run)") < 0.7
    real.wait_for_step(step)


def test_play_runs_until_paused(small):
    small.go_to(0)
    small.press("play")
    small.view.locator(".bfcviz-play .fa-pause").wait_for()
    small.view.locator(".bfcviz-words :text-matches('step ([3-9]|[12][0-9]) of')").first.wait_for()
    small.press("play")
    small.view.locator(".bfcviz-play .fa-play").wait_for()
    assert 3 <= small.step() < 23
    small.wait_for_step(small.step())


def test_nothing_offers_to_send_a_figure_away(lab):
    offered = lab.page.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title)")
    assert offered.count("Zoom") == 4  # three Inspectors and the figure at the end
    assert "Share chart..." not in offered


def test_an_exported_page_works_by_itself(browser, tmp_path):
    figure = draw("region_map", bfcviz.open(bfcviz.sample("lstm")), 500)
    export(figure, tmp_path / "map.html")
    context = browser.new_context(offline=True)
    page = context.new_page()
    wanted, errors = [], []
    page.on("request", lambda request: wanted.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "map.html").as_uri())
    page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for(state="attached")
    offered = page.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title)")
    context.close()
    assert "Zoom" in offered
    assert "Share chart..." not in offered
    assert [url for url in wanted if not url.startswith(("file:", "data:", "blob:"))] == []
    assert errors == []
