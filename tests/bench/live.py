"""What a LiveDashboard costs the workload beside it: `python tests/bench/live.py [--seconds 3] [--rounds 5]`.

Runs itself in a notebook kernel, so that every message to the page is made and sent as in a notebook; with `--page` a
page of JupyterLab, in headless Chromium, shows it and answers. In one run, slices without and with the dashboard take
turns, and all of each kind are compared: by the clock, which on a machine with other work to do says little; and by
CPU time: what all threads but the workload's took, as a share of one core. That is the most that a workload which needs
the interpreter all the time can lose to it, but for the switching.
The last table says what one picture costs, on a heap that rests.
"""

# ruff: noqa: PLC0415  the kernel imports bfcviz, not the process that starts it

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
WARM_UP = 4  # slices
BUDGET = 0.08  # what LiveDashboard has unless told otherwise
PLAIN_TURN, ARRAY_TURN = 40, 8  # requests between two looks at the clock


class Heap:
    """A heap with some thousands of chunks, and one more request after the other."""

    def __init__(self, chunks: int) -> None:
        from bfcviz.allocator.bfc_allocator import BFCAllocator
        from bfcviz.allocator.sub_allocators import SimulatedSubAllocator

        self.random = random.Random(1)
        self.bfc = BFCAllocator(SimulatedSubAllocator(), 1 << 34)
        self.labels = [self.bfc.labels.intern(f"layer_{i}/MatMul") for i in range(20)]
        self.held = [self.request() for _ in range(chunks)]

    def request(self) -> int:
        size = int(self.random.lognormvariate(9, 2)) + 1
        return self.bfc.allocate(size, label=self.random.choice(self.labels))

    def turn(self) -> None:
        place = self.random.randrange(len(self.held))
        self.bfc.free(self.held[place])
        self.held[place] = self.request()


def plain(heap: Heap, until: float) -> int:
    """Python all the time, with hardly anything between two requests."""
    return _python(heap, until, 200)


def script(heap: Heap, until: float) -> int:
    """Python all the time: what training scripts do between kernels."""
    return _python(heap, until, 2000)


def _python(heap: Heap, until: float, squares: int) -> int:
    turns = 0
    while time.perf_counter() < until:
        for _ in range(PLAIN_TURN):
            heap.turn()
            sum(i * i for i in range(squares))
        turns += PLAIN_TURN
    return turns


def arrays(heap: Heap, until: float) -> int:
    """NumPy nearly all the time, without the interpreter's lock."""
    left, right = np.ones(1 << 18), np.ones(1 << 18)
    turns = 0
    while time.perf_counter() < until:
        for _ in range(ARRAY_TURN):
            heap.turn()
            np.multiply(left, right, out=left)
            np.sqrt(left, out=left)
        turns += ARRAY_TURN
    return turns


class Slices:
    """What was done in slices of one kind."""

    def __init__(self) -> None:
        self.turns = self.seconds = self.beside_s = 0.0

    def add(self, work, heap: Heap, seconds: float) -> None:
        began, began_cpu = time.perf_counter(), _beside()
        self.turns += work(heap, began + seconds)
        self.seconds += time.perf_counter() - began
        self.beside_s += _beside() - began_cpu

    @property
    def speed(self) -> float:
        return self.turns / self.seconds

    @property
    def beside(self) -> float:
        return self.beside_s / self.seconds


def _beside() -> float:
    """CPU seconds of all threads but this one."""
    return time.process_time() - time.thread_time()


def compare(work, budget: float, options: argparse.Namespace) -> str:
    from bfcviz.dashboard.live_dashboard import LiveDashboard

    heap = Heap(options.chunks)
    dashboard = LiveDashboard(heap.bfc, budget=budget, rate=options.rate, start=False)
    if options.page:
        from IPython.display import display

        display(dashboard)
    slices = {False: Slices(), True: Slices()}
    drawn = events = lost = 0
    for number in range(2 * options.rounds + WARM_UP):
        on = number % 2 == 1
        dashboard.stop()
        if on:
            dashboard.refresh()  # events of the meantime may be lost: no thread read them
            dashboard.start()
        pictures, head, missed = dashboard.pictures, heap.bfc.log.head, dashboard.trace._source.missed
        # The first ones warm up, and in a page they wait until it shows something.
        (slices[on] if number >= WARM_UP else Slices()).add(work, heap, options.seconds)
        if on and number >= WARM_UP:
            drawn += dashboard.pictures - pictures
            events += heap.bfc.log.head - head
            lost += dashboard.trace._source.missed - missed
    dashboard.stop()
    error = dashboard.renderer.error
    if not options.page:
        dashboard.close()
    off, on = slices[False], slices[True]
    return (
        f"| {work.__name__} | {budget:.0%} | {off.speed:,.0f} | {1 - on.speed / off.speed:.1%} | "
        f"{on.beside - off.beside:.1%} | {drawn / on.seconds:.1f} | {events / on.seconds:,.0f} | "
        f"{lost} | {error or '-'} |"
    )


def anatomy(options: argparse.Namespace) -> None:
    """What each kind of picture costs, and how much of it each part."""
    from bfcviz.dashboard.live_dashboard import LiveDashboard
    from bfcviz.dashboard.render_loop import FrameKind

    heap = Heap(options.chunks)
    dashboard = LiveDashboard(heap.bfc, start=False)
    costs = {frame: [] for frame in (FrameKind.MAP, FrameKind.MOVING, FrameKind.WHOLE)}
    for number in range(80):
        frame = FrameKind.MAP if number % 10 else (FrameKind.MOVING, FrameKind.WHOLE)[number % 20 == 0]
        if frame is FrameKind.WHOLE:
            dashboard.inspector.trace_grew(moving=True)  # where the moving map starts
        for _ in range(2000):
            heap.turn()
        dashboard.trace.refresh()
        if frame is FrameKind.MAP and number % 20 == 1:
            dashboard.inspector.trace_grew(moving=True)
            heap.turn()
            dashboard.trace.refresh()
        began = time.thread_time()
        dashboard.draw(frame)
        costs[frame].append((time.thread_time() - began) * 1000)
    dashboard.close()
    print("\n| picture | CPU ms, median | least |\n|---|---|---|")
    for frame, found in costs.items():
        print(f"| {frame.value} | {statistics.median(found):.1f} | {min(found):.1f} |")


def main(options: argparse.Namespace) -> None:
    print(f"{options.rate:g} pictures a second at most, {options.chunks:,} chunks\n")
    print(
        "| workload | budget | off, turns/s | slower by the clock | beside it, of a core | pictures/s | events/s | "
        "events lost | error |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for work in (plain, script, arrays):
        print(compare(work, BUDGET, options))
    anatomy(options)


def code(options: argparse.Namespace) -> str:
    """What runs `main` in a kernel."""
    return (
        f"import sys, json, argparse; sys.path[:0] = {[str(HERE.parent), str(HERE.parents[2])]!r}; import live\n"
        f"live.main(argparse.Namespace(**json.loads({json.dumps(vars(options))!r})))"
    )


def in_page(options: argparse.Namespace) -> None:
    """Run `main` in a notebook that a page shows, and print what it prints."""
    sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1])]
    from integration.browser.board import write_notebook
    from integration.browser.lab import BROWSER_OPTIONS, Lab, find_browser, serve
    from playwright.sync_api import sync_playwright

    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as home,
        sync_playwright() as play,
    ):
        write_notebook(Path(folder) / "live.ipynb", [code(options)])
        browser = play.chromium.launch(executable_path=find_browser(), args=BROWSER_OPTIONS)
        with serve(folder, Path(home)) as server, Lab(browser, server).opened("live.ipynb") as lab:
            lab.page.set_default_timeout(600_000)
            lab.start_cell(0)
            lab.page.wait_for_function(_ENDED)
            print(lab.page.evaluate(_PRINTED))


_PRINTED = """() => {
  const outputs = jupyterapp.shell.currentWidget.content.widgets[0].model.outputs.toJSON();
  return outputs.map(output => [output.text ?? output.traceback ?? []].flat().join('')).join('');
}"""

_ENDED = """() => jupyterapp.shell.currentWidget.content.widgets[0].model.executionCount !== null
  && jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"""


def in_kernel(options: argparse.Namespace) -> None:
    """Run `main` in a kernel of its own and print what it prints."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")

    def show(message) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            print(content["text"], end="", flush=True)
        elif message["msg_type"] == "error":
            print("\n".join(content["traceback"]), file=sys.stderr)

    try:
        client.execute_interactive(code(options), output_hook=show, timeout=600)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a slice")
    parser.add_argument("--rounds", type=int, default=5, help="slices of each kind")
    parser.add_argument("--rate", type=float, default=10.0, help="pictures a second")
    parser.add_argument("--chunks", type=int, default=4000)
    parser.add_argument("--page", action="store_true", help="show it in a page of JupyterLab")
    chosen = parser.parse_args()
    in_page(chosen) if chosen.page else in_kernel(chosen)
