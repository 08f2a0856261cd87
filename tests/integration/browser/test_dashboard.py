"""A dashboard in a real page, used like a user does."""

import pytest
from integration.browser.board import Board, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

NOTEBOOK = "dashboard.ipynb"

MANY = """
import random
import tempfile

import bfcviz

folder = tempfile.mkdtemp()
recording = bfcviz.Recording(folder)
heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 30, log=recording.log, labels=recording.labels)
dice = random.Random(5)
held = [heap.allocate(dice.randrange(1, 30000), label=f"<b>layer {n % 7}</b>") for n in range(12000)]
for n in range(0, 12000, 3):
    heap.free(held[n])
recording.close()
many = bfcviz.Inspector(bfcviz.open(folder), step=20000, colour="state")
many
"""
SMALL = """
run = bfcviz.open(bfcviz.sample("conv"))
small = bfcviz.Inspector(run, step=1000, colour="state")
small
"""


@pytest.fixture(scope="module")
def lab(lab_page):
    write_notebook(lab_page.server.folder / NOTEBOOK, MANY, SMALL)
    with lab_page.opened(NOTEBOOK) as lab:
        lab.run_all_and_draw(2, "many", "small")
        yield lab


@pytest.fixture
def many(lab):
    board = Board(lab, "many", 0).wait_until_drawn()
    yield board
    board.key("z")


@pytest.fixture
def small(lab):
    return Board(lab, "small", 1).wait_until_drawn()


def test_figures_share_plotlys_script(lab, many, small):
    assert many.get("view.widget._script_model_id") == small.get("view.widget._script_model_id")
    assert lab.page.evaluate("() => bfcvizPlotly.size") == 1


def test_every_view_is_drawn(small):
    small.set(views="everything")
    small.view.locator(".annotation-text:has-text('Region map')").wait_for()
    shown = " ".join(small.view.locator(".js-plotly-plot .annotation-text").all_text_contents())
    titles = (
        "Region map",
        "Address-time map",
        "Stats",
        "Fragmentation",
        "Bytes by bin",
        "Chunks by bin",
        "Free chunks",
        "Active memory",
        "Event rate (events/s)",
    )
    for title in titles:
        assert title in shown
    small.set(views="active_memory")
    small.wait_for("return plot.querySelectorAll('.annotation-text').length === 2")


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
    small.wait_for_step(
        small.lab.python("__import__('bfcviz.model.find_steps', fromlist=['peak']).peak(run)")
    )
    assert small.lab.page.locator(".jp-Cell").count() == 2  # no shortcut of the lab added a cell


def test_zoom_shows_exact_chunks_and_back(many):
    many.go_to(20000)
    many.wait_for("return plot.data[0].type === 'image' && plot.data[0].visible === true")
    many.drag("region_map", (0.2, 0.02), (0.3, 0.12))
    many.wait_for(
        "return plot.data[0].visible === false && plot.data.find(t => t.name === 'in use').x.length > 100"
    )
    assert many.get("look.map_window.rows")[1] < 3
    many.page.mouse.dblclick(*many.at("region_map", 0.5, 0.5))
    many.wait_for("return plot.data[0].visible === true")
    assert many.get("look.map_window is None")


def test_hovering_tells_the_chunk_and_markup_stays_text(many):
    many.go_to(20000)
    many.page.mouse.move(*many.at("region_map", 0.303, 0.05))
    box = many.view.locator(".hoverlayer .hovertext")
    box.wait_for()
    assert "region 0" in box.text_content() or "region" in box.text_content()
    assert many.page.locator(".hoverlayer b:has-text('layer')").count() == 0
    many.page.mouse.move(0, 0)


LISTED = """(view) => {
  const stack = Object.assign(document.createElement("div"), { style: "height: 900px" });
  view.querySelector(".bfcviz-chunk .name").after(stack);
  const { bottom } = view.querySelector(".bfcviz-holders-list").getBoundingClientRect();
  const rows = [...view.querySelectorAll(".bfcviz-holders-list tbody tr")];
  return rows.filter((each) => each.getBoundingClientRect().bottom <= bottom + 1).length;
}"""
"""How many holders are seen whole above a chunk with a long stack."""


def test_a_click_selects_a_chunk_in_every_view(small):
    small.go_to(20000)
    x, y = small.at("region_map", 0.5, 0.4)
    small.page.mouse.click(x, y)
    small.view.locator(".bfcviz-chunk:has-text('0x')").wait_for()
    chosen = small.get("look.selected.address")
    small.view.locator(f".bfcviz-chunk:has-text('{chosen & 0xFFFF:x}')").wait_for()
    small.wait_for(
        "return plot.data.some(t => t.name === 'selected' && t.visible !== false && t.x.length > 4)"
    )
    rows = small.view.evaluate(LISTED)
    assert rows >= 3  # a long stack leaves room for the largest holders
    small.view.get_by_role("tab", name="chunk table").click()
    small.view.locator(".bfcviz-chunks tr.selected").first.wait_for()
    small.key("Escape")
    small.view.locator(".bfcviz-chunk:has-text('Click a chunk')").wait_for()
    small.view.get_by_role("tab", name="active memory").click()


def test_a_click_on_a_timeline_goes_there(small):
    small.go_to(100)
    small.page.mouse.click(*small.at("active_memory", 0.5, 0.5))
    small.view.locator(".bfcviz-step-line:not(:has-text('step 100 of'))").wait_for()
    assert 0.4 < small.step() / small.lab.python("len(run)") < 0.6
    small.wait_for_step(small.step())


def test_a_zoom_of_one_timeline_zooms_all(small):
    small.go_to(1000)
    small.set(views="fragmentation")
    small.wait_for("return plot.querySelectorAll('.annotation-text').length === 3")
    whole = small.trace("in use", "x")
    small.drag("stats_timeline", (0.2, 0.2), (0.4, 0.8))
    one, other = (
        f"plot._fullLayout.xaxis{small.number(name)}.range"
        for name in ("stats_timeline", "fragmentation_timeline")
    )
    same = f"const [a, b] = [{one}, {other}];"
    small.wait_for(f"{same} return a[0] > 0 && Math.abs(a[0] - b[0]) < 1e-6 && Math.abs(a[1] - b[1]) < 1e-6")
    first, last = small.get("look.steps")
    assert 0 < first < last < small.lab.python("len(run)")
    small.key("z")
    small.wait_for(f"return {one}[0] === 0")
    assert small.trace("in use", "x") == whole
    small.set(views="active_memory")


@pytest.mark.parametrize(
    ("suffix", "starts"), [("csv", b'"address"'), ("html", b"<!doctype html>"), ("svg", b"<svg")]
)
def test_what_is_shown_can_be_downloaded(small, suffix, starts):
    small.go_to(500)
    small.view.get_by_role("tab", name="export").click()
    small.view.get_by_label("export").select_option("region map")
    small.press(f"export-{suffix}")
    link = small.view.locator(f".bfcviz-download a[download$='.{suffix}']")
    link.wait_for()
    with small.page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == f"bfcviz-region_map-step500.{suffix}"
    assert download.value.path().read_bytes().startswith(starts)


def test_the_code_of_a_picture_is_shown(small):
    small.go_to(500)
    small.view.get_by_role("tab", name="export").click()
    small.view.get_by_label("export").select_option("region map")
    small.press("export-code")
    shown = small.view.locator(".bfcviz-code textarea")
    shown.wait_for()
    assert 'draw("region_map", trace, 500' in shown.input_value().replace("'", '"')


def test_the_event_list_follows_and_leads(small):
    small.view.get_by_role("tab", name="event table").click()
    small.go_to(500)
    row = small.view.locator(".bfcviz-events tr[aria-current=true]")
    row.wait_for()
    assert "500" in row.inner_text()
    row.locator("xpath=following-sibling::tr[2]").click()
    small.wait_for_step(502)


def test_it_is_as_dark_as_the_lab(lab, small):
    lab.change_theme(dark=True)
    small.wait_for("return plot._fullLayout.paper_bgcolor === '#111111'")
    assert small.get("look.theme") == "dark"
    lab.change_theme(dark=False)
    small.wait_for("return plot._fullLayout.paper_bgcolor === '#FFFFFF'")


def test_a_notebook_closed_and_opened_again_shows_the_newest_step(lab, small):
    """Its kernel lives on: each new view begins with the whole state of its figure."""
    small.go_to(500)
    lab.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    lab.page.evaluate("() => jupyterapp.shell.currentWidget.dispose()")
    small.view.wait_for(state="detached")
    lab.open(NOTEBOOK)
    again = Board(lab, "small", 1).wait_until_drawn()
    assert again.step() == 500
    assert again.drawing("free")
    assert "allocated" in again.words() or "freed" in again.words()
    again.go_to(501)


def test_it_says_that_its_kernel_restarted_and_comes_back(lab):
    lab.restart()
    lab.page.locator(".bfcviz-dead[role=alert]").nth(1).wait_for()
    lab.run_all_and_draw(2)
    assert lab.page.locator(".bfcviz-dead").count() == 0
    again = Board(lab, "small", 1).wait_until_drawn()
    again.go_to(77)
    again.key("ArrowRight")
    again.wait_for_step(78)
