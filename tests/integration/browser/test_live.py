"""A live dashboard in a real page: beside a busy cell, and of another process."""

import pytest
from integration.browser.board import Board, write_notebook
from integration.browser.lab import RUNNING, needs_subshells

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

NOTEBOOK = "live.ipynb"

SHOWN = """
import subprocess
import sys
import time

import bfcviz

log = bfcviz.EventLog(1 << 18)
heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 28, log=log)
live = bfcviz.LiveDashboard(heap)
live
"""
# Ends when it is paused by a click, which must come in while this runs.
BUSY = """
began = time.monotonic()
held = []
while time.monotonic() - began < 50 and not live.renderer.paused:
    held.append(heap.allocate(20_000 + len(held) % 7_000, label="work"))
    if len(held) > 3_000:
        for address in held[::2]:
            heap.free(address)
        held = held[1::2]
    sum(range(2_000))
took = time.monotonic() - began
"""
OTHER = """
work = '''
import sys, time, bfcviz
with bfcviz.Recording("job") as recording:
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 28, log=recording.log, labels=recording.labels)
    print("up", flush=True)
    while not sys.stdin.closed:
        address = heap.allocate(100_000, label="elsewhere")
        time.sleep(0.002)
        heap.free(address)
'''
process = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
process.stdout.readline()
job = bfcviz.LiveDashboard("job")
job
"""

STEP_TEXT = "/step ([0-9,]+) of ([0-9,]+)/.exec(board.querySelector('.bfcviz-step-line').innerText)"
NEWER = f"([board, before]) => Number({STEP_TEXT}[1].replaceAll(',', '')) > before"
LONGER = f"([board, before]) => Number({STEP_TEXT}[2].replaceAll(',', '')) > before"

# The images of the region map that were seen, and how often plotly has drawn.
COUNT = """plot => {
  window.counted = {images: new Set(), drawn: 0};
  plot.on('plotly_afterplot', () => counted.drawn++);
  const look = () => {
    counted.images.add(plot.querySelector('.subplot.xy .imagelayer image')?.getAttribute('href'));
    if (plot.isConnected) requestAnimationFrame(look);  // the page is used on, by other tests
  };
  look();
}"""


@pytest.fixture(scope="module")
def lab(lab_page):
    write_notebook(lab_page.server.folder / NOTEBOOK, SHOWN, BUSY, OTHER)
    with lab_page.opened(NOTEBOOK) as lab:
        yield lab


@needs_subshells
def test_the_picture_moves_and_a_pause_is_answered_while_the_cell_is_busy(lab):
    lab.start_cell(0)
    lab.page.locator(".bfcviz-dashboard .js-plotly-plot .nsewdrag").first.wait_for(state="attached")
    board = Board(lab, "live.inspector").wait_until_drawn()
    lab.start_cell(1)
    handle = board.view.element_handle()
    for least in (0, 2_000, 10_000):
        lab.page.wait_for_function(NEWER, arg=[handle, least])
    lab.page.evaluate(COUNT, board.plot())
    lab.page.wait_for_function("() => counted.images.size > 8")
    assert lab.page.evaluate("() => counted.drawn < counted.images.size / 2")  # the image alone has changed
    assert lab.page.evaluate(RUNNING, 1)
    lab.page.get_by_role("button", name="pause").first.click()
    lab.page.get_by_role("button", name="resume").first.wait_for()
    lab.page.wait_for_function(f"number => !({RUNNING})(number)", arg=1)
    assert lab.python("took") < 45
    assert lab.python("len(held)") > 0


def test_another_process_is_followed_left_and_followed_again(lab):
    lab.start_cell(2)
    lab.page.locator(".bfcviz-dashboard").nth(1).locator(".nsewdrag").first.wait_for(state="attached")
    board = Board(lab, "job.inspector", 1)
    handle = board.view.element_handle()
    lab.page.wait_for_function(NEWER, arg=[handle, 10])
    seen = board.step()
    lab.page.wait_for_function(NEWER, arg=[handle, seen])
    board.press("back")
    board.view.locator(".bfcviz-follow:has-text('follow'):not(:has-text('following'))").wait_for()
    stays, length = board.step(), board.lab.python("len(job.trace)")
    lab.page.wait_for_function(LONGER, arg=[handle, length])
    assert board.step() == stays
    board.press("follow")
    lab.page.wait_for_function(NEWER, arg=[handle, length])
    lab.python("process.kill()")
    lab.page.locator(".bfcviz-live:has-text('ended')").wait_for()
    assert lab.python("job.renderer.error is None")
