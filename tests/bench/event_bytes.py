"""What the bytes of packed events are made of, and the fewest that hold them: `python tests/bench/event_bytes.py`.

A heap with random requests: nothing repeats, so the codec of blocks (`bfcviz/events/storage/block_codec.py`) predicts
as little as of any program. The bound is the entropy of what the program chose: each size, each chunk that it freed,
each label, allocate or free, and the time between two operations. All else follows from the rules of the heap.
"""

import math
import random
from typing import NamedTuple

import numpy as np

import bfcviz
from bfcviz.events.schema import Kind
from bfcviz.events.storage.block_codec import CODED, MOST_EVENTS, EventCodec
from bfcviz.events.storage.blocks import event_section, zstd

GAP_NS = 50_000


class Job(NamedTuple):
    """Random requests."""

    live: int  # chunks
    largest: int  # bytes of a request, from 1
    labels: int
    spread: bool  # times have exponential gaps with a mean of 50 us, instead of those of a loop that only allocates


JOBS = [Job(1_000, 1 << 20, 1, False), Job(10_000, 1 << 16, 1, False), Job(10_000, 1 << 20, 1_000, True)]


def events_of(job):
    log, rng, live = bfcviz.EventLog(capacity=2 * MOST_EVENTS), random.Random(1), []
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), "64GiB", log=log)
    names = [heap.labels.intern(f"op{number}") for number in range(job.labels)]
    while log.head < 2 * MOST_EVENTS:
        if len(live) < job.live or (len(live) < 1.1 * job.live and rng.random() < 0.5):
            live.append(heap.allocate(rng.randint(1, job.largest), label=rng.choice(names)))
        else:
            place = rng.randrange(len(live))
            live[place], live[-1] = live[-1], live[place]
            heap.free(live.pop())
    events = log.copy(log.head - MOST_EVENTS, log.head)
    if job.spread:
        ends = np.isin(events["kind"], (Kind.ALLOCATE, Kind.FREE))
        operation = np.concatenate([[0], np.cumsum(ends)[:-1]])
        gaps = np.random.default_rng(1).exponential(GAP_NS, len(events)).astype(np.int64)
        events["time"] = np.cumsum(gaps)[operation]
    return events


def entropy(values):
    """Bits a value, each value by itself."""
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(shares * np.log2(shares)).sum())


def bounds(job, events):
    """Bytes an event of what nothing before it tells."""
    kinds = events["kind"]
    allocations, frees = (int((kinds == kind).sum()) for kind in (Kind.ALLOCATE, Kind.FREE))
    ends = events["time"][(kinds == Kind.ALLOCATE) | (kinds == Kind.FREE)]
    time = math.log2(math.e * GAP_NS) if job.spread else entropy(np.diff(ends))
    bits = {
        "time": (allocations + frees) * time,
        "chunk": frees * math.log2(1.05 * job.live),
        "requested": allocations * math.log2(job.largest),
        "label": allocations * math.log2(job.labels),
        "kind": allocations + frees,
    }
    return {name: count / 8 / len(events) for name, count in bits.items()}


def packed(column):
    planes = np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.itemsize)
    return sum(len(zstd.compress(plane.tobytes(), level=1)) for plane in planes.T if plane.any())


def main():
    rows = {name: [] for name in ("masks", *CODED, "all")}
    for job in JOBS:
        events = events_of(job)
        codec = EventCodec()
        _, masks, residuals, _ = codec.encode(events)
        least = bounds(job, events)
        sizes = {name: packed(c) for name, c in zip(("masks", *CODED), (masks, *residuals), strict=True)}
        sizes["all"], least["all"] = len(event_section(codec, events)), sum(least.values())
        for name, row in rows.items():
            row.append(f"{sizes[name] / len(events):.2f} ({least.get(name, 0):.2f})")
    print("| bytes an event (at least) |", " | ".join(map(str, JOBS)), "|")
    print("|---|" + "---:|" * len(JOBS))
    for name, row in rows.items():
        if any(not cell.startswith("0.0") for cell in row):
            print(f"| {name} |", " | ".join(row), "|")


if __name__ == "__main__":
    main()
