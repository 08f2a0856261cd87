"""What is recorded with an allocation, and its cost: `python tests/bench/capture_cost.py [--rounds 9]`.

First the share of a training step: steps of a small network (numpy_served.py) take turns, also 30 Python calls deep as
in a framework. The 10 % quantiles are compared, because other programs disturb the rest; the share is the median over
rounds, each with new heaps. Then the cost of one allocation:

NumPy makes and drops small arrays, so many calls deep; slices of the work take turns: NumPy alone, and served with
nothing, the label in force, or the stack recorded, to a ring. Nanoseconds of the processor for an array made and
dropped, the median over rounds. "New" is a stack that was not seen before: its text is put together and interned.
"""

import argparse
import contextlib
import statistics
import time
from functools import partial

import numpy_served  # first: NumPy reads the number of threads when it is imported
from numpy_served import np

from bfcviz.events.label_table import Labels
from bfcviz.live.labels_and_marks import label
from bfcviz.live.numpy import serve_numpy
from bfcviz.live.stack_capture import Stacks

MODES = ("alone", "nothing", "label", "stack")
ARRAYS = 20_000
DEPTHS = (1, 10, 30, 100)


def make(depth, count):
    """Make `count` arrays that many calls deep."""
    if depth > 1:
        return make(depth - 1, count)
    began = time.process_time_ns()
    for _ in range(count):
        np.empty(1000)
    return (time.process_time_ns() - began) / count


def make_once(depth):
    """Make one array, from the bottom up: every frame is new to the walk."""
    return make_once(depth - 1) if depth > 1 else np.empty(1000)


def times_of(depth, rounds):
    """Mode -> nanoseconds an array, where one place makes many of them."""
    services = {mode: serve_numpy("64MiB", capture=_capture(mode)) for mode in MODES if mode != "alone"}
    times = {mode: [] for mode in MODES}
    for number in range(rounds + 1):
        for mode in MODES[number % 4 :] + MODES[: number % 4]:
            with services.get(mode, contextlib.nullcontext()), label("forward"):
                times[mode].append(make(depth, ARRAYS))
    return {mode: statistics.median(found[1:]) for mode, found in times.items()}


def called_anew(depth, rounds):
    """Mode -> nanoseconds for the calls and one array."""
    services = {mode: serve_numpy("64MiB", capture=_capture(mode)) for mode in MODES if mode != "alone"}
    times = {mode: [] for mode in MODES}
    for number in range(rounds + 1):
        for mode in MODES[number % 4 :] + MODES[: number % 4]:
            with services.get(mode, contextlib.nullcontext()), label("forward"):
                began = time.process_time_ns()
                for _ in range(ARRAYS // depth):
                    make_once(depth)
                times[mode].append((time.process_time_ns() - began) / (ARRAYS // depth))
    return {mode: statistics.median(found[1:]) for mode, found in times.items()}


def new_stacks(count):
    """Nanoseconds for an array of a stack that is new, 8 calls deep, less one that is known."""
    code = compile("\n".join(f"if n == {n}: make_once(8)" for n in range(count)), "new", "exec")
    cost = {}
    with serve_numpy("64MiB", capture="stack", labels=Labels()):
        for name in ("new", "known"):
            began = time.process_time_ns()
            for n in range(count):
                exec(code, {"n": n, "make_once": make_once})  # noqa: S102
            cost[name] = (time.process_time_ns() - began) / count
    return cost["new"] - cost["known"]


def deep(depth, work):
    """Do the work that many calls deep."""
    return deep(depth - 1, work) if depth > 1 else work()


def shares_of(batch, depth, rounds):
    """Microseconds of a training step with labels, and with stacks; its allocations; and the median share added."""
    modes = ("label", "stack")
    work = partial(deep, depth, numpy_served.train(batch, 1))
    found = {mode: [] for mode in modes}
    for _ in range(rounds):  # new heaps: where its arrays lie changes the time of a step, too
        services = {mode: serve_numpy("64MiB", capture=mode) for mode in modes}
        times = {mode: [] for mode in modes}
        for number in range(80):
            for mode in modes[number % 2 :] + modes[: number % 2]:
                with services[mode]:
                    times[mode].append(numpy_served.timed(work)[1] * 1e6)
        for mode in modes:
            found[mode].append(np.percentile(times[mode], 10))
    made = services["label"].allocator.stats().num_allocs / 80
    shares = [stack / label - 1 for label, stack in zip(*found.values(), strict=True)]
    return *(statistics.median(found[mode]) for mode in modes), made, statistics.median(shares)


def _capture(mode):
    return Stacks(depth=128) if mode == "stack" else mode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(f"NumPy {np.__version__}, {rounds} rounds\n")
    print("| training | calls deep | allocations | a step, label | a step, stack | stack costs |")
    print("|---|---:|---:|---:|---:|---:|")
    for batch in (256, 32, 4):
        for depth in (1, 30):
            label_us, stack_us, made, share = shares_of(batch, depth, rounds)
            cells = f"{depth} | {made:.0f} | {label_us:,.0f} µs | {stack_us:,.0f} µs"
            print(f"| batch {batch} | {cells} | {share:+.1%} |", flush=True)
    print()
    print("| calls deep | each array | NumPy alone | nothing | label | stack | label costs | stack costs |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for depth in DEPTHS:
        for how, measure in (("from one place", times_of), ("called anew", called_anew)):
            found = measure(depth, rounds)
            cells = [f"{found[mode]:,.0f} ns" for mode in MODES]
            cells += [f"{found[mode] - found['nothing']:+,.0f} ns" for mode in ("label", "stack")]
            print(f"| {depth} | {how} | {' | '.join(cells)} |", flush=True)
    print(f"\nA new stack, 8 calls deep: {new_stacks(500) / 1e3:.1f} µs more")


if __name__ == "__main__":
    main()
