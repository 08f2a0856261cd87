"""What serving NumPy from an instrumented heap costs: `python tests/bench/numpy_served.py [--rounds 15]`.

In one run, slices of the same work take turns: NumPy alone, served with events going to a ring in memory, and
served with events going to a folder. A mode's slowdown is the median over rounds of its time by plain NumPy's.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from bfcviz.events.recording import Recording
from bfcviz.live.labels import label
from bfcviz.live.numpy import serve_numpy

LAYERS = (784, 512, 256, 10)


class Network:
    """A small classifier: dense layers, ReLU, softmax, trained by plain gradient descent."""

    def __init__(self, batch):
        self.random = np.random.default_rng(1)
        pairs = zip(LAYERS[:-1], LAYERS[1:], strict=True)
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


def compare(name, work, folder, rounds):
    """Rows of the table for one piece of work."""
    with Recording(folder) as recording:
        ring = serve_numpy("1GiB")
        file = serve_numpy("1GiB", log=recording)
        modes = {
            "NumPy alone": contextlib.nullcontext(),
            "served, to a ring": ring,
            "served, to a folder": file,
        }
        times = {mode: [] for mode in modes}
        for number in range(rounds + 1):
            order = list(modes)[number % 3 :] + list(modes)[: number % 3]
            for mode in order:
                with modes[mode]:
                    began = time.perf_counter()
                    work()
                    took = time.perf_counter() - began
                if number > 0:  # the first warms up
                    times[mode].append(took)
        for mode in modes:
            slower = statistics.median(a / b for a, b in zip(times[mode], times["NumPy alone"], strict=True))
            service = modes[mode] if mode != "NumPy alone" else None
            made = service.allocator.stats().num_allocs // (rounds + 1) if service else 0
            events = service.allocator.log.head // (rounds + 1) if service else 0
            median = statistics.median(times[mode])
            each = (
                f"{(median - statistics.median(times['NumPy alone'])) / made * 1e9:+.0f} ns" if made else "-"
            )
            print(
                f"| {name} | {mode} | {median * 1e3:.1f} ms | {slower - 1:+.1%} | {made:,} | {events:,} | {each} |"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print(f"NumPy {np.__version__}, {rounds} rounds\n")
    print("| work | memory | time | slower | allocations | events | each allocation |")
    print("|---|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, work) in enumerate(
            (
                ("training, batch 256, 100 steps", train(256, 100)),
                ("training, batch 32, 300 steps", train(32, 300)),
                ("100 numbers added, 200,000 times", tiny(200_000)),
            )
        ):
            compare(name, work, Path(folder, str(number)), rounds)


if __name__ == "__main__":
    main()
