"""Host memory of a session: ordinary, and the pool for transfers."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from heaps import new_heap
from unit.devices.machines import fake, new_settings

from bfcviz.allocator.interface import AllocatorAttributes
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.devices import DeviceManager
from bfcviz.devices.session import AllocatorFactory, AllocatorRegistry
from bfcviz.errors import DevicesError
from bfcviz.units import GiB, MiB

ON_HOST = AllocatorAttributes(on_host=True)
FOR_GPU = AllocatorAttributes(gpu_compatible=True)
BOTH = AllocatorAttributes(on_host=True, gpu_compatible=True)


def test_a_registry_can_make_the_memory_of_the_cpu():
    registry = AllocatorRegistry()
    mine = new_heap(64 * MiB)
    registry.register("mine", 1, AllocatorFactory(lambda: mine, lambda _: SimulatedSubAllocator()))
    with DeviceManager.create(new_settings(), registry=registry) as manager:
        assert manager["CPU:0"].allocator() is manager.gpu().allocator(ON_HOST) is mine
        assert manager["CPU:0"].allocator(FOR_GPU) is not mine
        with pytest.raises(DevicesError, match="AllocatorRegistry"):
            manager["CPU:0"].trace()
    assert mine.allocate(100)  # the registry owns it: not closed


def test_without_cuda_memory_for_transfers_is_called_not_pinned(manager):
    cpu = manager["CPU:0"]
    assert not cpu.pinned
    assert "not pinned" in cpu.allocator(FOR_GPU).name
    assert "not pinned" in cpu.description


def test_threads_that_ask_at_once_get_the_same_memory(manager):
    together = threading.Barrier(4)

    def ask(_):
        together.wait()
        return manager["CPU:0"].allocator(FOR_GPU)

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(ask, range(4))
    assert all(other is first for other in others)


def test_force_gpu_compatible_takes_all_host_memory_from_the_pool_for_transfers():
    settings = new_settings()
    settings.set_gpu_options(force_gpu_compatible=True, gpu_host_mem_limit_in_mb=100)
    with DeviceManager.create(settings) as manager:
        pool = manager["CPU:0"].allocator()
        assert pool is manager["GPU:0"].allocator(ON_HOST)
        assert pool.stats().bytes_limit == 100 * MiB


@pytest.mark.parametrize(
    ("option", "variable", "limit"),
    [(0, None, 64 * GiB), (0, "100", 100 * MiB), (200, "100", 200 * MiB), (0, "many", 64 * GiB)],
)
def test_the_pool_for_transfers_has_a_limit_of_its_own(option, variable, limit):
    settings = new_settings(environment={"TF_GPU_HOST_MEM_LIMIT_IN_MB": variable} if variable else {})
    settings.set_gpu_options(gpu_host_mem_limit_in_mb=option)
    with DeviceManager.create(settings) as manager:
        assert manager.gpu().allocator(BOTH).stats().bytes_limit == limit


# ------------------------------------------------------------------------------
# Pinned memory: allocated by the driver, and named in the description.


def test_memory_for_transfers_is_pinned_and_said_to_be():
    settings, _, library = fake()
    with DeviceManager.create(settings) as manager:
        cpu = manager["CPU:0"]
        assert cpu.pinned
        pool = manager.gpu().allocator(BOTH)
        assert pool.name == "gpu_host_bfc"
        assert library.pinned == {}
        assert pool.allocate(1000) in library.pinned
        assert "not pinned" not in cpu.description
        assert cpu.allocator() is not pool
    assert library.pinned == {}
