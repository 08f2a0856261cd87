"""Steps that the page shows by itself: held keys and the dragged line at the step, while the kernel stands still."""

import os
import signal
from contextlib import contextmanager

import pytest
from integration.browser.board import Board, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

NOTEBOOK = "scrubbing.ipynb"
CELL = """
import bfcviz
from bfcviz.dashboard import scrubbing
scrubbing._MOST_EVENTS = 4000
view = bfcviz.Inspector(bfcviz.sample("conv"))
view
"""
HEADER = """view => [...view.querySelectorAll('.bfcviz-numbers .tile, .bfcviz-step-line b')]
  .filter(each => each.offsetParent !== null).map(each => each.textContent)"""
"""The numbers and the step, as the reader sees them."""

COLOURS = """([view, places]) => {
  const canvas = view.querySelector('.bfcviz-scrub canvas'), found = canvas.getContext('2d');
  return places.map(([across, down]) =>
    [...found.getImageData(across * canvas.width, down * canvas.height, 1, 1).data.slice(0, 3)]);
}"""


LINES = """view => {
  const plot = view.querySelector('.js-plotly-plot');
  const lines = plot._fullData.filter(each => each.name === 'this step' && each.visible === true);
  return lines.map(({ uid, xaxis, yaxis }) => {
    const subplot = xaxis + yaxis, line = plot.querySelector(`.trace${uid} path`).getBoundingClientRect();
    const area = plot.querySelector(`.nsewdrag[data-subplot=${subplot}]`).getBoundingClientRect();
    const step = plot._fullLayout[xaxis.replace('x', 'xaxis')].p2d(line.x + line.width / 2 - area.x);
    return [step, plot.querySelector(`.cartesianlayer > .subplot.${subplot}`).style.opacity];
  });
}"""
"""The step at which each line at the step is drawn, and whether its plot is faded."""


@pytest.fixture(scope="module")
def lab(lab_page):
    write_notebook(lab_page.server.folder / NOTEBOOK, CELL, "")
    with lab_page.opened(NOTEBOOK, size=(1500, 1000)) as lab:
        lab.run_all_and_draw(1, "view")
        yield lab


@pytest.fixture
def view(lab):
    return Board(lab, "view").wait_until_drawn()


@contextmanager
def stopped_kernel(view):
    kernel = view.lab.python("__import__('os').getpid()")
    os.kill(kernel, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kernel, signal.SIGCONT)


def hold(view, key, times):
    view.view.evaluate(
        """(view, [key, times]) => {
          for (let number = 0; number < times; number += 1) {
            view.dispatchEvent(new KeyboardEvent('keydown', { key, repeat: true, bubbles: true }));
          }
        }""",
        [key, times],
    )


def release(view, key):
    view.view.evaluate(
        "(view, key) => view.dispatchEvent(new KeyboardEvent('keyup', { key, bubbles: true }))", key
    )


def send_events_around(view, step):
    """Go to a step, and hold a key until the page has the events around it."""
    view.go_to(step)
    hold(view, "ArrowRight", 1)
    first, last = max(step - 2000, 0), max(step + 2000, 4000)
    view.page.wait_for_function(
        "([view, around]) => view.dataset.bfcvizScrubs === around",
        arg=[view.view.element_handle(), f"{first} {last}"],
    )
    release(view, "ArrowRight")
    view.wait_for_step(step + 1)


def wait_for_shown(view, step):
    """Wait until the page shows a step by itself."""
    view.page.wait_for_function(
        f"([view, step]) => ({HEADER})(view).some(each => each.startsWith(step))",
        arg=[view.view.element_handle(), f"step {step:,} of"],
    )
    view.view.locator(".bfcviz-scrub").wait_for()


def wait_for_python(view, step):
    """Wait until Python's figure of the step has taken the place of what the page painted."""
    view.wait_for_step(step)
    view.view.locator(".bfcviz-scrub").wait_for(state="detached")


def test_a_held_key_needs_no_kernel_and_python_follows(view):
    send_events_around(view, 1500)
    with stopped_kernel(view):
        hold(view, "ArrowRight", 99)
        wait_for_shown(view, 1600)
        shown = view.view.evaluate(HEADER)
        release(view, "ArrowRight")
    wait_for_python(view, 1600)
    assert view.view.evaluate(HEADER) == shown
    assert view.step() == 1600
    assert view.view.locator("input[type=number]").input_value() == "1600"


def test_the_lines_follow_also_where_python_drew_the_first_steps_of_a_held_key(view):
    view.go_to(12_000)
    hold(view, "ArrowRight", 1)
    view.page.wait_for_function(
        "view => view.dataset.bfcvizScrubs === '10000 14000'", arg=view.view.element_handle()
    )
    view.page.wait_for_function(
        f"view => ({HEADER})(view)[4].startsWith('step 12,001')", arg=view.view.element_handle()
    )
    hold(view, "ArrowRight", 1800)
    wait_for_shown(view, 13_801)
    lines = view.view.evaluate(LINES)
    assert len(lines) >= 2
    for step, opacity in lines:
        assert abs(step - 13_801) < 300
        assert opacity == ""
    release(view, "ArrowRight")
    wait_for_python(view, 13_801)


def test_the_page_paints_the_chunks_of_its_step(view):
    send_events_around(view, 34_000)
    with stopped_kernel(view):
        hold(view, "ArrowLeft", 401)
        wait_for_shown(view, 33_600)
        places = [[(x + 0.5) / 12, (y + 0.5) / 16] for x in range(12) for y in range(16)]
        painted = view.page.evaluate(COLOURS, [view.view.element_handle(), places])
        release(view, "ArrowLeft")
    wait_for_python(view, 33_600)
    free = view.lab.python(
        f"""(lambda chunks, rows, places: [
            bool(((chunks['address'] <= at) & (at < chunks['address'] + chunks['size']) & ~chunks['in_use']).any())
            for at in (int(view.panel_data.model.regions()['address'][0] + (int(y * len(rows)) + x) * rows.width)
                       for x, y in places)])(
            view.panel_data.model.chunks(),
            __import__('bfcviz.figures.map_rows', fromlist=['x']).rows_of(view.panel_data.model), {places})"""
    )
    paint = view.lab.python("view.look.paints.free.fill")
    green = [int(paint[at : at + 2], 16) for at in (1, 3, 5)]
    assert 20 < sum(free) < len(free) - 20
    differ = sum((colour == green) != is_free for colour, is_free in zip(painted, free, strict=True))
    assert differ <= 15  # a name, an outline or an edge lies there


def test_past_the_events_of_the_page_python_goes_on(view):
    send_events_around(view, 8000)
    hold(view, "ArrowRight", 1999)
    wait_for_shown(view, 10_000)
    hold(view, "ArrowRight", 1)
    release(view, "ArrowRight")
    view.wait_for_step(10_001)


def test_the_line_at_the_step_is_dragged_on_the_strip(view):
    send_events_around(view, 500)
    strip, window = view.number("strip"), view.get("look.steps")
    pixel = "([plot, n, step]) => plot._fullLayout[`xaxis${n}`].d2p(step)"
    begin, end = (view.page.evaluate(pixel, [view.plot(), strip, step]) for step in (view.step(), 2500))
    x, y, _, height = view.area("strip")
    with stopped_kernel(view):
        view.page.mouse.move(x + begin, y + height / 2)
        view.page.mouse.down()
        view.page.mouse.move(x + end, y + height / 2, steps=6)
        view.view.locator(".bfcviz-scrub").wait_for()
        shown = view.view.evaluate(HEADER)
        view.page.mouse.up()
    view.view.locator(".bfcviz-scrub").wait_for(state="detached")
    assert view.view.evaluate(HEADER) == shown
    assert abs(view.step() - 2500) < 100
    assert view.get("look.steps") == window  # it was not brushed


def test_before_the_first_step_there_is_nothing_to_wait_for(view):
    send_events_around(view, 0)
    hold(view, "ArrowLeft", 2)
    wait_for_shown(view, 0)
    assert "before the first event" in view.view.locator(".bfcviz-step-line summary:visible").inner_text()
    release(view, "ArrowLeft")
    for step in (0, 0):
        view.key("ArrowLeft")
        view.wait_for_step(step)
    view.view.locator(".bfcviz-scrub").wait_for(state="detached", timeout=5000)


def test_a_step_does_not_overtake_a_key_that_only_python_answers(view):
    send_events_around(view, 1500)
    with stopped_kernel(view):
        view.key("Home")
        view.key("ArrowRight")
    view.wait_for_step(1)
    assert view.step() == 1


def test_the_line_is_dragged_past_the_events_of_the_page_and_the_end_of_the_trace(view):
    send_events_around(view, 500)
    (x, _), (_, y) = (view.at("strip", *place) for place in ((0, 0), (0, 0.5)))
    line = view.page.evaluate(
        "([plot, n]) => plot._fullLayout[`xaxis${n}`].d2p(501)", [view.plot(), view.number("strip")]
    )
    width = view.area("strip")[2]
    view.page.mouse.move(x + line, y)
    view.page.mouse.down()
    view.page.mouse.move(x + line + 10, y, steps=3)
    view.page.mouse.move(x + width / 2, y, steps=3)
    view.page.wait_for_function(
        "view => Number(view.querySelector('.bfcviz-figure').dataset.bfcvizStep) > 20_000",
        arg=view.view.element_handle(),
    )
    assert view.view.locator(".bfcviz-scrub").count() == 0  # the page has no events there
    view.page.mouse.move(x + width - 1, y, steps=3)
    view.page.mouse.up()
    wait_for_python(view, view.get("_last"))


def test_a_second_view_asks_for_itself(view):
    send_events_around(view, 1500)
    view.page.evaluate(
        "() => { jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.setSource('view'); }"
    )
    view.lab.start_cell(1)
    other = Board(view.lab, "view", 1).wait_until_drawn()
    send_events_around(other, 30_000)
    shown = [each.view.get_attribute("data-bfcviz-scrubs") for each in (view, other)]
    assert shown == ["0 4000", "28000 32000"]
