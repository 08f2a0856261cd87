"""New instances of every allocator: bare heaps, and heaps in combinations of wrappers."""

import itertools
import os
import random

from heaps import GIB, KIB, MIB, new_heap

from bfcviz.allocator.sub_allocators import HostSubAllocator, SimulatedSubAllocator
from bfcviz.devices.allocator_wrappers import (
    AlertAllocator,
    AllocatorWrapper,
    GuardAllocator,
    LimitAllocator,
    NaNFillAllocator,
    RetryAllocator,
    TrackingAllocator,
)
from bfcviz.thresholds import Threshold

LIMIT = 2 * MIB

HEAPS = {
    "bfc": new_heap,
    "bfc, growing": lambda limit: new_heap(limit, allow_growth=True),
    "bfc, growing and collecting": lambda limit: new_heap(limit, allow_growth=True, garbage_collection=True),
    "bfc, small waste": lambda limit: new_heap(limit, fragmentation_fraction=0.0001),
    "bfc, timestamps": lambda limit: new_heap(limit, timestamps=True),
    "bfc, as TensorFlow 2.21": lambda limit: new_heap(limit, honour_alignment=False),
    "bfc, descending": lambda limit: new_heap(limit, SimulatedSubAllocator("descending"), allow_growth=True),
    "bfc, gapped": lambda limit: new_heap(limit, SimulatedSubAllocator("gapped", gap=GIB), allow_growth=True),
    "bfc, coalescing": lambda limit: new_heap(
        limit, SimulatedSubAllocator(supports_coalescing=True), allow_growth=True
    ),
    "bfc, host memory": lambda limit: new_heap(limit, HostSubAllocator(), allow_growth=True),
}

THRESHOLDS = [Threshold("bytes_in_use", above=MIB), Threshold("largest_free_chunk", below=64 * KIB)]

WRAPPERS = {
    "plain": AllocatorWrapper,
    "tracking": TrackingAllocator,
    "guard": GuardAllocator,
    "nan": NaNFillAllocator,
    "limit": lambda inner: LimitAllocator(inner, 1 << 40),
    "retry": lambda inner: RetryAllocator(inner, 1e-6),
    "alert": lambda inner: AlertAllocator(inner, THRESHOLDS, lambda crossing: None),
}


def wrapped(heap, names):
    """A heap in wrappers by name, the first name innermost."""
    for name in names:
        heap = WRAPPERS[name](heap)
    return heap


def _wrappings():
    chance = random.Random(19)
    names = list(WRAPPERS)
    yield from itertools.product(names, repeat=1)
    yield from itertools.product(names, repeat=2)
    triples = list(itertools.permutations([name for name in names if name != "plain"], 3))
    yield from triples if os.environ.get("BFCVIZ_ALL_WRAPPINGS") else chance.sample(triples, 20)
    for count in range(4, 9):
        yield from (tuple(chance.choices(names, k=count)) for _ in range(4))


WRAPPINGS = list(dict.fromkeys(_wrappings()))
"""All single wrappers and pairs, and some of the larger: triples of different ones are all taken if
BFCVIZ_ALL_WRAPPINGS is set. tests/properties/wrapper_machine.py puts any number of wrappers around a heap."""


def _composition(names, heap):
    return lambda: wrapped(HEAPS[heap](LIMIT), names)


ALLOCATORS = {name: lambda make=make: make(LIMIT) for name, make in HEAPS.items()}
for number, names in enumerate(WRAPPINGS):
    heap = list(HEAPS)[number % len(HEAPS)]
    ALLOCATORS[" > ".join([*reversed(names), heap])] = _composition(names, heap)
for name in WRAPPERS:
    ALLOCATORS[f"{name} > bfc, host memory"] = _composition((name,), "bfc, host memory")


def overhead(allocator, alignment=256):
    """Bytes that guard words add to a request."""
    layers = getattr(allocator, "layers", ())
    return sum(layer.overhead(alignment) for layer in layers if isinstance(layer, GuardAllocator))


def heap_of(allocator):
    """The heap inside all wrappers."""
    return getattr(allocator, "base", allocator)
