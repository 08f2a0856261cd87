"""Synthetic traces, so that tests of figures need no allocator and no importer.

A plain best-fit heap records the events: slow, small and independent of bfcviz.allocator.
"""

from functools import lru_cache

import numpy as np

from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT, Kind, bin_of
from bfcviz.events.trace import Origin, Pool, Status, Trace

BASE = 0x7F00_0000_0000
KiB, MiB = 1 << 10, 1 << 20


class PlainHeap:
    """Best fit with splits and merges over regions of fixed size; it appends to `events`."""

    def __init__(self, region_bytes, regions=1, labels=None, gap=0):
        self.labels = labels or Labels()
        self.events = []
        self.chunks = {}  # address -> [size, requested, label, handle, born, region], requested None when free
        self.free_addresses = set()
        self.room = [(BASE + i * (region_bytes + gap), region_bytes) for i in range(regions)]
        self.granted = 0
        self.handles = 0

    def record(self, kind, **fields):
        event = np.zeros((), EVENT)
        event["seq"], event["time"], event["kind"] = len(self.events), 1000 * len(self.events), kind
        event["bin"] = -1
        for name, value in fields.items():
            event[name] = value
        self.events.append(event)

    def extend(self, rounded):
        if self.granted == len(self.room):
            return False
        address, size = self.room[self.granted]
        region, self.granted = self.granted, self.granted + 1
        self.handles += 1
        self.chunks[address] = [size, None, 0, self.handles, 0, region]
        self.free_addresses.add(address)
        self.record(
            Kind.EXTEND,
            address=address,
            size=size,
            requested=rounded,
            chunk=self.handles,
            region=region,
            bin=bin_of(size),
        )
        return size >= rounded

    def best(self, rounded):
        fits = [(self.chunks[a][0], a) for a in self.free_addresses if self.chunks[a][0] >= rounded]
        return min(fits)[1] if fits else None

    def allocate(self, requested, label="", **details):
        rounded = max(-(-requested // 256) * 256, 256)
        address = self.best(rounded)
        if address is None and self.extend(rounded):
            address = self.best(rounded)
        if address is None:
            free = [self.chunks[a][0] for a in self.free_addresses]
            self.record(
                Kind.OOM,
                address=sum(free),
                size=max(free, default=0),
                requested=requested,
                bin=bin_of(rounded),
            )
            return None
        chunk = self.chunks[address]
        found_in = bin_of(chunk[0])
        rest = chunk[0] - rounded
        if rest >= rounded or rest >= 64 * MiB:
            self.handles += 1
            self.chunks[address + rounded] = [rest, None, 0, self.handles, 0, chunk[5]]
            self.free_addresses.add(address + rounded)
            self.record(
                Kind.SPLIT, address=address + rounded, size=rest, chunk=chunk[3], other=self.handles,
                region=chunk[5], bin=bin_of(rest),
            )  # fmt: skip
            chunk[0] = rounded
        number = self.labels.intern(label, **details) if label or details else 0
        chunk[1], chunk[2], chunk[4] = requested, number, len(self.events)
        self.free_addresses.remove(address)
        self.record(
            Kind.ALLOCATE, address=address, size=chunk[0], requested=requested, chunk=chunk[3],
            other=len(self.events), label=number, region=chunk[5], bin=found_in,
        )  # fmt: skip
        return address

    def free(self, address):
        chunk = self.chunks[address]
        self.record(
            Kind.FREE, address=address, size=chunk[0], requested=chunk[1], chunk=chunk[3], other=chunk[4],
            label=chunk[2], region=chunk[5], bin=bin_of(chunk[0]),
        )  # fmt: skip
        chunk[1], chunk[2], chunk[4] = None, 0, 0
        self.free_addresses.add(address)
        after = self.chunks.get(address + chunk[0])
        if after is not None and after[1] is None and after[5] == chunk[5]:
            self.merge(address, address + chunk[0])
        before = [
            a
            for a in self.free_addresses
            if a + self.chunks[a][0] == address and self.chunks[a][5] == chunk[5]
        ]
        if before:
            self.merge(before[0], address)

    def merge(self, survivor, absorbed):
        kept, gone = self.chunks[survivor], self.chunks.pop(absorbed)
        self.free_addresses.remove(absorbed)
        kept[0] += gone[0]
        self.record(
            Kind.MERGE,
            address=absorbed,
            size=gone[0],
            chunk=kept[3],
            other=gone[3],
            region=kept[5],
            bin=bin_of(kept[0]),
        )

    def mark(self, name, value=0, **details):
        label = self.labels.intern(name, **details)
        self.record(Kind.MARK, label=label, size=value)

    def trace(self, pools=1):
        events = np.array(self.events, dtype=EVENT) if self.events else np.empty(0, EVENT)
        return trace_of(events, self.labels, pools)


def trace_of(events, labels=None, pools=1):
    """A complete trace of `events`."""
    origin = Origin(
        format="bfcviz",
        source="synthetic",
        status=Status.COMPLETE,
        reasons=(),
        pools=tuple(Pool(name=f"pool {i}", limit=512 * MiB, options={}) for i in range(pools)),
        details={},
    )
    return Trace.from_events(events, labels or Labels(), origin)


def busy_trace(operations=400, seed=0, region_bytes=64 * MiB, regions=2):
    """Random sizes, some of them freed again; the last event is an OOM."""
    events, labels = _busy_events(operations, seed, region_bytes, regions)
    return trace_of(events.copy(), Labels.from_json(labels))


@lru_cache(maxsize=32)
def _busy_events(operations, seed, region_bytes, regions):
    """The events, and the labels as text."""
    random = np.random.default_rng(seed)
    heap = PlainHeap(region_bytes, regions)
    held = []
    for number in range(operations):
        if held and random.random() < 0.45:
            heap.free(held.pop(random.integers(len(held))))
        else:
            size = int(2 ** random.uniform(2, 21))
            address = heap.allocate(size, f"layer_{number % 7}/MatMul", shape=f"[{size}]")
            if address is not None:
                held.append(address)
    heap.allocate(region_bytes * regions, "too/large")
    return np.array(heap.events, EVENT), heap.labels.to_json()


def marked_trace(count=5, every=40, label="<b>epoch</b> \u05d0"):
    """A busy heap with a mark after every few operations."""
    heap = PlainHeap(64 * MiB)
    for i in range(count * every):
        heap.free(heap.allocate(1000 + 300 * i))
        if i % every == every - 1:
            heap.mark(label, i)
    return heap.trace()
