"""What a LiveDashboard costs the workload beside it: `python tests/bench/live.py [--seconds 1] [--rounds 12]`.

Runs itself in a notebook kernel, so that every message to the page is made and sent as in a notebook (no page
reads them). In one run, slices without and with the dashboard take turns, and all of each kind are compared.
The last table says where a picture's time goes, on a heap that rests.
"""

# ruff: noqa: PLC0415  the kernel imports bfcviz, not the process that starts it

import argparse
import cProfile
import json
import pstats
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
TOP = 18  # lines of the last table
PLAIN_TURN, ARRAY_TURN = 40, 8  # requests between two looks at the clock


class Heap:
    """A heap with some thousands of chunks, and one more request after the other."""

    def __init__(self, chunks: int) -> None:
        from bfcviz.allocator.bfc import BFCAllocator
        from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
        from bfcviz.events.log import EventLog

        self.random = random.Random(1)
        self.bfc = BFCAllocator(SimulatedSubAllocator(), 1 << 34, log=EventLog(1 << 16))
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
    """Python all the time: what training scripts do between kernels."""
    turns = 0
    while time.perf_counter() < until:
        for _ in range(PLAIN_TURN):
            heap.turn()
            sum(i * i for i in range(200))
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


def compare(work, budget: float, options: argparse.Namespace) -> str:
    from bfcviz.dashboard.live import LiveDashboard

    heap = Heap(options.chunks)
    dashboard = LiveDashboard(heap.bfc, budget=budget, rate=options.rate)
    speeds = {False: [], True: []}
    pictures = events = 0
    costs = []
    for number in range(2 * options.rounds + 2):
        on = number % 2 == 1
        dashboard.resume() if on else dashboard.pause()
        drawn, head, began = dashboard.pictures, heap.bfc.log.head, time.perf_counter()
        turns = work(heap, began + options.seconds)
        took = time.perf_counter() - began
        if number >= 2:  # the first of each warms up
            speeds[on].append(turns / took)
            if on:
                pictures += (dashboard.pictures - drawn) / took / options.rounds
                events += (heap.bfc.log.head - head) / took / options.rounds
                costs.append(dashboard.renderer.pace.cost_s * 1000)
    error = dashboard.renderer.error
    dashboard.close()
    off, on = (statistics.mean(speeds[key]) for key in (False, True))  # a median would skip rare pictures
    return (
        f"| {work.__name__} | {budget:.0%} | {off:,.0f} | {on:,.0f} | {1 - on / off:.1%} | {pictures:.1f} | "
        f"{statistics.median(costs):.1f} | {events:,.0f} | {error or '-'} |"
    )


def anatomy(options: argparse.Namespace) -> None:
    from bfcviz.dashboard.live import LiveDashboard

    heap = Heap(options.chunks)
    dashboard = LiveDashboard(heap.bfc, start=False)
    profile = cProfile.Profile(time.thread_time)
    for number in range(25):
        for _ in range(2000):
            heap.turn()
        if number >= 5:
            profile.enable()
        dashboard.refresh()
        profile.disable()
    dashboard.close()
    rows = pstats.Stats(profile).stats.items()
    ours = sorted(((cumulative, where) for where, (_, _, _, cumulative, _) in rows), reverse=True)
    print("\n| ms a picture, with all it calls (profiled: dearer than alone) | function |\n|---|---|")
    for cumulative, (file, _, name) in [row for row in ours if "bfcviz" in row[1][0]][:TOP]:
        print(f"| {cumulative / 20 * 1000:.1f} | {'/'.join(Path(file).parts[-2:])} {name} |")


def main(options: argparse.Namespace) -> None:
    print(f"{options.rate:g} pictures a second at most, {options.chunks:,} chunks\n")
    print("| workload | budget | off, turns/s | on | slower | pictures/s | CPU ms each | events/s | error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for work in (plain, arrays):
        for budget in (0.05, 1.0):
            print(compare(work, budget, options))
    anatomy(options)


def in_kernel(options: argparse.Namespace) -> None:
    """Run `main` in a kernel of its own and print what it prints."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    code = (
        f"import sys, json, argparse; sys.path[:0] = {[str(HERE.parent), str(HERE.parents[2])]!r}; import live\n"
        f"live.main(argparse.Namespace(**json.loads({json.dumps(vars(options))!r})))"
    )

    def show(message) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            print(content["text"], end="", flush=True)
        elif message["msg_type"] == "error":
            print("\n".join(content["traceback"]), file=sys.stderr)

    try:
        client.execute_interactive(code, output_hook=show, timeout=600)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a slice")
    parser.add_argument("--rounds", type=int, default=12, help="slices of each kind")
    parser.add_argument("--rate", type=float, default=10.0, help="pictures a second")
    parser.add_argument("--chunks", type=int, default=4000)
    in_kernel(parser.parse_args())
