"""What `bfcviz.flight_recorder` costs: `python tests/bench/flight_overhead.py [--torch] [--rounds 400]`.

In one process, short slices of the same training take turns: alone, and with what the recorder adds to it. Of NumPy
that is the heap that serves it, of PyTorch (`--torch`, on a GPU, or on a driver that stands in for one) the history
that PyTorch keeps itself. Seconds are of the processor, which other programs of the machine disturb less; what it costs
is the median over rounds of the seconds by those of the training alone in the same round. Beside the training run the
threads of the recorder: their seconds of the processor, by the wall clock, as the kernel counts them (Linux).
"""

import argparse
import contextlib
import gc
import statistics
import tempfile
import threading
import time
from pathlib import Path

from numpy_served import Network  # first: it sets the threads of matrix products

import bfcviz
from bfcviz.live.numpy import unserved


def measure(ways, step, steps, rounds, clock):
    """Way -> its seconds a step in each round; the ways take turns."""
    times = {way: [] for way in ways}
    for number in range(rounds):
        for way in [*ways][:: 1 if number % 2 else -1]:
            with ways[way]():
                step()
                began = clock()
                for _ in range(steps):
                    step()
                times[way].append((clock() - began) / steps)
    return times


def report(name, times):
    """One row: what comes first alone, and then with the recorder."""
    alone, recorded = times.values()
    slower = sorted(mine / plain - 1 for mine, plain in zip(recorded, alone, strict=True))
    low, middle, high = (slower[len(slower) * part // 4] for part in (1, 2, 3))
    seconds = " | ".join(f"{statistics.median(each) * 1e6:,.0f} us" for each in times.values())
    print(f"| {name} | {seconds} | {middle:+.2%} | {low:+.1%} to {high:+.1%} |", flush=True)


def report_threads(step, seconds):
    """What the threads of the recorder take beside a training."""
    named = {thread.native_id: thread.name for thread in threading.enumerate()}
    ours = {number: name for number, name in named.items() if name.startswith("bfcviz")}

    def used():
        return {n: int(Path(f"/proc/self/task/{n}/schedstat").read_text().split()[0]) for n in ours}

    before, began = used(), time.perf_counter()
    while time.perf_counter() - began < seconds:
        step()
    took = time.perf_counter() - began
    for number, after in used().items():
        print(f"    {ours[number]}: {(after - before[number]) / 1e9 / took:.2%} of a processor")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=10, help="of the threads' measurement")
    parser.add_argument("--torch", action="store_true", help="train PyTorch instead of NumPy")
    options = parser.parse_args()
    gc.disable()
    print("| training | a step alone | with the recorder | slower, median | middle half |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        (torch_rows if options.torch else numpy_rows)(options, {"folder": folder, "ask_by": None})


def numpy_rows(options, recorder):
    for batch, steps in ((256, 2), (32, 8)):
        step = Network(batch).step
        with bfcviz.flight_recorder(numpy=True, **recorder):
            ways = {"alone": unserved, "recorded": contextlib.nullcontext}
            report(f"NumPy, batch {batch}", measure(ways, step, steps, options.rounds, time.thread_time))
            report_threads(step, options.seconds)


def torch_rows(options, recorder):
    import torch  # noqa: PLC0415  only with --torch
    from torch_overhead import network_step  # noqa: PLC0415

    from bfcviz.live.torch.torch_api import begin_history, end_history  # noqa: PLC0415

    @contextlib.contextmanager
    def history():
        begin_history(torch, stacks=False, max_entries=100_000)  # as the recorder
        yield
        end_history(torch)

    train = network_step(torch)

    def step():
        train(20)

    measure({"alone": contextlib.nullcontext}, step, 100, 1, time.process_time)
    # Of all threads: PyTorch's backward pass has one of its own.
    ways = {"alone": contextlib.nullcontext, "recorded": history}
    report("PyTorch", measure(ways, step, 10, options.rounds, time.process_time))
    with bfcviz.flight_recorder(torch=True, **recorder):
        report_threads(step, options.seconds)


if __name__ == "__main__":
    main()
