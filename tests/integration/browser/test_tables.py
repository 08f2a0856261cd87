"""The tables in a real page: the page scrolls them by itself, and Python makes the rows that come into sight."""

import pytest
from integration.browser.board import Board, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

NOTEBOOK = "tables.ipynb"

CELL = """
import bfcviz

run = bfcviz.open(bfcviz.sample("conv"))
seen = bfcviz.Inspector(run, step=30000)
seen
"""

IN_SIGHT = """([box, css]) => {
  const edge = box.querySelector('th').getBoundingClientRect().bottom, end = box.getBoundingClientRect().bottom;
  return [...box.querySelectorAll('tbody tr[data-bfcviz]')].filter(row => {
    const {top, bottom} = row.getBoundingClientRect();
    return bottom > edge + 2 && top < end - 2 && (!css || row.classList.contains(css));
  }).map(row => row.innerText);
}"""


@pytest.fixture(scope="module")
def lab(lab_page):
    write_notebook(lab_page.server.folder / NOTEBOOK, CELL)
    with lab_page.opened(NOTEBOOK) as lab:
        lab.run_all_and_draw(1, "seen")
        yield lab


class Table:
    """An open table of the dashboard."""

    def __init__(self, lab, views, css):
        self.board = Board(lab, "seen")
        self.board.set(views=views)
        self.box = self.board.view.locator(f".{css} .bfcviz-rows")
        self.box.wait_for()
        self.box.scroll_into_view_if_needed()
        self.page = lab.page

    def wait(self, condition, *arguments):
        """Wait until a JavaScript condition holds on the texts of the rows in sight."""
        self.page.wait_for_function(
            f"([box, css, ...args]) => {{ const rows = ({IN_SIGHT})([box, css]); return {condition}; }}",
            arg=[self.box.element_handle(), "", *arguments],
        )

    def rows(self, css=""):
        return self.page.evaluate(IN_SIGHT, [self.box.element_handle(), css])

    def wheel(self, pixels):
        box = self.box.bounding_box()
        self.page.mouse.move(box["x"] + 200, box["y"] + 100)
        self.page.mouse.wheel(0, pixels)

    def scroll_to(self, share):
        self.box.evaluate(
            "(box, share) => { box.scrollTop = share * (box.scrollHeight - box.clientHeight); }", share
        )


@pytest.fixture
def chunks(lab):
    return Table(lab, "chunk_table", "bfcviz-chunks")


@pytest.fixture
def events(lab):
    return Table(lab, "event_table", "bfcviz-events")


def test_the_wheel_scrolls_to_later_rows(events):
    events.board.set(step=500)
    events.wait("rows.some(row => row.startsWith('500\\t'))")
    before = events.page.evaluate("() => document.querySelector('.jp-WindowedPanel-outer')?.scrollTop")
    events.wheel(2100)  # 100 rows
    events.wait("rows.length >= 10 && rows.every(row => Number(row.split('\\t')[0].replace(',', '')) > 540)")
    assert (
        events.page.evaluate("() => document.querySelector('.jp-WindowedPanel-outer')?.scrollTop") == before
    )


def test_a_drag_of_the_scroll_bar_shows_rows_of_that_place(events):
    events.scroll_to(1)
    last = events.board.lab.python("len(run)")
    events.wait(f"rows.length >= 10 && rows.at(-1).startsWith('{last:,}\\t')")
    events.scroll_to(0.5)
    events.wait(
        f"rows.length >= 10 && Math.abs(Number(rows[0].split('\\t')[0].replace(',', '')) - {last / 2}) < 40"
    )
    events.scroll_to(0)
    events.wait("rows.length >= 10 && rows[0].startsWith('1\\t')")


def test_a_step_comes_into_sight_and_stays_marked(events):
    events.scroll_to(0)
    events.board.set(step=20000)
    events.wait("rows.some(row => row.startsWith('20,000\\t'))")
    assert [row.split("\t")[0] for row in events.rows("here")] == ["20,000"]


def test_the_first_row_after_sorting_is_the_largest(chunks):
    chunks.board.set(step=30000)
    chunks.scroll_to(0.7)
    chunks.wait("rows.length >= 10 && !rows[0].includes('432.0 KiB')")  # the largest chunk is out of sight
    chunks.box.locator("th button:has-text('requested')").click()
    largest = chunks.board.lab.python(
        "__import__('bfcviz.units', fromlist=['x']).format_bytes("
        "int(seen.panel_data.model.chunks()['requested'].max()))"
    )
    chunks.wait(f"rows.length >= 10 && rows[0].includes('{largest}')")
    assert chunks.box.evaluate("box => box.scrollTop") == 0
    chunks.box.locator("th button:has-text('requested')").click()
    chunks.box.locator("th[aria-sort=ascending]").wait_for()


def test_a_click_selects_and_the_row_has_the_colour_of_the_selection(chunks):
    chunks.scroll_to(0)
    row = chunks.box.locator("tbody tr[data-bfcviz]").nth(3)
    row.click()
    chunks.box.locator("tr.selected").wait_for()
    colour = "row => getComputedStyle(row).boxShadow"
    selected = chunks.box.locator("tr.selected").first.evaluate(colour)
    assert "rgb(26, 28, 32)" in selected  # theme.selection of the light theme


def test_the_label_has_more_room_than_any_other_column(chunks):
    widths = chunks.box.evaluate(
        "box => Object.fromEntries([...box.querySelectorAll('th')].map(th => [th.innerText.trim(), th.offsetWidth]))"
    )
    assert widths["label"] == max(widths.values())
    assert widths["label"] > 200
