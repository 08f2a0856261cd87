"""What `bfcviz.watch` costs NumPy: `python tests/bench/watch_numpy.py [--rounds 15] [--page]`.

In one run, slices of the same work take turns: NumPy alone, recorded to a folder with no dashboard drawing, and
recorded with the dashboard open; the order goes round. It runs in a notebook kernel, so that every message to the page
is made and sent; with `--page` a page of JupyterLab, in headless Chromium on the same machine, shows it. How much
slower a mode is: the median over rounds of its seconds by those of NumPy alone in the same round, of the wall clock
and of the processor (all threads of the kernel). The matrix products run in one thread. The last line compares heap and
recording: no allocation may be lost.
"""

# ruff: noqa: PLC0415  the kernel imports bfcviz, not the process that starts it

import os

# NumPy reads these when it is imported.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
MODES = ("NumPy alone", "recorded", "recorded, dashboard open")
GOALS = {"recorded": "3 %", "recorded, dashboard open": "5 % more"}


class Slices:
    """What was measured in slices of one mode."""

    def __init__(self):
        self.times, self.allocations, self.events, self.pictures = [], 0, 0, 0

    def seconds(self, which):
        """Of each round but the first, which warmed up; which: 0, the wall clock; 1, the processor."""
        return [times[which] for times in self.times[1:]]


def measure(w, mode, work, slices):
    """One slice."""
    from numpy_served import timed

    from bfcviz.live.numpy import unserved

    heap, board = w.sources[0].allocator, w.dashboard
    board.stop()
    if mode == "recorded, dashboard open":
        board.refresh()  # what came meanwhile is not this slice's
        board.start()
    before = heap.stats().num_allocs, heap.log.head, board.pictures
    with unserved() if mode == "NumPy alone" else contextlib.nullcontext():
        slices.times.append(timed(work))
    after = heap.stats().num_allocs, heap.log.head, board.pictures
    if len(slices.times) > 1:
        slices.allocations += after[0] - before[0]
        slices.events += after[1] - before[1]
        slices.pictures += after[2] - before[2]


def report(name, measured):
    """The rows of one piece of work."""
    plain = measured["NumPy alone"]
    for mode, slices in measured.items():
        slower = [
            statistics.median(
                mine / alone for mine, alone in zip(slices.seconds(i), plain.seconds(i), strict=True)
            )
            - 1
            for i in (0, 1)
        ]
        wall = slices.seconds(0)
        print(
            f"| {name} | {mode} | {statistics.median(wall):.2f} s | {slower[0]:+.1%} | {slower[1]:+.1%} | "
            f"{GOALS.get(mode, '')} | {slices.allocations:,} | {slices.events / sum(wall):,.0f} | "
            f"{slices.pictures / sum(wall):.1f} |",
            flush=True,
        )


def check(w):
    """Whether the recording alone gives the heap."""
    import numpy as np

    from bfcviz.events.schema import Kind
    from bfcviz.model import Model

    heap, trace = w.sources[0].allocator, w.trace
    made = sum(int(np.count_nonzero(block["kind"] == Kind.ALLOCATE)) for block in trace.blocks())
    model = Model(trace)
    model.seek(len(trace))
    ours, theirs = heap.memory_map(), model.chunks()
    same = all(np.array_equal(ours[name], theirs[name]) for name in ("address", "size", "in_use"))
    print(f"\n{heap.stats().num_allocs:,} allocations served, {made:,} recorded; model == heap: {same}")


def main(options):
    import numpy as np
    from numpy_served import train

    import bfcviz

    print(f"NumPy {np.__version__}, {options.rounds} rounds, page: {'yes' if options.page else 'no'}\n")
    print("| work | mode | a slice | wall clock | processor | goal | allocations | events/s | pictures/s |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    works = {
        "training, batch 256": train(256, options.steps // 6),
        "training, batch 32": train(32, options.steps),
    }
    with bfcviz.watch(numpy=True, limit="1GiB", path=Path(tempfile.mkdtemp()) / "run") as w:
        for name, work in works.items():
            measured = {mode: Slices() for mode in MODES}
            for number in range(options.rounds + 1):
                for mode in MODES[number % 3 :] + MODES[: number % 3]:
                    measure(w, mode, work, measured[mode])
            report(name, measured)
    check(w)


def code(options):
    """What runs `main` in a kernel."""
    return (
        f"import sys, json, argparse; sys.path[:0] = {[str(HERE.parent), str(HERE.parents[2])]!r}\n"
        f"import watch_numpy\n"
        f"watch_numpy.main(argparse.Namespace(**json.loads({json.dumps(vars(options))!r})))"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--steps", type=int, default=1500, help="of a slice with batch 32; a sixth of it with 256"
    )
    parser.add_argument("--page", action="store_true", help="show it in a page of JupyterLab")
    chosen = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    import live

    live.code = code
    live.in_page(chosen) if chosen.page else live.in_kernel(chosen)
