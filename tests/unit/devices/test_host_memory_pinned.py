"""Pinned memory: allocated by the driver, and named in the description."""

from unit.devices.machines import fake

from bfcviz.allocator.interface import AllocatorAttributes
from bfcviz.devices import DeviceManager

FOR_GPU = AllocatorAttributes(on_host=True, gpu_compatible=True)


def test_memory_for_transfers_is_pinned_and_said_to_be():
    settings, _, library = fake()
    with DeviceManager.create(settings) as manager:
        cpu = manager["CPU:0"]
        assert cpu.pinned
        pool = manager.gpu().allocator(FOR_GPU)
        assert pool.name == "gpu_host_bfc"
        assert library.pinned == {}
        assert pool.allocate(1000) in library.pinned
        assert "not pinned" not in cpu.description
        assert cpu.allocator() is not pool
    assert library.pinned == {}
