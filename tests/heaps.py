"""Heaps to test with, and what they look like from outside."""

import sys
import threading

import numpy as np

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators import PythonSubAllocator, SimulatedSubAllocator
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.trace import Trace
from bfcviz.model import Model

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BASE = 0x7F0000000000


def new_heap(limit=MIB, source=None, *, log=None, labels=None, **options):
    """A heap over simulated memory, or over `source`."""
    source = SimulatedSubAllocator() if source is None else source
    log = EventLog(1 << 16) if log is None else log
    return BFCAllocator(source, limit, AllocatorOptions(**options), log=log, labels=labels)


def snapshot(heap):
    """Everything a heap shows of itself."""
    return (
        heap.memory_map().tolist(),
        heap.regions().tolist(),
        heap.stats(),
        heap.internals(),
        heap.log.head,
        heap.occupancy(),
    )


def model_of(heap, events=None):
    """The model after all events of a heap (those its log still has, which must be all)."""
    events = Reader(heap.log, 0).read(1 << 24) if events is None else events
    origin = Origin("bfcviz", "", Status.COMPLETE, (), (Pool(heap.name, heap.limit, {}),), {})
    model = Model(Trace.from_events(events, heap.labels, origin))
    model.seek(len(events))
    return model


def assert_model_agrees(heap, events=None):
    """The events alone give the heap's chunks, regions and totals; and undone, the empty heap."""
    model = model_of(heap, events)
    other = assert_shows(model, heap)
    model.seek(0)
    assert not len(model.chunks())
    return other


def assert_shows(model, heap):
    """A model has the heap's chunks, regions and totals; returns its totals."""
    chunks = heap.memory_map()
    for name in ("requested_size", "label", "thread", "stream", "born"):
        chunks[name][~chunks["in_use"]] = 0
    theirs = model.chunks()
    for ours, name in (
        ("requested_size", "requested"),
        *((n, n) for n in ("address", "size", "handle", "in_use")),
    ):
        np.testing.assert_array_equal(chunks[ours], theirs[name])
    for name in ("label", "thread", "stream", "born"):
        np.testing.assert_array_equal(chunks[name], theirs[name])
    assert model.regions().tolist() == heap.regions().tolist()
    stats, other = heap.stats(), model.stats()
    for name in (
        "bytes_in_use",
        "requested_bytes_in_use",
        "pool_bytes",
        "peak_pool_bytes",
        "largest_free_chunk",
    ):
        assert getattr(stats, name) == getattr(other, name), name
    return other


class Scripted(PythonSubAllocator):
    """Grants what a function says; counts what comes back."""

    def __init__(self, grant, release=None, *, supports_coalescing=False):
        super().__init__(supports_coalescing=supports_coalescing)
        self.give_out = grant
        self.get_back = release
        self.asked = []
        self.released = []

    def allocate(self, alignment, num_bytes):
        self.asked.append((alignment, num_bytes))
        return self.give_out(alignment, num_bytes)

    def free(self, address, num_bytes):
        self.released.append((address, num_bytes))
        if self.get_back is not None:
            self.get_back(address, num_bytes)


def assert_survives_growth(table, value, look, keys):
    """Nothing is raised by `look`, called again and again while another thread adds to the dict `table`."""

    def grow():
        for key in keys:
            table[key] = value

    thread, before = threading.Thread(target=grow), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        while thread.is_alive():
            look()
    finally:
        sys.setswitchinterval(before)
        thread.join()
