"""The allocator that CuPy calls: requests before, within and after the `with`, and garbage collections in them."""

import gc

import numpy as np
from heaps import MIB
from processes import needs_compiled
from unit.live.cupy_stand_in import cupy, gpu, heap_of, in_use, needs_cupy, served

pytestmark = [needs_cupy, needs_compiled]
__all__ = ["gpu"]


def test_an_allocator_of_other_code_is_left_in_place(gpu):
    before = cupy.cuda.get_allocator()

    def other(size):
        return before(size)

    with served():
        cupy.cuda.set_allocator(other)
    assert cupy.cuda.get_allocator() is other
    cupy.cuda.set_allocator(before)


def test_after_the_with_our_allocator_passes_requests_to_the_previous_one(gpu):
    asked = []

    def before(size):
        asked.append(size)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(1 << 20, size, None, 0), 0)

    plain = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(before)
    with served() as source:
        kept = cupy.cuda.get_allocator()
    assert kept(1000).ptr == 1 << 20
    assert asked == [1000]
    assert in_use(source) == [0]
    cupy.cuda.set_allocator(plain)


def test_a_thread_may_ask_while_it_begins(gpu, monkeypatch):
    plain, seen = cupy.cuda.get_allocator(), []

    def before(size):
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(1 << 20, size, None, 0), 0)

    def set_and_ask(allocator):
        cupy.cuda.set_allocator(allocator)
        seen.append(allocator(1000).ptr)

    cupy.cuda.set_allocator(before)
    monkeypatch.setattr(gpu, "set_allocator", set_and_ask)
    with served():
        assert seen == [1 << 20]
    cupy.cuda.set_allocator(plain)


def test_garbage_is_collected_before_a_request_fails(gpu):
    class Cycle:
        def __init__(self):
            self.itself, self.array = self, cupy.empty(6 * MIB, np.uint8)

    gc.disable()
    try:
        with served("8MiB") as source:
            Cycle()
            assert in_use(source) == [1]
            assert cupy.empty(6 * MIB, np.uint8).data.ptr
            assert source.out_of_memory is None
    finally:
        gc.enable()


def test_a_collection_in_the_midst_of_a_request_may_free(gpu):
    class Cycle:
        def __init__(self):
            self.itself, self.array = self, cupy.empty(1000, np.uint8)

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with served() as source:
            for _ in range(500):
                Cycle()
            gc.collect()
            assert in_use(source) == [0]
            heap_of(source).check_invariants()
    finally:
        gc.set_threshold(*threshold)
