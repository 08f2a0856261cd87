"""How long it takes to find the holders of 1,000,000 chunks: `python tests/bench/holders.py`."""

import argparse
import time

import numpy as np

from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.grouping import UNNAMED
from bfcviz.model.holders import holders


def trace_of(chunks, labels):
    """One region of chunks of 256 bytes, all in use, with labels of a deep network."""
    table = Labels()
    numbers = []
    for number in range(labels):
        name = f"jit(train)/layer_{number % 48}/block_{number % 7}/op_{number}"
        frames = [f"f_{depth + number % 3} (/home/me/model_{number % 11}.py:{depth})" for depth in range(20)]
        stack = "\n".join([f"g (/home/me/ops.py:{number})", *frames])
        numbers.append(table.intern(name, shape=f"[{number % 300}]", stack=stack))
    events = np.zeros(2 * chunks, EVENT)
    events["seq"], events["time"] = np.arange(len(events)), np.arange(len(events))
    splits, taken = events[:chunks], events[chunks:]
    address = (1 << 40) + 256 * np.arange(chunks)
    first = splits[:1]
    first["kind"], first["address"], first["size"] = Kind.EXTEND, 1 << 40, 256 * chunks
    rest = splits[1:]
    rest["kind"], rest["address"] = Kind.SPLIT, address[1:]
    rest["size"] = 256 * (chunks - np.arange(1, chunks))
    rest["chunk"], rest["other"] = np.arange(chunks - 1), np.arange(1, chunks)
    taken["kind"], taken["address"], taken["size"], taken["requested"] = Kind.ALLOCATE, address, 256, 200
    taken["chunk"], taken["other"] = np.arange(chunks), np.arange(chunks)
    taken["label"] = np.array(numbers)[np.arange(chunks) % labels]
    taken["thread"], taken["stream"] = np.arange(chunks) % 16, np.arange(chunks) % 4
    origin = Origin("bfcviz", "", Status.COMPLETE, (), (Pool("heap", None, {}),), {})
    return Trace.from_events(events, table, origin)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--labels", type=int, nargs="+", default=[5_000, 65_536])
    options = parser.parse_args()
    print("| by | chunks | labels | holders | time |\n|---|---:|---:|---:|---:|")
    for labels in options.labels:
        model = Model(trace_of(options.chunks, labels))
        model.seek(len(model.trace))
        for by in UNNAMED:
            start = time.perf_counter()
            found = holders(model, by)
            took = time.perf_counter() - start
            print(f"| {by} | {found.chunks_in_use:,} | {labels:,} | {len(found) - 1:,} | {took:.2f} s |")


if __name__ == "__main__":
    main()
