"""A dashboard in a real page, as a person uses it."""

import pytest
from browser.board import Board, write_notebook
from browser.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

NOTEBOOK = "dashboard.ipynb"

MANY = """
import random

import bfcviz

recording = bfcviz.Recording("many")
heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 30, log=recording.log, labels=recording.labels)
dice = random.Random(5)
held = [heap.allocate(dice.randrange(1, 30000), label=f"<b>layer {n % 7}</b>") for n in range(12000)]
for n in range(0, 12000, 3):
    heap.free(held[n])
recording.close()
many = bfcviz.Inspector(bfcviz.open("many"), step=20000)
many
"""
SMALL = """
run = bfcviz.open(bfcviz.sample("conv"))
small = bfcviz.Inspector(run, step=1000)
small
"""


@pytest.fixture(scope="module")
def lab(browser, server):
    write_notebook(server.folder / NOTEBOOK, MANY, SMALL)
    lab = Lab(browser, server)
    lab.open(NOTEBOOK)
    lab.run_all()
    yield lab
    lab.close()


@pytest.fixture
def many(lab):
    board = Board(lab, "many", 0).wait_until_drawn()
    yield board
    board.key("z")


@pytest.fixture
def small(lab):
    return Board(lab, "small", 1).wait_until_drawn()


def test_every_view_is_drawn(small):
    small.set(views="everything")
    small.view.locator(".annotation-text:has-text('Region map')").wait_for()
    shown = " ".join(small.view.locator(".js-plotly-plot .annotation-text").all_text_contents())
    titles = ("Region map", "Address", "Stats", "Fragmentation", "Bytes by bin", "Chunks by bin", "Lifetimes", "Events")
    for title in titles:
        assert title in shown
    small.set(views="heap")
    small.wait_for("return plot.querySelectorAll('.annotation-text').length === 5")


def test_two_dashboards_move_on_their_own(small, many):
    before = many.words()
    small.go_to(1234)
    assert many.words() == before
    many.go_to(20100)
    assert small.step() == 1234


def test_keys_step_and_jump(small):
    small.go_to(1000)
    small.key("ArrowRight")
    small.wait_for_step(1001)
    small.key("ArrowLeft")
    small.wait_for_step(1000)
    small.key("End")
    small.wait_for_step(small.lab.python("len(run)"))
    small.key("k")
    small.wait_for_step(small.lab.python("__import__('bfcviz.model.find').model.find.peak(run)"))
    assert small.lab.page.locator(".jp-Cell").count() == 2  # the lab's own shortcuts stayed out of it


def test_zoom_shows_exact_chunks_and_back(many):
    many.go_to(20000)
    many.wait_for("return plot.data[0].type === 'image' && plot.data[0].visible === true")
    many.drag(1, (0.2, 0.1), (0.4, 0.3))
    many.wait_for("return plot.data[0].visible === false && plot.data.find(t => t.name === 'in use').x.length > 100")
    window = many.get("look.map_window")
    assert window is not None
    many.page.mouse.dblclick(*many.at(1, 0.5, 0.5))
    many.wait_for("return plot.data[0].visible === true")
    assert many.get("look.map_window") is None


def test_hovering_tells_the_chunk_and_markup_stays_text(many):
    many.go_to(20000)
    many.page.mouse.move(*many.at(1, 0.303, 0.4))
    box = many.view.locator(".hoverlayer .hovertext")
    box.wait_for()
    assert "region 0" in box.text_content() or "region" in box.text_content()
    assert many.page.locator(".hoverlayer b:has-text('layer')").count() == 0
    many.page.mouse.move(0, 0)


def test_a_click_selects_a_chunk_in_every_view(small):
    small.go_to(20000)
    x, y = small.at(1, 0.5, 0.05)
    small.page.mouse.click(x, y)
    small.view.locator(".bfcviz-life:has-text('0x')").wait_for()
    chosen = small.get("look.selected.address")
    assert f"{chosen & 0xFFFF:x}" in small.life()
    small.wait_for("return plot.data.some(t => t.name === 'selected' && t.visible !== false && t.x.length > 4)")
    small.view.locator("tr[aria-selected=true], tr.bfcviz-current").first.wait_for()
    small.key("Escape")
    small.view.locator(".bfcviz-life:has-text('Click a chunk')").wait_for()


def test_a_click_on_a_timeline_goes_there(small):
    small.go_to(100)
    small.page.mouse.click(*small.at(2, 0.5, 0.5))
    small.view.locator(".bfcviz-words:not(:has-text('step 100 of'))").wait_for()
    assert 0.4 < small.step() / small.lab.python("len(run)") < 0.6
    small.wait_for_step(small.step())


def test_a_zoom_of_one_timeline_zooms_all(small):
    small.go_to(1000)
    whole = small.trace("in use", "x")
    small.drag(2, (0.2, 0.2), (0.4, 0.8))
    small.wait_for("const r = plot._fullLayout; return Math.abs(r.xaxis2.range[0] - r.xaxis4.range[0]) < 1e-6 && r.xaxis2.range[0] > 0")
    first, last = small.get("look.steps")
    assert 0 < first < last < small.lab.python("len(run)")
    small.press("whole")
    small.wait_for("return plot._fullLayout.xaxis2.range[0] === 0")
    assert small.trace("in use", "x") == whole
