"""Requests a second that each policy serves, without and with a limit that makes it return memory.

python tests/bench/policy_speed.py [THOUSANDS_OF_REQUESTS]

The requests are like those of training with lengths that vary: each step allocates 200 tensors, of 16 sizes times the
step's length, and frees them in the reverse order; a tenth of them stays for ten steps. Times are those of the
processor: other programs on the machine do not count.
"""

import sys
import time
from contextlib import suppress

import numpy as np

from bfcviz.errors import InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream

SIZES = [1 << n for n in range(2, 18)]


def training_like(requests, seed=1):
    """A stream of about so many requests."""
    rng, rows, kept, made = np.random.default_rng(seed), [], [], 0
    while len(rows) < requests:
        length, here = int(rng.integers(16, 65)), []
        for size in rng.choice(SIZES, 200).tolist():
            (kept if rng.random() < 0.1 else here).append(made)
            rows.append((ALLOCATE, made, size * length))
            made += 1
        rows += [(FREE, block, 0) for block in reversed(here)]
        rows += [(FREE, block, 0) for block in kept[:-200]]
        del kept[:-200]
    table = np.zeros(len(rows), STREAM_ROW)
    table["kind"], table["block"], table["size"] = zip(*rows, strict=True)
    return RequestStream(table, Labels(), "training-like")


def measured(name, stream, limit, **options):
    """Requests a second of processor time, the best of three; and the outcome."""
    policy, best = policy_of(name, **options), 0.0
    for _ in range(3):
        start = time.process_time()
        outcome = policy.serve(stream, limit)
        best = max(best, len(stream) / (time.process_time() - start))
    return best, outcome


def main(thousands=1000):
    stream = training_like(thousands * 1000)
    least = int(stream.live_bytes.max())
    how = "compiled" if "bfcviz._whatif" in sys.modules else "plain Python"
    print(f"{len(stream):,} requests, at most {least / 2**20:,.0f} MiB live, {how}\n")
    print(
        "| policy | million requests/s | peak reserved, MiB | with 1.2 times the live bytes: million/s | failed |"
    )
    print("|---|---:|---:|---:|---:|")
    choices = [(name, {"allow_growth": True} if name == "bfc" else {}) for name in POLICIES]
    choices.append(("torch", {"expandable_segments": True}))
    for name, options in choices:
        words = ", ".join([name, *options])
        tight, limited = measured(name, stream, int(least * 1.2), **options)
        unlimited = "needs a limit | "
        with suppress(InvalidRequest):
            speed, free = measured(name, stream, None, **options)
            unlimited = f"{speed / 1e6:.2f} | {free.peak_reserved / 2**20:,.0f}"
        print(f"| {words} | {unlimited} | {tight / 1e6:.2f} | {len(limited.failures):,} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
