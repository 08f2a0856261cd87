"""Watching in a real page: notebook 02, and 300,000 allocations of NumPy on a map that moves while they are made."""

import pytest
from integration.browser.board import Board, write_notebook
from integration.browser.lab import RUNNING, needs_subshells

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

NOTEBOOK = "02_watch_live.ipynb"
MANY = "many.ipynb"

# Begins at the first click, when the page has drawn the dashboard; ends at the second, but not before all 300,000.
WORK = """
import tempfile
import time

import bfcviz
import ipywidgets as widgets
import numpy as np
from bfcviz import notebook
from bfcviz.dashboard import widget_lifetime
from bfcviz.events.schema import Kind
from bfcviz.model import Model

left, right = np.ones(4000), np.ones(4000)
held, clicks, made = [None] * 700, [], 0
button = widgets.Button(description="go")
button.on_click(clicks.append)
display(button)
widget_lifetime.route([button])
with bfcviz.watch(numpy=True, limit="256MiB", path=tempfile.mkdtemp()) as w, bfcviz.label("work"):
    while not clicks:
        time.sleep(0.01)
    began = time.monotonic()
    while made < 300_000 or (len(clicks) < 2 and time.monotonic() - began < 50):
        for _ in range(1000):
            size = 50 + made * 7919 % 3900
            held[made * 31 % 700] = left[:size] * right[:size]
            made += 1
    clicked = len(clicks)
"""
CHECK = """
heap, trace = w.sources[0].allocator, w.trace
recorded = sum(np.count_nonzero(block["kind"] == Kind.ALLOCATE) for block in trace.blocks())
model = Model(trace)
model.seek(len(trace))
theirs, ours = model.chunks(), heap.memory_map()
names = ("address", "size", "in_use", "label", "born")
used = ours["in_use"]
same = len(ours) == len(theirs) and all(np.array_equal(ours[n][used], theirs[n][used]) for n in names)
same = same and np.array_equal(ours["address"], theirs["address"]) and np.array_equal(ours["size"], theirs["size"])
same = same and model.stats().bytes_in_use == heap.stats().bytes_in_use
"""

IMAGE = "plot.data.find(trace => trace.type === 'image' && trace.visible !== false)?.source"


@pytest.fixture(scope="module")
def notebook(lab_page):
    with lab_page.opened(NOTEBOOK) as lab:
        lab.page.set_default_timeout(150_000)  # it trains, and a busy machine has its own pace
        lab.page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells') }")
        lab.wait_until_idle()
        assert lab.printed_errors() == []
        yield lab


@pytest.fixture
def many(lab_page):
    write_notebook(lab_page.server.folder / MANY, WORK, CHECK)
    with lab_page.opened(MANY) as lab:
        yield lab


@needs_subshells
def test_many_allocations_are_watched_while_they_are_made_and_none_is_lost(many):
    many.start_cell(0)
    many.page.locator(".bfcviz-dashboard .js-plotly-plot .nsewdrag").first.wait_for(state="attached")
    board, go = (
        Board(many, "w.dashboard.inspector"),
        many.page.get_by_role("button", name="go", exact=True),
    )
    go.click()
    seen = set()
    for _ in range(3):
        board.wait_for(f"const now = {IMAGE}; return now && !args[0].includes(now)", sorted(seen))
        seen.add(board.page.evaluate(f"plot => {IMAGE}", board.plot()))
    assert many.page.evaluate(RUNNING, 0)  # it was, all the while
    go.click()
    many.page.wait_for_function(f"number => !({RUNNING})(number)", arg=0)
    many.start_cell(1)
    many.wait_until_idle()
    assert many.python("[made >= 300_000, clicked]") == [True, 2]
    assert many.python("[int(recorded) - made, heap.stats().num_allocs - made, bool(same)]") == [
        0,
        0,
        True,
    ]
    assert many.python("[trace.origin.status, heap.rejected_frees, len(w.errors)]") == ["complete", 0, 0]
    board.wait_for_step(many.python("len(trace)"))
    assert "NumPy is served" in many.page.locator(".bfcviz-way").inner_text()


def test_the_notebook_shows_the_heap_while_it_trains_and_where_it_breaks(notebook):
    page = notebook.page
    assert "NumPy is served" in page.locator(".bfcviz-way").inner_text()
    notices = page.locator(".bfcviz-notices").inner_text()
    assert ", above 30.0 MiB" in notices
    report = page.locator(".bfcviz-report").first.inner_text()
    assert "Peak" in report
    assert "forward" in report
    failure = page.locator(".bfcviz-failure").inner_text()
    for fact in ("OOM", "largest free chunk", "fragmented by", "failed to allocate"):
        assert fact in failure
    board = Board(notebook, "w.dashboard.inspector")
    board.wait_for_step(notebook.python("bfcviz.peak(w.trace)"))
