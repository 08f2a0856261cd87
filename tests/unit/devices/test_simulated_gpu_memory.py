"""The memory of a simulated GPU: addresses of regions, contents and cost."""

import ctypes
import gc
import threading
import tracemalloc

import pytest
from heaps import new_heap
from hypothesis import given
from hypothesis import strategies as st
from unit.devices.machines import simulated

from bfcviz.devices import (
    DeviceManager,
)
from bfcviz.devices.physical_devices import LARGEST, SimulatedGpuSubAllocator, SimulatedMemory
from bfcviz.errors import DeviceError, OutOfMemory
from bfcviz.units import GiB, KiB, MiB

PAGE = 4 * KiB


def new_memory(capacity=64 * MiB, *, readable=True):
    return SimulatedMemory(capacity, 2 * capacity, readable=readable)


@pytest.mark.parametrize("readable", [True, False])
@given(
    st.lists(
        st.tuples(st.integers(1, 12 * MiB), st.sampled_from([1, 256, PAGE, MiB]), st.booleans()), max_size=40
    )
)
def test_regions_are_apart_aligned_and_within_the_capacity(readable, asked):
    memory, held = new_memory(readable=readable), {}
    for num_bytes, alignment, drop in asked:
        where = memory.take(num_bytes, alignment, unified=False)
        if where:
            assert where % alignment == 0
            assert all(where >= at + size or where + num_bytes <= at for at, size in held.items())
            held[where] = num_bytes
        else:
            assert sum(held.values()) + num_bytes > memory.capacity
        if drop and held:
            where, _ = held.popitem()
            memory.give_back(where)
        assert memory.used == sum(held.values()) <= memory.capacity
        assert memory.spilled == 0


def test_a_region_that_went_back_is_zeroed_and_its_addresses_are_used_again():
    memory = new_memory()
    first = memory.take(5 * PAGE, 256, unified=False)
    ctypes.memset(first, 7, 5 * PAGE)
    memory.give_back(first)
    assert ctypes.string_at(first, 5 * PAGE) == bytes(5 * PAGE)  # also through the old address
    assert memory.take(3 * PAGE, 256, unified=False) == first


def test_neighbours_of_a_region_that_went_back_keep_what_was_written():
    memory = new_memory()
    first, second, third = (memory.take(PAGE + 300, 256, unified=False) for _ in range(3))
    for where in (first, second, third):
        ctypes.memset(where, 7, PAGE + 300)
    memory.give_back(second)
    for where in (first, third):
        assert ctypes.string_at(where, PAGE + 300) == b"\7" * (PAGE + 300)


def test_a_large_gpu_costs_what_is_written():
    tracemalloc.start()
    settings, _ = simulated([80 * GiB])
    with DeviceManager.create(settings) as manager:
        where = manager.gpu().allocator().allocate(64 * GiB)
        ctypes.memset(where + 32 * GiB, 1, 100)
        assert ctypes.string_at(where + 32 * GiB, 101) == b"\1" * 100 + b"\0"
    assert tracemalloc.get_traced_memory()[1] < 64 * MiB
    tracemalloc.stop()


def test_more_than_can_be_simulated_is_refused():
    with pytest.raises(DeviceError, match=r"8\.0 TiB"):
        SimulatedMemory(LARGEST + 1, 2 * LARGEST + 2)


def test_heaps_on_one_gpu_can_be_used_by_many_threads_at_once():
    memory = new_memory(256 * MiB)
    heaps = [
        new_heap(128 * MiB, SimulatedGpuSubAllocator(memory), allow_growth=True, garbage_collection=True)
        for _ in range(4)
    ]
    failures = []

    def work(heap, seed):
        try:
            for number in range(200):
                held = [heap.try_allocate((seed * 7919 + number * 104_729) % (8 * MiB) + 1) for _ in range(3)]
                for address in held:
                    heap.free(address or 0)
                if number % 20 == 0:
                    heap.trim()
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(heap, seed)) for seed, heap in enumerate(heaps)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert memory.used == sum(heap.stats().pool_bytes for heap in heaps)
    for heap in heaps:
        heap.check_invariants()
        heap.close()
    assert memory.used == 0


def test_a_full_gpu_is_out_of_memory_and_says_that_the_limit_allowed_more():
    settings, _ = simulated([4 * GiB], taken=2 * GiB)
    settings.set_per_process_gpu_memory_fraction(1.0)
    with DeviceManager.create(settings) as manager:
        with pytest.raises(OutOfMemory, match="the sub-allocator gave none"):
            manager.gpu().allocator().allocate(3 * GiB)
        assert manager.gpu().allocator().allocate(1 * GiB)


def test_a_session_that_is_forgotten_gives_its_memory_back():
    settings, _ = simulated([GiB])
    manager = DeviceManager.create(settings)
    memory = manager.gpu().memory
    manager.gpu().allocator().allocate(100)
    assert memory.used > 0
    del manager
    gc.collect()
    assert memory.used == 0
