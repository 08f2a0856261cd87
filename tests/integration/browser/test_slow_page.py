"""Pages that start slowly: the figure shows the step of the header, and where it does not, the page says so."""

import os
import signal
from contextlib import contextmanager, suppress
from threading import Event, Thread

import pytest
from integration.browser.board import Board, write_notebook
from integration.browser.lab import PAGE_LIMIT_MS, RUNNING, WIDGET_LATE, watched_page
from integration.browser.test_view import Viewer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

LIMIT_MS = 100_000
SLOW_PROCESSOR = 6  # times slower
TURN_S = 0.01  # what the page gets of a slow processor at a time
SLOW_LINK = {"latency": 100, "downloadThroughput": 5e6 / 8, "uploadThroughput": 5e6 / 8, "offline": False}

NOTEBOOK = "slow.ipynb"
RUN = "[globals().update(bfcviz=__import__('bfcviz')), globals().update(run=bfcviz.open(bfcviz.sample('conv')))]"
SHOWN = """
view = bfcviz.Inspector(run, step=1000)
view
"""
AGAIN = "view"
TWO = """
from IPython.display import display
others = [bfcviz.Inspector(run, step=step) for step in (100, 200)]
display(*others)
"""

# Answers a page that asks for the state of all widgets with one that is older than what the page has already got: a
# thread draws while ipywidgets collects it.
OVERTAKEN = """
from ipywidgets import Widget
answer = Widget._handle_control_comm_msg.__func__
class Overtaken:
    def __init__(self, comm):
        self.comm = comm
    def send(self, *parts, **options):
        view.step = 500
        self.comm.send(*parts, **options)
def overtaken(cls, message):
    comm, cls._control_comm = cls._control_comm, Overtaken(cls._control_comm)
    cls._handle_control_comm_msg = classmethod(answer)
    answer(cls, message)
    cls._control_comm = comm
Widget._handle_control_comm_msg = classmethod(overtaken)
"""

# From here on the page evaluates plotly's script, which it then has not seen, only when `openGate` is called.
GATE = """() => {
  window.make ??= URL.createObjectURL;
  window.bfcvizPlotly?.clear();
  window.gate = new Promise((open, fail) => [window.openGate, window.failGate] = [open, fail]);
  gate.catch(() => {});
  URL.createObjectURL = blob => make.call(URL, blob.size < 1e6 ? blob :
    new Blob(['await globalThis.gate;\\n', blob], {type: 'text/javascript'}));
}"""
ANYWIDGET_GAVE_UP = "began => performance.now() - began > 2500"  # it waits 2 s for a widget
DRAWN = """([plot, step]) => {
  const lines = plot.data?.filter(t => t.name === 'this step' && t.visible === true && t.x.length === 2) ?? [];
  return lines.length > 0 && lines.every(t => t.x[0] === step);
}"""
# The timer of about 10 s after which a figure counts as lost ends after 1 s, and the page's clock leaps over the rest.
LEAP = """() => {
  window.later ??= setTimeout;
  const now = performance.now.bind(performance);
  let left_out = 0;
  performance.now = () => now() + left_out;
  window.setTimeout = (act, wait, ...rest) => wait < 8000 || wait > 10_001 ? later(act, wait, ...rest) :
    later(() => { left_out += wait - 1000; act(...rest); }, 1000);
}"""
# On a quick machine the cover is gone before anything else can see it.
NOTE_LATE = """view => {
  window.wasLate = false;
  const note = () => (window.wasLate ||= view.querySelector('.bfcviz-late') !== null);
  new MutationObserver(note).observe(view, { childList: true, subtree: true });
}"""
STEP = "([view, step]) => view.querySelector('.bfcviz-figure').dataset.bfcvizStep === String(step)"


@contextmanager
def slowed(page, *, processor=1, link=None):
    """Slow the page down until the block ends.

    Chromium's own throttle keeps a core busy with waiting, which other tests then lack: here the page is stopped.
    """
    devtools = page.context.new_cdp_session(page)
    if link is not None:
        devtools.send("Network.enable")
        devtools.send("Network.emulateNetworkConditions", link)
    everything = page.context.browser.new_browser_cdp_session()
    found = everything.send("SystemInfo.getProcessInfo")["processInfo"]
    pages = [process["id"] for process in found if process["type"] == "renderer"]
    ended = Event()
    turns = Thread(target=_in_turns, args=(pages, processor, ended))
    turns.start()
    try:
        yield
    finally:
        ended.set()
        turns.join()
        everything.detach()
        devtools.detach()


def _in_turns(processes, times, ended):
    """Let processes run for one turn and stop them for the others, until it is ended."""
    while times > 1 and not ended.wait(TURN_S):
        _tell(processes, signal.SIGSTOP)
        ended.wait(TURN_S * (times - 1))
        _tell(processes, signal.SIGCONT)


def _tell(processes, number):
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


# -- bfcviz view ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    started = Viewer(tmp_path_factory.mktemp("slow"))
    yield started
    started.end()


@pytest.mark.parametrize(
    "slow", [{"processor": SLOW_PROCESSOR}, {"link": SLOW_LINK}], ids=["processor", "link"]
)
def test_in_view_the_figure_follows_the_step(browser, viewer, slow):
    page, outside, errors = watched_page(browser, viewer.server)
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.set_default_timeout(LIMIT_MS)
    with slowed(page, **slow):
        page.goto(f"{viewer.server}?token={viewer.token}")
        board = page.locator(".bfcviz-dashboard")
        board.locator(".bfcviz-step-line:has-text(' of 32,001')").wait_for()
        board.locator(".js-plotly-plot .nsewdrag").first.wait_for(state="attached")
        board.focus()
        for key, step in (("Home", 0), ("End", 32_001), ("ArrowLeft", 32_000)):
            page.keyboard.press(key)
            board.locator(f".bfcviz-step-line:has-text('step {step:,} of')").wait_for()
            plot = board.locator(".js-plotly-plot").element_handle()
            page.wait_for_function(DRAWN, arg=[plot, step])
            page.wait_for_function(STEP, arg=[board.element_handle(), step])
        assert board.locator(".bfcviz-late").count() == 0
    page.close()
    assert (outside, [error for error in errors if error != WIDGET_LATE]) == ([], [])


# -- JupyterLab ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(lab_page):
    write_notebook(lab_page.server.folder / NOTEBOOK, SHOWN, AGAIN, TWO, OVERTAKEN)
    with lab_page.opened(NOTEBOOK) as lab:
        lab.python(RUN)  # read once, not by each test
        yield lab


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """Each test of JupyterLab begins without any output."""
    yield
    if "lab" in request.fixturenames:
        lab = request.getfixturevalue("lab")
        lab.page.evaluate("() => { URL.createObjectURL = window.make ?? URL.createObjectURL }")
        lab.page.evaluate("() => { window.setTimeout = window.later ?? setTimeout }")
        lab.page.set_default_timeout(PAGE_LIMIT_MS)
        clear(lab, 0, 1, 2)
        lab.page.locator(".bfcviz-dashboard").first.wait_for(state="detached")


def clear(lab, *cells):
    for cell in cells:
        lab.page.evaluate(
            "number => jupyterapp.shell.currentWidget.content.widgets[number].model.clearExecution()", cell
        )


def gated(lab):
    """Shows the dashboard on a page that has not evaluated plotly's script; returns it and the text in its place."""
    began = lab.page.evaluate("performance.now()")
    lab.page.evaluate(GATE)
    lab.start_cell(0)
    board = Board(lab, "view")
    sentence = board.view.locator(".bfcviz-figure-sentence")
    sentence.wait_for()
    lab.page.wait_for_function(ANYWIDGET_GAVE_UP, arg=began)
    return board, sentence


def wait_until_drawn(board, step):
    """Both the header and the figure show the step, and the page says that they do."""
    board.view.locator(".js-plotly-plot .nsewdrag").first.wait_for(state="attached")
    board.page.wait_for_function(DRAWN, arg=[board.plot(), step])
    board.wait_for_step(step)
    board.page.wait_for_function(STEP, arg=[board.view.element_handle(), step])
    assert board.view.locator(".bfcviz-late, .bfcviz-figure-sentence").count() == 0


def test_what_came_before_plotly_is_drawn_when_it_is_there(lab):
    board, sentence = gated(lab)
    assert "loading" in sentence.inner_text()
    board.set(views="everything")  # adds axes and traces
    for step in (700, 800, 900):
        board.set(step=step)
    board.view.locator(".bfcviz-step-line:has-text('step 900 of')").wait_for()
    assert board.view.locator(".js-plotly-plot").count() == 0
    lab.page.evaluate("openGate()")
    wait_until_drawn(board, 900)
    board.wait_for("return plot.querySelectorAll('.cartesianlayer > .subplot').length > 6")
    board.set(views="memory", step=901)
    wait_until_drawn(board, 901)


def test_another_view_shows_the_newest_step_and_both_follow(lab):
    lab.start_cell(0)
    both = [Board(lab, "view", number) for number in (0, 1)]
    wait_until_drawn(both[0], 1000)
    both[0].set(step=901)
    wait_until_drawn(both[0], 901)
    lab.start_cell(1)
    wait_until_drawn(both[1], 901)
    both[0].set(step=902)
    for board in both:
        wait_until_drawn(board, 902)
    clear(lab, 0)
    both[0].set(step=903)
    wait_until_drawn(both[0], 903)  # the one that is left


def test_a_view_removed_before_plotly_is_there_leaves_no_trace(lab):
    gated(lab)
    clear(lab, 0)
    lab.page.locator(".bfcviz-dashboard").wait_for(state="detached")
    lab.start_cell(0)
    lab.page.evaluate("openGate()")
    wait_until_drawn(Board(lab, "view"), 1000)


def test_a_script_that_does_not_load_is_told_in_the_place_of_the_figure(lab):
    board, sentence = gated(lab)
    lab.page.evaluate("failGate(new Error('no such luck'))")
    board.view.locator(".bfcviz-figure-sentence[role=alert]").wait_for()
    assert "no such luck" in sentence.inner_text()
    board.set(step=500)
    board.view.locator(".bfcviz-step-line:has-text('step 500 of')").wait_for()
    assert "no such luck" in sentence.inner_text()
    lab.page.evaluate("() => { URL.createObjectURL = make }")
    lab.start_cell(1)  # the next figure tries again
    wait_until_drawn(Board(lab, "view", 1), 500)


def test_an_old_picture_is_never_shown_as_the_present_one(lab):
    lab.start_cell(0)
    board = Board(lab, "view")
    wait_until_drawn(board, 1000)
    lab.python("globals().update(updates=view.view.widget._updates, way=view.view.widget._updates.comm)")
    lab.python("setattr(updates, 'comm', None)")  # what is sent from here on is lost
    lab.page.evaluate(LEAP)
    board.set(step=600)
    cover = board.view.locator(".bfcviz-late")
    cover.wait_for()
    assert "loading" in cover.inner_text()
    assert "600" in cover.inner_text()
    covered, figure = cover.bounding_box(), board.view.locator(".js-plotly-plot").bounding_box()
    assert covered == pytest.approx(figure, abs=2)
    board.view.locator(".bfcviz-late:has-text('Reload this page')").wait_for()
    lab.python("setattr(updates, 'comm', way)")
    board.set(step=601)  # the page finds that some are missing, and asks for the whole
    wait_until_drawn(board, 601)


def test_a_header_that_an_older_state_has_overtaken_follows_again(lab):
    lab.start_cell(0)
    board = Board(lab, "view")
    wait_until_drawn(board, 1000)
    lab.start_cell(3)
    lab.page.wait_for_function(f"number => !({RUNNING})(number)", arg=3)
    board.view.evaluate(NOTE_LATE)
    lab.page.evaluate("() => { jupyterapp.shell.currentWidget.sessionContext.session.kernel.reconnect() }")
    lab.page.wait_for_function("() => window.wasLate")  # the header has the older step
    wait_until_drawn(board, 500)


def test_a_text_of_the_header_that_was_lost_comes(lab):
    lab.start_cell(0)
    board = Board(lab, "view")
    wait_until_drawn(board, 1000)
    text = "view.header.step_line"
    lab.python(f"[globals().update(text={text}.value), setattr({text}, 'value', '')]")
    board.view.locator(".bfcviz-step-line:not(:has(b))").wait_for(state="attached")
    lab.python(f"{text}._trait_values.update(value=text)")  # not sent
    wait_until_drawn(board, 1000)


def test_on_a_slow_machine_two_figures_follow_the_step(lab):
    lab.page.evaluate("window.bfcvizPlotly?.clear()")
    lab.page.set_default_timeout(LIMIT_MS)
    with slowed(lab.page, processor=SLOW_PROCESSOR, link=SLOW_LINK):
        lab.start_cell(2)
        boards = [Board(lab, f"others[{number}]", number) for number in (0, 1)]
        for board, step in zip(boards, (100, 200), strict=True):
            wait_until_drawn(board, step)
        for board, step in zip(boards, (300, 400), strict=True):
            board.set(step=step)
        for board, step in zip(boards, (300, 400), strict=True):
            wait_until_drawn(board, step)
