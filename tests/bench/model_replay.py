"""How fast the model passes a trace either way, and how long a seek takes, in memory and packed.

python tests/bench/model_replay.py [MILLIONS_OF_EVENTS] [LIVE_CHUNKS]
"""

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from random import Random

from model_workload import training

from bfcviz.events.label_table import Labels
from bfcviz.events.trace import Origin, Trace
from bfcviz.model import Model, keyframes, timeline
from bfcviz.model.pool_state import PoolState

RUNS = 5
SEEKS = 60


def seconds(work, prepare=lambda: None):
    """The fastest of RUNS."""
    best = float("inf")
    for _ in range(RUNS):
        made = prepare()
        begun = time.perf_counter()
        work(made)
        best = min(best, time.perf_counter() - begun)
    return best


def passes(trace, events):
    full = PoolState()
    full.apply(events)
    print("| pass | M events/s |\n|---|---|")
    for name, work, prepare in (
        ("apply", lambda table: table.apply(events), PoolState),
        ("undo", lambda table: table.undo(events), lambda: applied(events)),
        ("timeline, 2,000 points", lambda _: timeline(trace), lambda: None),
    ):
        print(f"| {name} | {len(events) / seconds(work, prepare) / 1e6:.1f} |")


def applied(events):
    table = PoolState()
    table.apply(events)
    return table


def seeks(name, trace):
    """Times of seeks to random steps, by a model that has been at the end (or not)."""
    random = Random(3)
    for state in ("never passed", "passed once"):
        model = Model(trace)
        if state == "passed once":
            model.seek(len(trace))
        times = {"seek": [], "stats": [], "chunks": []}
        for _ in range(SEEKS):
            step = random.randrange(len(trace) + 1)
            for what, work in (
                ("seek", partial(model.seek, step)),
                ("stats", model.stats),
                ("chunks", model.chunks),
            ):
                begun = time.perf_counter()
                work()
                times[what].append(1e3 * (time.perf_counter() - begun))
        told = " | ".join(f"{sorted(t)[len(t) // 2]:.1f} / {max(t):.1f}" for t in times.values())
        print(f"| {name}, {state} | {told} |")


def main():
    length = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 10_000_000
    live = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
    events = training(length, live=live)
    labels = Labels()
    for number in range(1, 500):
        labels.intern(f"op_{number}")
    trace = Trace.from_events(events, labels, Origin())
    end = applied(events)
    how = "compiled" if "bfcviz._model" in sys.modules else "plain Python"
    print(f"{length:,} events, {end.chunks_in_use + end.chunks_free:,} chunks, {how}\n")
    passes(trace, events)
    print("\n| ms, median / worst | seek | stats | chunks |\n|---|---|---|---|")
    seeks("in memory", trace)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.parquet"
        begun = time.perf_counter()
        trace.save(path, keyframes=keyframes)
        saved = time.perf_counter() - begun
        seeks("packed", Trace.open(path))
        print(f"\npacked with keyframes in {saved:.1f} s, {path.stat().st_size / length:.1f} bytes an event")


if __name__ == "__main__":
    main()
