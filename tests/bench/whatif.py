"""How fast each policy serves requests, and how long the searches take, in seconds of CPU: all runs in one thread.

python tests/bench/whatif.py [REQUESTS]
"""

import sys
import time
from random import Random

import numpy as np

import bfcviz
from bfcviz.events.label_table import Labels
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, STREAM_ROW, RequestStream
from bfcviz.whatif.search import TrialCache

RUNS = 5
LIMIT = 64 << 30
KiB, MiB = 1 << 10, 1 << 20


def training(length, seed=7):
    """Requests of a training run: weights, then steps of activations, workspaces, gradients; sizes vary with the batch.

    Some blocks of a step are kept for the next 1 to 20 steps, as by a cache of the program.
    """
    random, labels, requests = Random(seed), Labels(), []
    layers = [random.choice([64 * KiB, 300 * KiB, MiB, 5 * MiB, 24 * MiB]) for _ in range(48)]
    names = [labels.intern(f"layer_{number}/activation") for number in range(len(layers))]
    made, number, later = 0, 0, {}

    def allocate(size, label=0):
        nonlocal made
        requests.append((ALLOCATE, made, size, label))
        made += 1
        return made - 1

    for size in layers:
        allocate(size, labels.intern("weights"))
    step = labels.intern("step")
    while len(requests) < length:
        requests.append((MARK, 0, 0, step))
        requests += [(FREE, block, 0, 0) for block in later.pop(number, ())]
        number += 1
        batch, kept = random.uniform(0.7, 1.3), []
        for size, name in zip(layers, names, strict=True):
            sizes = [
                int(size * batch * random.choice([0.1, 0.5, 1])) + 1 for _ in range(random.randrange(3, 7))
            ]
            kept += [allocate(each, name) for each in sizes]
            requests.append((FREE, allocate(int(size * batch * 2)), 0, 0))
        for _ in range(3):
            block = kept.pop(random.randrange(len(kept)))
            later.setdefault(number + random.randrange(1, 20), []).append(block)
        while kept:
            requests.append((FREE, allocate(random.choice(layers)), 0, 0))
            requests.append((FREE, kept.pop(random.randrange(max(len(kept) - 4, 0), len(kept))), 0, 0))
    rows = np.zeros(len(requests), STREAM_ROW)
    for name, column in zip(("kind", "block", "size", "label"), zip(*requests, strict=True), strict=True):
        rows[name] = column
    rows["time"] = rows["event"] = np.arange(len(rows))
    return RequestStream(rows, labels, "generated training", LIMIT)


def seconds(work):
    """The fastest of RUNS."""
    best = float("inf")
    for _ in range(RUNS):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best


def rate(stream, name):
    try:
        return f"{len(stream) / seconds(lambda: policy_of(name).serve(stream, LIMIT)) / 1e6:.2f}"
    except bfcviz.BfcvizError as error:
        return str(error)


def limit(stream, name):
    """The columns of a search for the smallest limit."""
    begun = time.process_time()
    try:
        found = bfcviz.smallest_limit(stream, name, cache=TrialCache())
    except bfcviz.BfcvizError as error:
        return f"{error} | | | "
    taken = time.process_time() - begun
    added = 100 * found.added / found.lower_bound
    return f"{taken:.2f} | {found.replays} | {found.limit_bytes / MiB:,.1f} | {added:.1f}"


def main():
    """Print the tables."""
    stream = training(int(float(sys.argv[1])) if len(sys.argv) > 1 else 100_000)
    how = "compiled" if "bfcviz._whatif" in sys.modules else "plain Python"
    least = stream.live_bytes.max() / MiB
    print(f"{len(stream):,} requests, at most {least:,.1f} MiB in use at once, {how}\n")
    print("| policy | M requests/s | smallest limit: s | replays | MiB | % above the lower bound |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in [*POLICIES, "bfc:allow_growth=true", "torch:expandable_segments=true"]:
        if name.partition(":")[0] in POLICIES:
            print(f"| {name} | {rate(stream, name)} | {limit(stream, name)} |")
    limited = int(1.5 * stream.live_bytes.max())
    print("\n| search | s | replays | result |\n|---|---:|---:|---|")
    for name in ("bfc", "torch"):
        begun = time.process_time()
        batch = bfcviz.largest_batch(stream, name, 2 * limited, batch=32, cache=TrialCache())
        taken = time.process_time() - begun
        print(f"| largest batch, {name} | {taken:.2f} | {batch.replays} | {batch.largest} from 32 |")
        begun = time.process_time()
        best = bfcviz.best_options(stream, name, limited, cache=TrialCache())
        taken = time.process_time() - begun
        varied = {key: value for key, value in best.options.items() if value != POLICIES[name].options[key]}
        print(f"| best options, {name}, {best.method} | {taken:.2f} | {best.replays} | {varied} |")


if __name__ == "__main__":
    main()
