"""How fast the Inspector answers, in a real JupyterLab page and in its kernel.

    python tests/bench/dashboard.py [--only "100k,10M events"] [--runs 9]

End to end: from the click or the mouse's release in the page (headless Chromium) to the moment plotly has drawn
the new picture (`plotly_afterplot`), and to the second animation frame after it, when it is on screen. In the
kernel: from the change of the trait to the last message sent, and what those messages weigh. Medians, and the worst
in brackets.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from dashboard_heap import far_steps, record  # noqa: E402
from integration.browser.board import Board, write_notebook  # noqa: E402
from integration.browser.lab import BROWSER_OPTIONS, Lab, find_browser, serve  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

CASES = {
    "1k": (1_000, 5_000),
    "10k": (10_000, 50_000),
    "100k": (100_000, 500_000),
    "1M": (1_000_000, 5_000_000),
    "1M events": (4_000, 1_000_000),
    "10M events": (4_000, 10_000_000),
}
"""Name -> chunks and events."""

GOALS = {"all views": (250, 40), "step": (150, None), "zoom": (250, None)}
"""What -> ms end to end and CPU ms in the kernel, at 100,000 chunks."""

_VIEWS = {"all views": "everything", "step": "memory", "zoom": "memory"}

_CELL = """
import sys
sys.path.insert(0, {here!r})
import bfcviz
import dashboard_heap as bench

seen = bfcviz.Inspector(bfcviz.open({name!r}), step={step})
seen
"""

# What is seen of the picture: any change of data moves it, a change of ranges alone (plotly's own zoom) does not.
_WATCH = """plot => {
  const bench = (window.bench = {kind: null, begun: null, drawn: null, shown: null});
  const seen = () => JSON.stringify(
    plot.data.filter(t => t.visible !== false && (bench.kind === 'click' ? t.name === 'this step' : t.xaxis === 'x'))
      .map(t => [t.x?.[0], t.x?.length, t.x0, t.dx, t.source?.length, t.source?.slice(-99)]));
  bench.arm = kind => { Object.assign(bench, {kind, begun: null, drawn: null, shown: null}); bench.before = seen(); };
  for (const kind of ['click', 'mouseup'])
    document.addEventListener(kind, event => { if (kind === bench.kind) bench.begun ??= event.timeStamp; }, true);
  plot.on('plotly_afterplot', () => {
    if (bench.begun === null || bench.drawn !== null || seen() === bench.before) return;
    bench.drawn = performance.now();
    requestAnimationFrame(() => requestAnimationFrame(() => { bench.shown = performance.now(); }));
  });
}"""

# An element that says itself where it leads, as the rows of the lists do.
_LINK = """([view, step]) => {
  const link = document.createElement('i');
  link.dataset.bfcviz = JSON.stringify({do: 'step', step});
  view.append(link);
  link.click();
  link.remove();
}"""


class Stopwatch:
    """Times what happens in the page of a Board."""

    def __init__(self, board: Board) -> None:
        self.board = board
        board.page.evaluate(_WATCH, board.plot())

    def time(self, kind: str, do) -> tuple[float, float]:
        """Milliseconds from the event that `do` causes to the picture drawn, and on screen."""
        page = self.board.page
        page.evaluate("kind => bench.arm(kind)", kind)
        do()
        page.wait_for_function("() => bench.shown !== null")
        found = page.evaluate("() => [bench.drawn - bench.begun, bench.shown - bench.begun]")
        self.board.get("step")  # the kernel has done all it had to
        return tuple(found)


def all_views(board: Board, watch: Stopwatch, steps: list[int]) -> list[tuple[float, float]]:
    view = board.view.element_handle()
    return [watch.time("click", lambda step=step: board.page.evaluate(_LINK, [view, step])) for step in steps]


def step(board: Board, watch: Stopwatch, steps: list[int]) -> list[tuple[float, float]]:
    return [watch.time("click", lambda: board.press("forward")) for _ in steps]


def zoom(board: Board, watch: Stopwatch, steps: list[int]) -> list[tuple[float, float]]:
    found = []
    for run in range(len(steps)):
        left, top = 0.1 + 0.05 * (run % 8), 0.1 + 0.05 * (run % 9)
        corners = (left, top), (left + 0.25, top + 0.25)
        found.append(watch.time("mouseup", lambda corners=corners: board.drag("region_map", *corners)))
        board.key("z")
        board.wait_for("return plot._fullLayout.xaxis.range[0] === 0")
        board.get("step")
    return found


MEASURES = {"all views": all_views, "step": step, "zoom": zoom}


def measure(lab: Lab, name: str, runs: int) -> None:
    """One case: prints its rows."""
    chunks, events = CASES[name]
    board = Board(lab, "seen").wait_until_drawn()
    last = board.lab.python("len(seen.panel_data.trace)")
    steps = far_steps(last, min(chunks * 5 // 2, last // 2), runs + 2)
    for what, time_in_page in MEASURES.items():
        board.set(views=_VIEWS[what])
        board.go_to(steps[-1])
        watch = Stopwatch(board)
        time_in_page(board, watch, steps[-2:])  # warm
        drawn, shown = zip(*time_in_page(board, watch, steps[:-2]), strict=True)
        kernel = board.lab.python(_kernel_code(what, steps[:-2]))
        held = board.get("panel_data.model.chunks().size")
        goal, kernel_goal = GOALS[what] if name == "100k" else (None, None)
        ends = f"| {_ms(drawn)}{_goal(goal)} | {_ms(shown)} "
        inside = f"| {_ms(kernel['wall'])} | {_ms(kernel['cpu'])}{_goal(kernel_goal)} "
        weight = f"| {statistics.median(kernel['kB']):,.0f} | {statistics.median(kernel['messages']):.0f} |"
        print(f"| {held:,} | {events:,} | {what} {ends}{inside}{weight}", flush=True)


def _kernel_code(what: str, steps: list[int]) -> str:
    if what == "zoom":
        return f"bench.zooms_cost(seen, {len(steps)})"
    if what == "step":
        steps = [steps[0] + run for run in range(len(steps) + 1)]
        return f"{{name: values[1:] for name, values in bench.steps_cost(seen, {steps}).items()}}"
    return f"bench.steps_cost(seen, {steps})"


def _ms(values) -> str:
    return f"{statistics.median(values):.0f} ({max(values):.0f})"


def _goal(ms: int | None) -> str:
    return "" if ms is None else f" goal {ms}"


def run_case(browser, name: str, runs: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        served, home = Path(place) / "served", Path(place) / "home"
        served.mkdir()
        home.mkdir()
        record(served / "run", *CASES[name])
        write_notebook(
            served / "bench.ipynb", _CELL.format(here=str(HERE.parent), name="run", step=CASES[name][0])
        )
        with serve(served, home) as server, Lab(browser, server).opened("bench.ipynb") as lab:
            lab.run_all()
            measure(lab, name, runs)


def main(options: argparse.Namespace) -> None:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load before: {load}; {options.runs} runs; ms, median (worst)\n")
    print("| chunks | events | what | drawn | on screen | kernel, wall | kernel, CPU | kB | messages |")
    print("|---:|---:|---|---:|---:|---:|---:|---:|---:|")
    with sync_playwright() as playwright:
        # Without --disable-gpu Chromium plays one in software, where there is none.
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=[*BROWSER_OPTIONS, "--disable-gpu"]
        )
        for name in options.only.split(",") if options.only else CASES:
            run_case(browser, name, options.runs)
        browser.close()
    print(f"\nload after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help=f"cases, by commas: {', '.join(CASES)}")
    parser.add_argument("--runs", type=int, default=9, help="of each")
    main(parser.parse_args())
