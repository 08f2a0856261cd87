"""Devices of a real GPU: memory of the device, pinned memory of the host, and streams that CuPy works on."""

import numpy as np
import pytest
from gpu.cuda_machine import cupy, needs_gpu

from bfcviz.allocator.interface import AllocatorAttributes
from bfcviz.devices import DeviceManager, Settings, cuda_gpus
from bfcviz.units import MiB

pytestmark = needs_gpu


@pytest.fixture
def manager():
    settings = Settings(environment={})
    for gpu in settings.list_physical_devices("GPU"):
        settings.set_memory_growth(gpu, True)
    with DeviceManager.create(settings) as made:
        yield made


def on_device(address, count, owner):
    memory = cupy.cuda.UnownedMemory(address, 4 * count, owner)
    return cupy.ndarray((count,), cupy.float32, cupy.cuda.MemoryPointer(memory, 0))


def shared_stream(stream):
    """CuPy's object of a device's stream; before CuPy 14 it knows no protocol, since then no bare handles."""
    make = getattr(cupy.cuda.Stream, "from_external", None)
    return cupy.cuda.ExternalStream(stream.handle) if make is None else make(stream)


def test_the_driver_and_cupy_tell_the_same_of_each_gpu():
    gpus = cuda_gpus()
    assert len(gpus) == cupy.cuda.runtime.getDeviceCount()
    for gpu in gpus:
        facts = cupy.cuda.runtime.getDeviceProperties(gpu.ordinal)
        assert (gpu.description, gpu.total_bytes) == (facts["name"].decode(), facts["totalGlobalMem"])
        assert gpu.compute_capability == (facts["major"], facts["minor"])
        assert not gpu.simulated
        assert 0 < gpu.available_bytes() <= gpu.total_bytes


def test_cupy_computes_in_the_heap_of_a_device(manager):
    device = manager.gpu(0)
    heap = device.allocator()
    address = heap.allocate(4 * MiB)
    with shared_stream(device.compute_stream):
        array = on_device(address, MiB, heap)
        array[:] = 1.5
        total = array.sum()
    device.synchronize()
    assert float(total) == 1.5 * MiB
    assert device.compute_stream.submit(lambda: float(array[0])).result() == 1.5


def test_memory_for_transfers_is_pinned(manager):
    pool = manager["CPU:0"].allocator(AllocatorAttributes(gpu_compatible=True))
    address = pool.allocate(4000)
    host = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1000).from_address(address))
    host[:] = np.arange(1000)
    kind = cupy.cuda.runtime.pointerGetAttributes(address).type
    assert kind == cupy.cuda.runtime.memoryTypeHost
    np.testing.assert_array_equal(cupy.asarray(host).get(), host)
