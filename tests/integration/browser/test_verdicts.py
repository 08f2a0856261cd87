"""The header of a dashboard, and the cards of a failure and of a peak, in a page: nothing clipped, light and dark."""

import pytest
from integration.browser.board import write_notebook

from bfcviz.figures.theme import DARK, LIGHT, rgb

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

NOTEBOOK = "verdicts.ipynb"
FAILURE = """
import bfcviz
import numpy as np
%load_ext bfcviz
try:
    with bfcviz.watch(numpy=True, limit="616MiB", dashboard=False):
        held = []
        for number in range(77):
            with bfcviz.label(f"encoder/layer_{number % 6}/attention/Softmax"):
                held.append(np.empty(1 << 20))
        del held[1::2]
        with bfcviz.label("attention"):
            np.empty(1 << 25)
except MemoryError:
    pass
"""
PEAK = """%%bfcviz --limit 64MiB
with bfcviz.label("forward"):
    a = [np.empty(1 << 20) for _ in range(5)]
"""
HEADER = """
import ipywidgets
v = bfcviz.Inspector(bfcviz.open(bfcviz.sample("oom_log")))
box = ipywidgets.VBox([v])
box
"""
MOST_HEIGHT = 600  # pixels
MOST_HEADER = 140  # with a notice, and a headline of two lines

CLIPPED = """card => [...card.querySelectorAll('div, td, th, table')]
  .filter(one => one.clientHeight && one.scrollHeight > one.clientHeight + 1)
  .map(one => one.className + ': ' + one.innerText)"""
COLOUR = "(one, name) => getComputedStyle(one)[name]"


@pytest.fixture(scope="module")
def notebook(lab_page):
    write_notebook(lab_page.server.folder / NOTEBOOK, FAILURE, PEAK, HEADER)
    with lab_page.opened(NOTEBOOK, size=(1400, 1000)) as lab:
        lab.run_all()
        yield lab


def shown_pictures(card):
    """A card has each picture twice, in light and in dark; the page shows one of them."""
    return [each for each in card.locator("svg[role=img]").all() if each.is_visible()]


@pytest.mark.parametrize("kind", ["failure", "report"])
@pytest.mark.parametrize(("width", "most"), [(1400, MOST_HEIGHT), (1120, None), (1820, MOST_HEIGHT)])
def test_a_card_fits_and_nothing_is_clipped(notebook, kind, width, most):
    notebook.page.set_viewport_size({"width": width, "height": 1000})
    card = notebook.page.locator(f".bfcviz-{kind}")
    assert card.count() == 1
    assert most is None or card.bounding_box()["height"] <= most
    assert card.evaluate(CLIPPED) == []
    assert card.locator("svg path").count() > 0
    (picture,) = shown_pictures(card)
    left, right = (box["x"] for box in (card.bounding_box(), picture.bounding_box()))
    assert left < right
    assert right + picture.bounding_box()["width"] <= left + card.bounding_box()["width"]


def test_the_header_answers_first_and_is_never_clipped(notebook):
    header = notebook.page.locator(".bfcviz-header")
    line = header.locator(".bfcviz-step-line summary")
    for is_open in (False, True):
        if is_open:
            line.click()
            header.locator("details[open] p").first.wait_for()
        for width in (1300, 880, 600):
            notebook.python(f"setattr(box.layout, 'width', '{width}px')")
            notebook.page.wait_for_function(
                "width => document.querySelector('.bfcviz-header').offsetWidth === width", arg=width
            )
            assert header.evaluate(CLIPPED) == []
            assert "OOM" in header.locator(".bfcviz-headline").inner_text()
            assert is_open or width < 880 or header.bounding_box()["height"] <= MOST_HEADER
    line.click()
    header.locator("details:not([open]) summary").last.wait_for()


def css(colour):
    return "rgb({}, {}, {})".format(*rgb(colour))


@pytest.mark.parametrize(("dark", "theme"), [(True, DARK), (False, LIGHT)])
def test_both_follow_the_theme_of_the_page(notebook, dark, theme):
    notebook.change_theme(dark=dark)
    page = notebook.page
    page.wait_for_function("dark => document.body.dataset.jpThemeLight === String(!dark)", arg=dark)
    failed = page.locator(".bfcviz-failure .headline")
    assert failed.evaluate(COLOUR, "color") == css(theme.oom)
    for kind in ("failure", "report"):
        card = page.locator(f".bfcviz-{kind}")
        (picture,) = shown_pictures(card)
        assert picture.evaluate(COLOUR, "fill") == css(theme.text)
        assert picture.locator(f'[fill="{theme.free.fill}"]').count() > 0
        swatch = card.locator(".swatch").first.evaluate(COLOUR, "backgroundColor")
        assert swatch in {css(paint.fill) for hue in range(len(theme.classes)) for paint in theme.shades(hue)}
        text = card.evaluate(COLOUR, "color").strip("rgba()").split(",")[:3]
        assert (min(map(int, text)) > 128) == dark
