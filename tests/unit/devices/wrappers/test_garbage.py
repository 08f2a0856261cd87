"""A garbage collection inside a wrapper may free memory through it: no wrapper deadlocks."""

import gc

import pytest
from contracts.allocators import WRAPPERS, heap_of, wrapped
from heaps import MIB, new_heap

MOMENTS = 120
"""Objects created between the garbage and its collection, so that it happens at each point of the operation."""


class Owner:
    """Memory that the garbage collector frees, as that of a tensor in a reference cycle."""

    def __init__(self, allocator):
        self.itself = self
        self.allocator = allocator
        self.address = allocator.allocate(1000)

    def __del__(self):
        self.allocator.free(self.address)


@pytest.fixture(scope="module")
def little_garbage():
    gc.collect()
    gc.freeze()  # so that collecting takes no time
    yield
    gc.unfreeze()


@pytest.fixture
def own_thresholds(little_garbage):
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


def use(allocator):
    address = allocator.allocate(2000)
    for ask in ("in_use", "damages", "stats"):
        getattr(allocator, ask, list)()
    allocator.free(address)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("own_thresholds")
@pytest.mark.parametrize("names", [*((name,) for name in WRAPPERS), tuple(WRAPPERS)], ids=" in ".join)
def test_garbage_that_frees_is_collected_at_any_moment(names):
    allocator = wrapped(new_heap(MIB), names)
    for moment in range(MOMENTS):
        gc.collect(0)
        gc.disable()
        Owner(allocator)
        gc.set_threshold(gc.get_count()[0] + moment)
        gc.enable()
        use(allocator)
    gc.collect()
    allocator.check_invariants()
    assert heap_of(allocator).stats().chunks_in_use == 0
