"""How long it takes to compare two traces of 1,000,000 events: `python tests/bench/compare_recordings.py`."""

import argparse
import time
from random import Random

import bfcviz
from bfcviz.analysis.recording_alignment import AlignedBy
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.trace import Trace

LABELS, HELD, STEP = 500, 4000, 700


def training(length, seed, leak):
    """Equal steps of 700 allocations beside 4,000 chunks that stay; `leak` bytes more stay after each step."""
    random, log = Random(seed), EventLog(1 << 22)
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), "64GiB", log=log)
    labels = [
        heap.labels.intern(f"layer_{number % 48}/block_{number % 7}/op_{number}") for number in range(LABELS)
    ]
    mark = heap.labels.intern("step")

    def allocate(number):
        return heap.allocate(int(random.lognormvariate(9, 2)) + 1, label=labels[number % LABELS])

    for number in range(HELD):
        allocate(number)
    number = 0
    while log.head < length:
        held = [allocate(each) for each in range(STEP)]
        if leak:
            heap.allocate(leak, label="cache/append")
        for address in random.sample(held, len(held)):
            heap.free(address)
        heap.mark(mark, number)
        number += 1
    events = Reader(log, 0).read(1 << 23)[:length]
    return Trace.from_events(events, heap.labels, Origin(pools=(Pool("heap", "64GiB"),)))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    a, b = training(options.events, 1, 0), training(options.events, 2, 4096)
    print("| events of each | aligned by | moments | holders | time |\n|---:|---|---:|---:|---:|")
    for align in AlignedBy:
        if align is not AlignedBy.STATE:
            start = time.perf_counter()
            found = bfcviz.compare_recordings(a, b, align=str(align))
            took = time.perf_counter() - start
            rows = len(set(found.holders["holder"].to_pylist()))
            print(f"| {len(a):,} | {align} | {found.moments.num_rows} | {rows:,} | {took:.2f} s |")


if __name__ == "__main__":
    main()
