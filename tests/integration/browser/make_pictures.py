"""Makes notebooks/pictures/*.png: dashboards of the bundled runs in a real JupyterLab page.

    python tests/integration/browser/make_pictures.py [NAME ...]

hero           notebook 02's failed request, coloured by holder
stepping       a real run where its heap is fragmented the worst, and what that step did
live           the same run's requests, served by a heap at this moment
zoomed         three training steps, chunk by chunk: which operation used which addresses at which time
fragmentation  the share of free memory that no request of 8 MiB could use, in the dark
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from integration.browser.board import Board, write_notebook  # noqa: E402
from integration.browser.lab import BROWSER_OPTIONS, Lab, find_browser, serve  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

PICTURES = ROOT / "notebooks" / "pictures"
SIZE = (1400, 1000)
HERO = ROOT / "notebooks" / "02_watch_live.ipynb"

OPEN = """
import time
from dataclasses import replace

import bfcviz
from bfcviz.events.schema import Kind
from bfcviz.model.find_steps import worst_fragmentation

run = bfcviz.open(bfcviz.sample("conv"))
"""
STEPPING = """
view = bfcviz.Inspector(run, step=worst_fragmentation(run))
view
"""
LIVE = """
log = bfcviz.EventLog(1 << 18)
options = bfcviz.AllocatorOptions(allow_growth=True)
heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 128 << 20, options, log=log)

def train(first, last):
    held = {}
    for event in run.read(first, last):
        if event["kind"] == Kind.ALLOCATE:
            name = run.labels.name(int(event["label"]))
            held[int(event["seq"])] = heap.allocate(int(event["requested"]), label=name)
        elif event["kind"] == Kind.FREE and int(event["other"]) in held:
            heap.free(held.pop(int(event["other"])))
        time.sleep(0.001)
    for address in held.values():
        heap.free(address)

def train_on():
    for _ in range(50):
        train(33_000, 35_900)

def pause_above(least):
    while heap.stats().bytes_in_use < least:
        time.sleep(0.0005)
    live.pause()  # map and numbers then show the same moment

live = bfcviz.LiveDashboard(heap)
view = live.inspector
live
----
training = live.run(train_on)
"""
ZOOMED = """
view = bfcviz.Inspector(run, step=33_817, views="address_time", colour="label")
view.look = replace(view.look, steps=(33_000, 36_000), addresses=(62 << 20, 126 << 20))
view
"""
FRAGMENTATION = """
view = bfcviz.Inspector(run, step=worst_fragmentation(run), wanted=8 << 20)
view.look = replace(view.look, steps=(32_800, 36_200))
view
"""

SHOW_FAILURE = """
view = bfcviz.Inspector(folder)
view
"""

LIVELY = ".bfcviz-live :text-matches('live: ([5-9]|[1-9][0-9]),[0-9]+ events, [1-9].* [1-9][0-9.]* frames')"


@dataclass(frozen=True)
class Shot:
    """One picture: its cells, and whether the lab is dark."""

    cells: str
    dark: bool = False


def _failure_of_notebook_02():
    """The cells of the notebook that train a network until memory runs out, and its dashboard."""
    cells = [cell.source for cell in nbformat.read(HERO, as_version=4).cells if cell.cell_type == "code"]
    failing = next(number for number, cell in enumerate(cells) if "MemoryError" in cell)
    watched = next(number for number, cell in enumerate(cells) if "with bfcviz.watch" in cell)
    return "----".join(
        [*cells[:watched], cells[failing].replace("tempfile.mkdtemp()", '"run.bfc"'), SHOW_FAILURE]
    )


SHOTS = {
    "hero": Shot(_failure_of_notebook_02()),
    "stepping": Shot(STEPPING),
    "live": Shot(LIVE),
    "zoomed": Shot(ZOOMED),
    "fragmentation": Shot(FRAGMENTATION, dark=True),
}


def main():
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=BROWSER_OPTIONS)
        for name in sys.argv[1:] or SHOTS:
            with tempfile.TemporaryDirectory() as place:
                _take(browser, Path(place), SHOTS[name], PICTURES / f"{name}.png")
            print(f"{name}.png: {(PICTURES / f'{name}.png').stat().st_size / 1024:.0f} KiB")
        browser.close()


def _take(browser, place, shot, picture):
    served, home = place / "served", place / "home"
    served.mkdir()
    home.mkdir()
    write_notebook(served / "shot.ipynb", OPEN, *shot.cells.split("----"))
    with (
        serve(served, home, dark=shot.dark) as server,
        Lab(browser, server).opened("shot.ipynb", size=SIZE) as lab,
    ):
        lab.run_all()
        lab.page.evaluate("() => jupyterapp.commands.execute('application:toggle-left-area')")
        board = Board(lab, "view")
        if "live" in shot.cells:
            lab.page.locator(LIVELY).wait_for()
            lab.python("pause_above(20 << 20)")
            lab.page.locator(".bfcviz-live :text-matches('paused: ')").wait_for()
        board.view.locator(".js-plotly-plot .nsewdrag").first.wait_for(state="attached")
        board.view.locator(".bfcviz-headline :text-matches('.')").first.wait_for()
        board.wait_for(f"return plot._fullLayout.paper_bgcolor === '{'#111111' if shot.dark else '#FFFFFF'}'")
        whole = lab.page.locator(
            ".jp-OutputArea-output:has(> .bfcviz-dashboard), .widget-vbox:has(> .bfcviz-dashboard)"
        )
        shown = (whole if whole.count() else board.view).first
        shown.scroll_into_view_if_needed()
        board.wait_for(
            "const width = element => element.getBoundingClientRect().width;"
            "return Math.abs(width(plot.querySelector('.main-svg')) - width(args[0])) < 40",
            board.view.element_handle(),
        )
        lab.page.mouse.move(0, 0)
        shown.screenshot(path=picture)


if __name__ == "__main__":
    main()
