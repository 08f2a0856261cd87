"""What serving CuPy costs: `python tests/bench/cupy_overhead.py [--rounds 9]`; without a GPU it says so.

In one run, slices of the same work take turns on CuPy's own pool, on bfcviz's heaps (each event recorded, in a ring
and in a folder), observed while on CuPy's pool, and on bare cudaMalloc and cudaFree, which is why pools exist. A slice
is timed by the wall clock, the device idle before and after. The slowdown is the median over rounds of a mode's time by
that of CuPy's own pool.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.cupy import observe_cupy, serve_cupy

try:
    import cupy
except ImportError:
    cupy = None


def why_not():
    """What is missing, or None."""
    if cupy is None:
        return "CuPy is not installed: pip install cupy-cuda12x"
    return None if cupy.cuda.is_available() else "CuPy finds no GPU, or no driver, on this machine"


@contextlib.contextmanager
def bare():
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(None)
    try:
        yield
    finally:
        cupy.cuda.set_allocator(before)


@contextlib.contextmanager
def in_folder(**options):
    with (
        tempfile.TemporaryDirectory() as folder,
        Recording(Path(folder) / "run") as recording,
        serve_cupy(log=recording, **options),
    ):
        yield


MODES = {
    "CuPy's own pool": contextlib.nullcontext,
    "served": lambda: serve_cupy(log=EventLog()),
    "served, to a folder": in_folder,
    "served, virtual memory": lambda: serve_cupy(log=EventLog(), memory="virtual"),
    "served, async memory": lambda: serve_cupy(log=EventLog(), memory="async"),
    "observed": lambda: observe_cupy(log=EventLog()),
    "cudaMalloc, cudaFree": bare,
}


def pairs(count=20_000):
    """Allocation alone: one array at a time."""
    for _ in range(count):
        cupy.empty(1000, cupy.float32)


def churn(count=20_000):
    """Allocation alone: 200 arrays of many sizes at a time."""
    held = [None] * 200
    for turn in range(count):
        held[turn * 7919 % 200] = cupy.empty(turn * 104_729 % 100_000 + 1, cupy.uint8)


def training(steps=60):
    """A small network, batch by batch."""
    random = cupy.random.RandomState(3)
    first, second = (random.standard_normal(shape, cupy.float32) for shape in ((512, 1024), (1024, 10)))
    for step in range(steps):
        batch = random.standard_normal((256 + 16 * step, 512), cupy.float32)
        hidden = cupy.maximum(batch @ first, 0)
        error = (hidden @ second - 1) / len(batch)
        back = (error @ second.T) * (hidden > 0)
        second -= 0.01 * (hidden.T @ error)
        first -= 0.01 * (batch.T @ back)


def seconds(work):
    cupy.cuda.runtime.deviceSynchronize()
    began = time.perf_counter()
    work()
    cupy.cuda.runtime.deviceSynchronize()
    return time.perf_counter() - began


def table(work, rounds):
    times = {name: [] for name in MODES}
    for turn in range(rounds + 1):
        for name, mode in MODES.items():
            with mode():
                work()  # its memory is there, and its kernels are compiled
                spent = seconds(work)
            if turn:
                times[name].append(spent)
    plain = times["CuPy's own pool"]
    print(f"\n{work.__doc__}\n\n| | ms | slowdown |\n|---|---:|---:|")
    for name, spent in times.items():
        ratio = statistics.median(own / other for own, other in zip(spent, plain, strict=True))
        print(f"| {name} | {statistics.median(spent) * 1e3:.1f} | {(ratio - 1) * 100:+.1f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    if reason := why_not():
        print(f"nothing was measured: {reason}")
        return 0
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{name}, CuPy {cupy.__version__}, median of {rounds} rounds")
    for work in (pairs, churn, training):
        table(work, rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
