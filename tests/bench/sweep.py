"""How many points of a sweep are served per second: `python tests/bench/sweep.py [--requests 100000] [--points 200]`.

The same points in this process, on one and two local processes, and on a Dask cluster of one and two workers, in turns.
A point is one request stream of training steps under BFC with growth and one limit; streams are sent, not read. "With
the start" includes the start of processes; the workers of a cluster run before. "After it" is the rate between the
first result and the last one. The load is that of the machine before each run: other programs share its cores.
"""

import argparse
import os
from contextlib import ExitStack
from time import monotonic

import numpy as np

import bfcviz
from bfcviz.events.label_table import Labels
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream

TRACES = 4


def training_stream(seed, requests):
    """Steps of 400 requests: 200 activations of 4 KiB to 4 MiB, freed in the opposite order."""
    random = np.random.default_rng(seed)
    steps, half = -(-requests // 400), 200
    rows = np.zeros(steps * 2 * half, STREAM_ROW)
    blocks = np.arange(steps * half).reshape(steps, half)
    by_step = rows.reshape(steps, 2 * half)
    by_step["kind"][:, half:] = FREE
    by_step["kind"][:, :half] = ALLOCATE
    by_step["block"][:, :half], by_step["block"][:, half:] = blocks, blocks[:, ::-1]
    by_step["size"][:, :half] = 2 ** random.uniform(12, 22, (steps, half))
    rows["event"] = np.arange(len(rows))
    return RequestStream(rows[:requests], Labels(), f"training_{seed}")


class Timing:
    """When results arrive."""

    def __init__(self):
        self.start, self.arrivals = monotonic(), []

    def __call__(self, progress):
        if progress.newest is not None:
            self.arrivals.append(monotonic())

    def rates(self):
        """Points per second with the start, and after the first result."""
        first, last, n = self.arrivals[0], self.arrivals[-1], len(self.arrivals)
        return n / (last - self.start), (n - 1) / (last - first)


def measured(name, arguments, **where):
    load, timing = os.getloadavg()[0], Timing()
    results = bfcviz.sweep(*arguments, progress=timing, **where)
    assert results.complete
    assert not results.errors
    whole, after = timing.rates()
    return name, whole, after, load, [(point.peak_reserved, point.failures) for point in results.points]


def dask(name, arguments, workers):
    from distributed import Client, LocalCluster  # noqa: PLC0415  an extra

    with ExitStack() as stack:
        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
        client = stack.enter_context(Client(stack.enter_context(cluster)))
        bfcviz.sweep(arguments[0], arguments[1], arguments[2][:1], client=client)  # workers import bfcviz
        return measured(name, arguments, client=client)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--points", type=int, default=200)
    chosen = parser.parse_args()
    streams = [training_stream(seed, chosen.requests) for seed in range(TRACES)]
    limits = [f"{100 + step}%" for step in range(-(-chosen.points // TRACES))]
    arguments = (streams, "bfc:allow_growth=true", limits)
    rows = [
        measured("in this process", arguments),
        measured("1 process", arguments, processes=1),
        measured("2 processes", arguments, processes=2),
        dask("1 Dask worker", arguments, 1),
        dask("2 Dask workers", arguments, 2),
    ]
    assert all(row[-1] == rows[0][-1] for row in rows)
    print(f"{len(limits) * TRACES} points of {chosen.requests:,} requests\n")
    print("| where | points/s with the start | points/s after it | times one | load |")
    print("|---|---:|---:|---:|---:|")
    one = {"2 processes": rows[1][2], "2 Dask workers": rows[3][2]}
    for name, whole, after, load, _ in rows:
        times = f"{after / one[name]:.2f}" if name in one else ""
        print(f"| {name} | {whole:.1f} | {after:.1f} | {times} | {load:.1f} |")


if __name__ == "__main__":
    main()
