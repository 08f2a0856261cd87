"""The manners of a dashboard in a real page: wheel, keys, the brush of time, pointing at holders, and its size."""

from base64 import b64encode

import pytest
from integration.browser.board import Board, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

NOTEBOOK = "manners.ipynb"
SIDEBAR = 432  # pixels of JupyterLab's page beside a cell, about: it shares them out when the page loads
CELL = """
import bfcviz
view = bfcviz.Inspector(bfcviz.sample("conv"))
view
"""
ROOM = "from IPython.display import HTML\nHTML('<div style=\"height: 3000px\"></div>')"

SCROLLED = "view => view.closest('.jp-WindowedPanel-outer').scrollTop"
RANGES = (
    """plot => Object.values(plot._fullLayout._plots).map(one => [...one.xaxis.range, ...one.yaxis.range])"""
)
CLIPPED = """view => {
  const found = [];
  const note = (each, wanted, shown) => found.push([each.className, each.textContent.slice(-80), wanted, shown]);
  const parts = [...view.querySelectorAll('.bfcviz-header, .bfcviz-step-line, .bfcviz-chunk')];
  for (const each of parts.flatMap(part => [part, ...part.querySelectorAll('*')])) {
    const { display, overflowX } = getComputedStyle(each);
    if (display === 'inline' || each.closest('style, details:not([open]) > :not(summary)')) continue;
    const { scrollHeight, clientHeight, scrollWidth, clientWidth } = each;
    if (scrollHeight > clientHeight + 1) note(each, scrollHeight, clientHeight);
    if (scrollWidth > clientWidth + 1 && overflowX === 'hidden') note(each, scrollWidth, clientWidth);
  }
  const pen = document.createElement('canvas').getContext('2d');
  for (const each of view.querySelectorAll('input[placeholder]')) {
    const { font, paddingLeft, paddingRight } = getComputedStyle(each);
    pen.font = font;
    const wanted = pen.measureText(each.placeholder).width + parseFloat(paddingLeft) + parseFloat(paddingRight);
    if (each.clientWidth && wanted > each.clientWidth) note(each, wanted, each.clientWidth);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def lab(lab_page):
    write_notebook(lab_page.server.folder / NOTEBOOK, CELL, ROOM)
    with lab_page.opened(NOTEBOOK, size=(880 + SIDEBAR, 1000)) as lab:
        lab.run_all_and_draw(1, "view")
        yield lab


@pytest.fixture
def view(lab):
    board = Board(lab, "view").wait_until_drawn()
    yield board
    board.key("z")
    board.set(views="active_memory")
    height = board.get("view.widget.layout.height")  # the next test points at places
    board.wait_for("return plot._fullLayout.height === args[0]", height)


def width(board, pixels):
    """Make the cell about this wide, and wait until the figure is as wide as its cell."""
    board.page.set_viewport_size({"width": pixels + SIDEBAR, "height": 1000})
    cell = "plot.closest('.bfcviz-dashboard').clientWidth"
    board.wait_for(
        f"return Math.abs({cell} - args[0]) < 10 && Math.abs(plot._fullLayout.width - {cell}) < 3", pixels
    )


def test_the_page_fits_on_one_screen(view):
    width(view, 880)
    assert view.view.bounding_box()["height"] <= 840


@pytest.mark.parametrize("pixels", [880, 600, 1300])
def test_no_text_is_clipped(view, pixels):
    width(view, pixels)
    chunks = "view.panel_data.model.chunks()[:40:8]"
    for address, born in view.lab.python(
        f"[[str(c['address']), int(c['born']) if c['in_use'] else None] for c in {chunks}]"
    ):
        view.view.evaluate(
            "(view, message) => { const link = document.createElement('i');"
            "link.dataset.bfcviz = JSON.stringify(message);"
            "view.append(link); link.click(); link.remove(); }",
            {"do": "select", "address": address, "born": born},
        )
        view.view.locator(f".bfcviz-chunk:has-text('{int(address):#x}')").wait_for()
        assert view.view.evaluate(CLIPPED) == []
    view.key("Escape")
    width(view, 880)


CUT_LETTERS = """view => [...view.querySelectorAll('.bfcviz-holders .label span:first-of-type')].flatMap(half => {
  const box = half.getBoundingClientRect(), text = half.firstChild.firstChild, range = document.createRange();
  return [...text.data].filter((_, at) => {
    range.setStart(text, at);
    range.setEnd(text, at + 1);
    const { top, bottom, right } = range.getBoundingClientRect();
    return (top + bottom) / 2 < box.bottom && right > box.right + 0.5;
  });
})"""


def test_a_long_name_of_a_holder_is_cut_between_letters(view):
    width(view, 880)
    halves = view.view.locator(".bfcviz-holders .label span:first-of-type")
    assert view.view.evaluate(CUT_LETTERS) == []
    assert halves.evaluate_all(
        "all => all.some(half => half.scrollHeight > half.clientHeight + 4)"
    )  # some are cut


CUT_MENUS = """view => {
  const pen = document.createElement('canvas').getContext('2d');
  return [...view.querySelectorAll('.bfcviz-toolbar select')].filter(each => {
    const { font, paddingLeft, paddingRight } = getComputedStyle(each);
    pen.font = font;
    const room = each.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    return each.clientWidth && pen.measureText(each.selectedOptions[0].text).width > room;
  }).map(each => each.selectedOptions[0].text);
}"""


def test_no_choice_of_a_menu_is_cut(view):
    width(view, 1300)
    view.view.get_by_role("button", name="more", exact=True).click()
    menus = view.view.locator(".bfcviz-toolbar select:visible")
    menus.nth(3).wait_for()  # the second row is there
    for number in range(menus.count()):
        menu = menus.nth(number)
        before = menu.input_value()
        for option in menu.locator("option").all_inner_texts():
            menu.select_option(option)
            assert view.view.evaluate(CUT_MENUS) == []
        menu.select_option(before)
    view.view.get_by_role("button", name="more", exact=True).click()
    width(view, 880)


@pytest.mark.parametrize("views", ["active_memory", "everything"])
def test_the_wheel_scrolls_the_notebook_over_every_plot(view, views):
    view.set(views=views)
    names = view.lab.python("list(view.view.stage.places)")
    assert len(names) >= 3
    for name in names:
        x, y = view.at(name, 0.5, 0.5)
        before, scrolled = view.page.evaluate(RANGES, view.plot()), view.view.evaluate(SCROLLED)
        view.page.mouse.move(x, y)
        for turn in (90, -60):
            view.page.mouse.wheel(0, turn)
            view.page.wait_for_function(
                f"([view, before]) => ({SCROLLED})(view) !== before",
                arg=[view.view.element_handle(), scrolled],
            )
            scrolled = view.view.evaluate(SCROLLED)
        assert view.page.evaluate(RANGES, view.plot()) == before


MOST_TURNS = 40


def turn_wheel(board, ranges, pixels, is_enough):
    """Turn the wheel, once after each zoom, until the ends of x are enough; a busy page takes several turns for one.

    Python's answer to a zoom rounds the range: so not each change is a turn.
    """
    read = f"plot => {{ {ranges} return x.range; }}"
    for _ in range(MOST_TURNS):
        low, high = board.page.evaluate(read, board.plot())
        if is_enough(low, high):
            return
        board.page.mouse.wheel(0, pixels)
        board.wait_for(f"{ranges} return String(x.range) !== args.join()", low, high)
    pytest.fail(f"after {MOST_TURNS} turns the range is {low} to {high}")


@pytest.mark.parametrize(
    ("views", "name"), [("active_memory", "region_map"), ("address_time", "address_time")]
)
def test_ctrl_and_wheel_zoom_and_never_beyond_the_data(view, views, name):
    view.set(views=views)
    number = view.number(name)
    suffix = "" if number == 1 else number
    ranges = f"const x = plot._fullLayout.xaxis{suffix}, y = plot._fullLayout.yaxis{suffix};"
    view.wait_for(f"{ranges} return x.visible")
    whole = view.page.evaluate(f"plot => {{ {ranges} return [x.minallowed, x.maxallowed]; }}", view.plot())
    scrolled = view.view.evaluate(SCROLLED)
    view.page.mouse.move(*view.at(name, 0.4, 0.5))
    scrolled = view.view.evaluate(SCROLLED)
    view.page.keyboard.down("Control")
    try:
        turn_wheel(view, ranges, -200, lambda low, high: high - low < 0.8 * (whole[1] - whole[0]))
        turn_wheel(view, ranges, 300, lambda low, high: abs(low - whole[0]) + abs(high - whole[1]) < 1e-6)
        for _ in range(9):
            view.page.mouse.wheel(0, 300)
    finally:
        view.page.keyboard.up("Control")  # the next tests press keys in this page
    view.wait_for(
        f"{ranges} return Math.abs(x.range[0] - args[0]) + Math.abs(x.range[1] - args[1]) < 1e-6", *whole
    )
    limits = f"{ranges} return [Math.min(...y.range) >= y.minallowed, Math.max(...y.range) <= y.maxallowed];"
    assert view.page.evaluate(f"plot => {{ {limits} }}", view.plot()) == [True, True]
    assert view.view.evaluate(SCROLLED) == scrolled
    assert view.page.evaluate("() => visualViewport.scale") == 1


ZOOM = """async ([plot, to, before]) => {
  const plotly = await bfcvizPlotly.values().next().value;
  await plotly.relayout(plot, { "xaxis.range": to });
  await plotly.update(plot, {}, { "xaxis.range": before }, []);
}"""
"""The reader zooms, and at once Python's answer to an earlier zoom is drawn."""


def test_an_answer_to_an_earlier_zoom_does_not_undo_the_next(view):
    low, high = view.page.evaluate("plot => plot._fullLayout.xaxis.range", view.plot())
    to = [low + 0.25 * (high - low), low + 0.5 * (high - low)]
    view.page.evaluate(ZOOM, [view.plot(), to, [low, high]])
    view.wait_for(
        "const { range } = plot._fullLayout.xaxis;"
        "return Math.abs(range[0] - args[0]) + Math.abs(range[1] - args[1]) < 0.02 * (args[1] - args[0])",
        *to,
    )


HOLDER = ".bfcviz-holders tbody tr[data-bfcviz]"
TAB = ".bfcviz-tabs [role=tab]"


@pytest.mark.parametrize(
    "where",
    ["region_map", "active_memory", "strip", ".bfcviz-header", ".bfcviz-chunk", HOLDER, TAB, ".bfcviz-back"],
)
def test_keys_work_after_a_click_anywhere(view, where):
    view.page.locator(".jp-OutputArea-output").nth(1).click(position={"x": 5, "y": 5})
    scrolled = view.view.evaluate(SCROLLED)
    if where.startswith("."):
        view.view.locator(where).first.click(position={"x": 3, "y": 3})
    else:
        view.page.mouse.click(*view.at(where, 0.31, 0.4))
        scrolled = view.view.evaluate(SCROLLED)
    assert view.page.evaluate("() => document.activeElement.classList.contains('bfcviz-dashboard')")
    view.page.keyboard.press("k")
    view.wait_for_step(view.lab.python("__import__('bfcviz').peak(view.panel_data.trace)"))
    view.page.keyboard.press("ArrowLeft")
    view.wait_for_step(view.lab.python("__import__('bfcviz').peak(view.panel_data.trace)") - 1)
    assert view.page.locator(".jp-Cell").count() == 2
    assert abs(view.view.evaluate(SCROLLED) - scrolled) < 2 or where.startswith(".")
    view.page.keyboard.press("Escape")
    view.view.locator(".bfcviz-holders .chosen").first.wait_for(state="detached")


def places(board):
    """The upper edges of the rows of holders."""
    rows = board.view.locator(HOLDER)
    return [rows.nth(number).bounding_box()["y"] for number in range(rows.count())]


def test_a_click_on_a_holder_leaves_the_rows_in_place(view):
    view.key("k")
    view.wait_for_step(view.lab.python("__import__('bfcviz').peak(view.panel_data.trace)"))
    before = places(view)
    assert len(before) > 2
    view.view.locator(HOLDER).nth(1).click()
    view.view.locator(".bfcviz-holders .filter button").wait_for()
    assert places(view) == before
    view.page.keyboard.press("Escape")
    view.view.locator(".bfcviz-holders .filter button").wait_for(state="detached")
    assert places(view) == before


def test_a_click_on_a_row_that_is_drawn_anew_meanwhile_counts(view):
    view.go_to(view.lab.python("__import__('bfcviz').peak(view.panel_data.trace)"))
    row = view.view.locator(HOLDER).nth(1)
    box, message = row.bounding_box(), row.get_attribute("data-bfcviz")
    view.page.mouse.move(box["x"] + 20, box["y"] + 8)
    view.page.mouse.down()
    view.go_to(view.step() - 40)
    view.page.mouse.up()
    view.view.locator(f".bfcviz-holders .filter button[data-bfcviz='{message}']").wait_for()
    view.page.keyboard.press("Escape")
    view.view.locator(".bfcviz-holders .filter button").wait_for(state="detached")


def test_a_holder_chosen_with_a_key_keeps_the_focus(view):
    row = view.view.locator(HOLDER).nth(1)
    row.focus()
    message = row.get_attribute("data-bfcviz")
    view.page.keyboard.press("Enter")
    view.view.locator(".bfcviz-holders .chosen").first.wait_for()
    view.page.wait_for_function(
        "message => document.activeElement.dataset.bfcviz === message && document.activeElement.localName === 'tr'",
        arg=message,
    )
    view.page.keyboard.press("Enter")
    view.view.locator(".bfcviz-holders .chosen").first.wait_for(state="detached")


PARTS = ["header", "toolbar", "map", "side", "tabs"]
FOCUSED = """() => {
  const { activeElement } = document;
  const style = getComputedStyle(activeElement);
  const { y } = activeElement.getBoundingClientRect();
  const part = activeElement.closest(PARTS.join())?.className.match(/bfcviz-(header|toolbar|map|side|tabs)/)?.[1];
  return [part ?? activeElement.localName, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0, y];
}""".replace("PARTS", "['.bfcviz-header', '.bfcviz-toolbar', '.bfcviz-map', '.bfcviz-side', '.bfcviz-tabs']")


def test_the_tab_key_goes_through_the_parts_in_order_and_the_focus_is_seen(view):
    view.view.focus()
    passed = []
    while not passed or passed[-1][0] != "tabs":
        view.page.keyboard.press("Tab")
        passed.append(view.page.evaluate(FOCUSED))
        assert len(passed) < 120, passed
    assert [each for each in passed if not each[1]] == []
    parts = [part for part, *_ in passed]
    order = list(dict.fromkeys(part for part in parts if part in PARTS))
    assert order == PARTS
    assert parts == sorted(parts, key=[*order, *parts].index)  # each part at once


MAP = """view => {
  const map = view.querySelector(".bfcviz-map");
  const rows = [...map.querySelectorAll("i")].map((box) => box.style.cssText);
  return [map.querySelector("[role=status]").textContent, rows, document.activeElement === map];
}"""
"""What a screen reader is told of the chunk under the cursor, its boxes, and whether the map has the focus."""


def told_by_map(board, before):
    """Wait until the map says something else than before, and has a box there."""
    board.page.wait_for_function(
        f"([view, before]) => {{ const [text, boxes] = ({MAP})(view); return text !== before && boxes.length; }}",
        arg=[board.view.element_handle(), before],
    )
    return board.view.evaluate(MAP)[0]


def test_the_keys_choose_a_chunk_where_the_map_has_the_focus(view):
    view.go_to(500)
    view.view.locator(".bfcviz-map").focus()
    first = told_by_map(view, "")
    view.page.keyboard.press("ArrowRight")
    second = told_by_map(view, first)
    view.page.keyboard.press("ArrowLeft")
    assert told_by_map(view, second) == first
    view.page.keyboard.press("ArrowDown")
    below = told_by_map(view, first)
    view.page.keyboard.press("Enter")
    view.view.locator(".bfcviz-chunk:has-text('0x')").wait_for()
    assert "selected" in told_by_map(view, below)
    selected = view.get("look.selected.address")
    assert (view.step(), view.view.evaluate(MAP)[2]) == (500, True)

    view.page.keyboard.press("Escape")  # lets the map go, not the chunk
    view.page.wait_for_function(
        "view => document.activeElement === view && !view.querySelector('.bfcviz-map i')",
        arg=view.view.element_handle(),
    )
    assert view.get("look.selected.address") == selected
    view.page.keyboard.press("ArrowRight")
    view.wait_for_step(501)
    view.page.keyboard.press("Escape")
    view.view.locator(".bfcviz-chunk:has-text('Click a chunk')").wait_for()


BETWEEN_ROWS = r"""(plot) => {
  const trace = plot._fullData.find(({ yaxis, mode, meta }) => yaxis === "y" && mode === "none" && meta);
  const { xaxis, yaxis } = plot._fullLayout;
  const points = [...trace.x].map((x, each) => {
    const y = trace.y[each];
    return { row: Math.floor(y), x: xaxis.d2p(x), y: yaxis.d2p(y), text: trace.hovertemplate[each] };
  });
  const box = plot.querySelector(".nsewdrag[data-subplot=xy]").getBoundingClientRect();
  for (const row of new Set(points.map((each) => each.row))) {
    const y = yaxis.d2p(row) + 1;
    const own = points.filter((each) => each.row === row);
    for (let x = 2; x < xaxis._length; x += 2) {
      const nearest = points.reduce((a, b) => Math.hypot(a.x - x, a.y - y) <= Math.hypot(b.x - x, b.y - y) ? a : b);
      const under = own.reduce((a, b) => Math.abs(a.x - x) <= Math.abs(b.x - x) ? a : b);
      if (nearest.text === under.text) continue;
      const text = trace.meta[Number(/\d+/.exec(under.text)[0])];
      return [box.x + x, box.y + y, /at 0x[0-9a-f]+/.exec(text)[0]];
    }
  }
}"""
"""A place of the map where the nearest hover point is of another row, and what names the chunk there."""


def test_the_mouse_on_the_map_names_the_chunk_under_it_and_none_of_the_next_row(view):
    view.go_to(63_927)
    x, y, name = view.wait_until_drawn().plot().evaluate(BETWEEN_ROWS)
    view.page.mouse.move(x, y)
    view.view.locator(f".hoverlayer .hovertext:has-text('{name}')").wait_for()


def test_a_table_begins_right_below_the_tabs(view):
    before = view.plot().bounding_box()["height"]
    view.set(views="chunk_table")
    view.wait_for("return plot.getBoundingClientRect().height < args[0] - 100", before)


HELD = """view => {
  for (let number = 0; number < 30; number += 1) {
    view.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', repeat: true, bubbles: true }));
  }
  view.dispatchEvent(new KeyboardEvent('keyup', { key: 'ArrowRight', bubbles: true }));
}"""
"""Thirty repetitions before a figure can be drawn: the first two are sent."""


def test_a_held_key_steps_as_fast_as_figures_are_drawn_and_leaves_nothing_behind(view):
    view.go_to(500)
    view.view.evaluate(HELD)
    view.wait_for_step(502)  # in all figures, as the key was released
    view.key("ArrowRight")  # pressed anew: never left out
    view.wait_for_step(503)


def test_the_step_at_which_the_view_rests_is_read_out(view):
    spoken = view.view.locator(".bfcviz-spoken[role=status]")
    for step in (700, 500):
        view.go_to(step)
        spoken.filter(has_text=f"step {step:,} of").wait_for(state="attached")
    view.view.locator(".js-plotly-plot[role=figure][aria-label]").wait_for()


def test_the_box_of_the_map_lies_over_the_list_of_holders(view):
    view.page.mouse.move(*view.at("region_map", 0.8, 0.5))
    box = view.view.locator(".hoverlayer .hovertext")
    box.wait_for()
    text, pane = box.bounding_box(), view.view.locator(".bfcviz-side").bounding_box()
    left, right = max(text["x"], pane["x"]), text["x"] + text["width"]
    assert right - left > 40
    clip = {"x": left, "y": text["y"] + 3, "width": right - left - 3, "height": text["height"] - 6}
    colour = "(pane, colour) => pane.style.background = colour"
    view.view.locator(".bfcviz-side").evaluate(colour, "magenta")
    picture = b64encode(view.page.screenshot(clip=clip)).decode()
    view.view.locator(".bfcviz-side").evaluate(colour, "")
    view.page.mouse.move(2, 2)
    assert view.page.evaluate(MAGENTA, picture) == 0


MAGENTA = """async picture => {
  const image = new Image();
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
  canvas.drawImage(image, 0, 0);
  const bytes = canvas.getImageData(0, 0, image.width, image.height).data;
  let found = 0;
  for (let at = 0; at < bytes.length; at += 4) found += bytes[at] > 200 && bytes[at + 1] < 60 && bytes[at + 2] > 200;
  return found;
}"""
"""How many pixels of a picture are magenta."""


def window(board):
    """The ends of the window on the strip, in shares of the whole trace; waits until Python and page agree."""
    first, last = board.get("look.steps")
    board.wait_for(
        "const t = plot.data.find(t => t.name === 'shown window');"
        "return t.x.length && Math.abs(t.x[0] - args[0]) < 1 && Math.abs(t.x[4] - args[1]) < 1",
        first,
        last,
    )
    number = board.number("active_memory")
    board.wait_for(
        f"const [a, b] = plot._fullLayout.xaxis{number}.range;"
        "return Math.abs(a - args[0]) < 1 && Math.abs(b - args[1]) < 1",
        first,
        last,
    )
    length = board.lab.python("len(view.panel_data.trace)") * 1.012
    return first / length, last / length


def wait_for_window(board, left, right):
    """Wait until the window has these ends."""
    number = board.number("active_memory")
    board.wait_for(
        f"const [a, b] = plot._fullLayout.xaxis{number}.range, all = args[2];"
        "return Math.abs(a / all - args[0]) < 0.01 && Math.abs(b / all - args[1]) < 0.01",
        left,
        right,
        board.lab.python("len(view.panel_data.trace)") * 1.012,
    )
    assert window(board) == pytest.approx((left, right), abs=0.01)


def test_the_brush_selects_moves_resizes_and_drives_all_views(view):
    view.key("z")
    view.wait_for(f"return plot._fullLayout.xaxis{view.number('active_memory')}.range[0] === 0")
    view.go_to(view.lab.python("len(view.panel_data.trace) * 3 // 5"))  # where no drag begins
    view.drag("strip", (0.3, 0.5), (0.5, 0.5))
    wait_for_window(view, 0.3, 0.5)
    view.drag("strip", (0.4, 0.5), (0.45, 0.5))
    wait_for_window(view, 0.35, 0.55)
    view.drag("strip", (0.55, 0.5), (0.75, 0.5))
    wait_for_window(view, 0.35, 0.75)
    view.drag("strip", (0.35, 0.5), (0.25, 0.5))
    wait_for_window(view, 0.25, 0.75)
    steps = view.get("look.steps")
    view.set(views="everything")
    for name in ("address_time", "stats_timeline", "fragmentation_timeline", "event_rate", "active_memory"):
        axis = f"plot._fullLayout.xaxis{view.number(name)}"
        view.wait_for(f"return {axis}?.visible && Math.abs({axis}.range[0] - args[0]) < 1", steps[0])
        view.wait_for(f"return Math.abs({axis}.range[1] - args[0]) < 1", steps[1])
    strip = f"plot._fullLayout.xaxis{view.number('strip')}"
    view.wait_for(f"return {strip}.range[0] === 0 && {strip}.range[1] >= args[0]", steps[1])
    assert view.step() == view.lab.python("len(view.panel_data.trace) * 3 // 5")  # no drag was a click


def test_a_drag_ends_where_the_release_of_the_mouse_was_lost(view):
    view.go_to(100)
    for share in (0.3, 0.5):
        view.page.mouse.move(*view.at("strip", share, 0.5))
        view.page.mouse.down()
    view.page.evaluate("dispatchEvent(new MouseEvent('mousemove', { clientX: 5, buttons: 0 }))")
    view.page.mouse.move(*view.at("strip", 0.7, 0.5))
    wait_for_window(view, 0.3, 0.5)
    view.page.mouse.up()


def test_a_key_does_not_overtake_a_click_on_the_strip(view):
    view.drag("strip", (0.4, 0.5), (0.6, 0.5))
    wait_for_window(view, 0.4, 0.6)
    view.page.mouse.click(*view.at("strip", 0.3, 0.5))
    view.page.keyboard.press("Home")
    view.wait_for_step(0)
    view.key("ArrowRight")
    view.wait_for_step(1)  # no click came after the key


def test_a_click_on_the_strip_goes_there_and_a_double_click_shows_all(view):
    view.go_to(100)
    view.page.mouse.click(*view.at("strip", 0.5, 0.5))
    view.view.locator(".bfcviz-step-line:not(:has-text('step 100 of'))").wait_for()
    assert view.step() / view.lab.python("len(view.panel_data.trace)") == pytest.approx(0.506, abs=0.01)
    view.drag("strip", (0.4, 0.5), (0.6, 0.5))
    wait_for_window(view, 0.4, 0.6)
    step = view.step()
    view.page.mouse.dblclick(*view.at("strip", 0.2, 0.5))
    view.wait_for(f"return plot._fullLayout.xaxis{view.number('active_memory')}.range[0] === 0")
    assert (view.get("look.steps"), view.step()) == (None, step)


def test_play_runs_along_the_strip_until_paused(view):
    view.go_to(200)
    line = f"plot.data.find(t => t.name === 'this step' && t.xaxis === 'x{view.number('strip')}').x[0]"
    view.press("play")
    view.view.locator(".bfcviz-play .fa-pause").wait_for()
    view.wait_for(f"return {line} > 202")
    view.page.mouse.down()  # where it is: Playwright's click would wait until the page rests, which draws meanwhile
    view.page.mouse.up()
    view.view.locator(".bfcviz-play .fa-play").wait_for()
    paused = view.step()
    assert 203 <= paused < view.lab.python("len(view.panel_data.trace)")
    view.wait_for_step(paused)


def test_pointing_at_a_holder_and_a_click_on_it_act_in_map_and_time(view):
    view.key("z")
    view.key("k")
    view.wait_for_step(view.lab.python("__import__('bfcviz').peak(view.panel_data.trace)"))
    view.step()  # Python has sent all of this step
    row = view.view.locator(".bfcviz-holders [data-bfcviz-hover]").nth(1)
    row.wait_for()
    view.page.mouse.move(2, 2)
    before = view.page.evaluate(PAINTED, view.plot())
    row.hover()
    view.page.wait_for_function(
        f"([plot, before]) => ({PAINTED})(plot) !== before", arg=[view.plot(), before]
    )
    hovered = view.get("look.hovered.path")
    assert hovered
    row.click()
    view.view.locator(".bfcviz-holders .chosen").first.wait_for()
    assert view.get("look.holder.path") == hovered
    view.page.mouse.move(*view.at("region_map", 0.5, 0.99))
    view.page.wait_for_function(
        f"([plot, before]) => ({PAINTED})(plot) !== before", arg=[view.plot(), before]
    )
    view.key("Escape")
    view.view.locator(".bfcviz-holders .chosen").first.wait_for(state="detached")
    view.page.wait_for_function(
        f"([plot, before]) => ({PAINTED})(plot) === before", arg=[view.plot(), before]
    )


PAINTED = """plot => JSON.stringify(plot.data.filter(t => t.visible !== false && ['x', 'x3'].includes(t.xaxis))
  .map(t => [t.fillcolor, t.source, t.x?.length, t.name]))"""
"""What the map and active memory show, as text."""
