"""What serving NumPy from an instrumented heap costs: `python tests/bench/numpy_served.py [--rounds 15]`.

In one run, slices of the same work take turns: NumPy alone, served with events going to a ring in memory, and
served with events going to a folder. Seconds are of the wall clock and of the processor, which other programs of the
machine disturb less; a mode's slowdown is the median over rounds of its processor time by plain NumPy's. The
matrix products run in one thread.
"""

import os

# NumPy reads these when it is imported.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import contextlib
import itertools
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from bfcviz.events.storage.recording import Recording
from bfcviz.live.labels_and_marks import label
from bfcviz.live.numpy import serve_numpy

LAYERS = (784, 512, 256, 10)


class Network:
    """A small classifier: dense layers, ReLU, softmax, trained by plain gradient descent."""

    def __init__(self, batch):
        self.random = np.random.default_rng(1)
        pairs = itertools.pairwise(LAYERS)
        self.weights = [self.random.normal(0, 0.05, pair).astype(np.float32) for pair in pairs]
        self.biases = [np.zeros(n, np.float32) for n in LAYERS[1:]]
        self.inputs = self.random.normal(size=(batch, LAYERS[0])).astype(np.float32)
        self.wanted = np.eye(LAYERS[-1], dtype=np.float32)[self.random.integers(0, LAYERS[-1], batch)]

    def step(self):
        with label("forward"):
            values = [self.inputs]
            for weight, bias in zip(self.weights, self.biases, strict=True):
                values.append(np.maximum(values[-1] @ weight + bias, 0))
            odds = np.exp(values[-1] - values[-1].max(axis=1, keepdims=True))
            odds /= odds.sum(axis=1, keepdims=True)
        with label("backward"):
            error = (odds - self.wanted) / np.float32(len(self.inputs))
            for i in reversed(range(len(self.weights))):
                error = error * (values[i + 1] > 0)
                by_weight, by_bias = values[i].T @ error, error.sum(axis=0)
                error = error @ self.weights[i].T
                self.weights[i] -= np.float32(0.01) * by_weight
                self.biases[i] -= np.float32(0.01) * by_bias


def train(batch, steps):
    network = Network(batch)
    return lambda: [network.step() for _ in range(steps)]


def tiny(count):
    """The worst there is: hardly any arithmetic, all allocation."""
    left, right = np.ones(100), np.ones(100)

    def work():
        for _ in range(count):
            left + right

    return work


def large():
    """Arrays of 16 MiB, ten at a time, dropped and made again: their pages are kept from one turn to the next."""
    return [np.ones(2 << 20) for _ in range(10)] and None


def resident():
    """MiB of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def report_memory():
    """What 4 GiB of deleted arrays leave behind."""
    print("\n| 4 GiB of arrays | memory | before | made | deleted |")
    print("|---|---|---:|---:|---:|")
    for count, name in ((1, "one array"), (128, "128 arrays")):
        for mode, service in (("NumPy alone", contextlib.nullcontext()), ("served", serve_numpy("8GiB"))):
            with service:
                before = resident()
                arrays = [np.ones((512 << 20) // count) for _ in range(count)]
                made = resident()
                arrays.clear()
                print(
                    f"| {name} | {mode} | {before:,.0f} MiB | {made:,.0f} MiB | {resident():,.0f} MiB |",
                    flush=True,
                )


def timed(work):
    """Seconds of the wall clock, and of the processor."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


def compare(name, work, folder, rounds):
    """Print the rows of the table for one piece of work."""
    with Recording(folder) as recording:
        services = {
            "NumPy alone": contextlib.nullcontext(),
            "served, to a ring": serve_numpy("1GiB"),
            "served, to a folder": serve_numpy("1GiB", log=recording),
        }
        times = {mode: [] for mode in services}
        for number in range(rounds + 1):
            order = list(services)[number % 3 :] + list(services)[: number % 3]
            for mode in order:
                with services[mode]:
                    times[mode].append(timed(work))
        for mode, service in services.items():
            heap = getattr(service, "allocator", None)
            counts = (heap.stats().num_allocs, heap.log.head) if heap else (0, 0)
            made, events = (count // (rounds + 1) for count in counts)
            report(name, mode, times, made, events)


def report(name, mode, times, made, events):
    """One row; the first round has only warmed up."""
    wall, used = np.median(times[mode][1:], axis=0)
    pairs = list(zip(times[mode][1:], times["NumPy alone"][1:], strict=True))
    slower = statistics.median(mine[1] / plain[1] for mine, plain in pairs) - 1
    extra = statistics.median(mine[1] - plain[1] for mine, plain in pairs)
    each = f"{extra / made * 1e9:+.0f} ns" if made else "-"
    cells = (
        f"{wall * 1e3:.1f} ms",
        f"{used * 1e3:.1f} ms",
        f"{slower:+.1%}",
        f"{made:,}",
        f"{events:,}",
        each,
    )
    print(f"| {name} | {mode} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print(f"NumPy {np.__version__}, {rounds} rounds\n")
    print("| work | memory | wall clock | processor | slower | allocations | events | each allocation |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, work) in enumerate(
            (
                ("training, batch 256, 20 steps", train(256, 20)),
                ("training, batch 32, 100 steps", train(32, 100)),
                ("100 numbers added, 100,000 times", tiny(100_000)),
                ("10 arrays of 16 MiB made and dropped", large),
            )
        ):
            compare(name, work, Path(folder, str(number)), rounds)
    report_memory()


if __name__ == "__main__":
    main()
