"""Memory owned by objects: a garbage collection may free it at any time, also during a call of the heap."""

import gc

import pytest
from heaps import GIB, assert_model_agrees, new_heap
from processes import run_code

from bfcviz.events.log import EventLog


class Owner:
    """Frees its memory when it is collected; it is a cycle, so only the garbage collector can do that."""

    def __init__(self, heap):
        self.heap, self.address, self.me = heap, heap.allocate(1000), self

    def __del__(self):
        self.heap.free(self.address)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("options", [{}, {"timestamps": True}])
@pytest.mark.parametrize(
    "look", ["memory_map", "regions", "stats", "internals", "occupancy", "allocate", "mark", "rounds"]
)
def test_a_collection_within_a_call_may_free(look, options):
    heap = new_heap(GIB, log=EventLog(1 << 16), **options)
    calls = {
        "allocate": lambda: heap.free(heap.allocate(1)),
        "mark": lambda: heap.mark("now"),
        "rounds": lambda: heap.requested_size(heap.allocate(5000)),
    }
    call = calls.get(look) or getattr(heap, look)
    thresholds = gc.get_threshold()
    try:
        for after in range(1, 60, 3):
            gc.disable()
            for _ in range(20):
                Owner(heap)
            gc.set_threshold(gc.get_count()[0] + after, 10, 10)
            gc.enable()
            for _ in range(30):
                call()
    finally:
        gc.enable()
        gc.set_threshold(*thresholds)
    gc.collect()
    heap.check_invariants()
    assert_model_agrees(heap)
    assert heap.stats().chunks_in_use == (600 if look == "rounds" else 0)


@pytest.mark.parametrize("plain", [False, True])
def test_the_collector_is_as_it_was(plain):
    code = """
import gc
from heaps import new_heap
heap = new_heap()
for on in (True, False):
    (gc.enable if on else gc.disable)()
    heap.free(heap.allocate(1)); heap.stats(); heap.memory_map()
    print(gc.isenabled())
"""
    assert run_code(code, plain=plain).split() == ["True", "False"]
