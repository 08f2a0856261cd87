"""Tensors and training on every kind of allocator: bare heaps, wrapped ones, devices."""

import ctypes
import gc
import sys

import numpy as np
import pytest
from contracts.allocators import HEAPS, wrapped
from heaps import MIB, new_heap

from bfcviz import devices
from bfcviz.allocator.interface import AllocatorAttributes
from bfcviz.allocator.sub_allocators import HostSubAllocator, PythonSubAllocator
from bfcviz.devices.memory_access import HOST, place_of
from bfcviz.devices.tensors import MemoryLog, Tensor
from bfcviz.devices.training import MLP, ConvNet, Training
from bfcviz.devices.wrappers import GuardAllocator
from bfcviz.errors import AllocatorError, GuardOverrun, InvalidRequest
from bfcviz.units import GiB

WRAPPINGS = [
    (),
    ("tracking",),
    ("guard",),
    ("nan",),
    ("limit", "retry"),
    ("tracking", "guard", "nan"),
    ("nan", "guard", "tracking", "alert"),
]


def host_heap():
    return new_heap(4 * MIB, HostSubAllocator())


@pytest.mark.parametrize("kind", HEAPS)
def test_every_heap_has_tensors(kind):
    heap = HEAPS[kind](MIB)
    tensors = [Tensor(heap, "float32", (size, 3)) for size in (1, 100, 3000)]
    view = tensors[1][10:]
    tensors.clear()
    assert heap.stats().chunks_in_use == 1
    assert heap.requested_size(view.buffer.address) == 1200
    del view
    assert heap.stats().chunks_in_use == 0
    heap.check_invariants()


@pytest.mark.parametrize("names", WRAPPINGS, ids=" in ".join)
def test_a_training_is_the_same_in_any_wrappers(names):
    """Also in memory full of NaN: no kernel reads unwritten memory or writes out of bounds."""
    model = ConvNet(batch=4, classes=3, image=8, channels=(2, 3))
    expected = Training(model, host_heap()).run(3)
    allocator = wrapped(host_heap(), names)
    training = Training(model, allocator)
    assert training.run(3) == expected
    if names:
        allocator.check_invariants()
    del training
    assert allocator.stats().chunks_in_use == 0


@pytest.mark.parametrize("names", WRAPPINGS, ids=" in ".join)
def test_the_memory_log_knows_tensors_in_wrappers(names):
    allocator = wrapped(host_heap(), names)
    with MemoryLog() as log:
        tensor = Tensor(allocator, "float32", (10,), kernel="k")
        made, number = log.records[0], tensor.allocation_id
        del tensor
    assert (made.requested, made.kernel, made.allocation_id) == (40, "k", number)
    assert log.alive == []


def test_an_overrun_is_told_when_the_tensor_goes(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda caught: told.append(caught.exc_value))
    guard = GuardAllocator(host_heap())
    tensor = Tensor(guard, "u1", (100,), kernel="writer")
    address = tensor.address
    ctypes.memset(address, 1, 101)
    del tensor
    assert isinstance(told[0], GuardOverrun)
    assert "writer" in str(told[0])
    assert guard.stats().chunks_in_use == 1
    told.clear()
    guard.mend(address)
    guard.free(address)


class OwnPages(PythonSubAllocator):
    """A user's sub-allocator that declares its memory to be host memory."""

    place = "host"

    def __init__(self):
        super().__init__()
        self.kept = []

    def allocate(self, alignment, num_bytes):
        pages = ctypes.create_string_buffer(num_bytes + 4096)
        self.kept.append(pages)
        return -(-ctypes.addressof(pages) // 4096) * 4096, num_bytes

    def free(self, address, num_bytes):
        pass


def test_a_sub_allocator_may_say_that_its_memory_is_the_hosts():
    heap = new_heap(MIB, OwnPages())
    assert place_of(heap) == HOST
    assert Tensor.of(heap, [1, 2, 3]).tolist() == [1, 2, 3]
    assert str(place_of(new_heap(MIB))) == "no real memory"


@pytest.fixture
def session():
    settings = devices.Settings(devices.simulate_gpus([GiB]), environment={})
    with devices.DeviceManager.create(settings) as made:
        yield made


@pytest.mark.parametrize(
    "attributes",
    [{}, {"on_host": True}, {"on_host": True, "gpu_compatible": True}],
    ids=["gpu", "host", "for transfers"],
)
def test_tensors_live_in_every_memory_of_a_simulated_gpu(session, attributes):
    allocator = session.gpu(0).allocator(AllocatorAttributes(**attributes))
    model = MLP(batch=4, classes=2, sizes=(3, 5))
    assert Training(model, allocator).run(3) == Training(model, host_heap()).run(3)
    tensor = Tensor.of(allocator, np.arange(5))
    array = tensor.numpy()
    del tensor
    assert allocator.stats().chunks_in_use == 1
    assert array.sum() == 10


def test_addresses_alone_are_trained_without_numbers():
    gpus = devices.simulate_gpus([16 * GiB], memory="addresses")
    with devices.DeviceManager.create(devices.Settings(gpus, environment={})) as session:
        allocator = session.gpu(0).allocator()
        tensor = Tensor(allocator, "float32", (1 << 30,))
        with pytest.raises(InvalidRequest, match="without memory"):
            tensor.numpy()
        del tensor
        Training(MLP(batch=1 << 16, sizes=(4096, 4096)), allocator).run(1)
        assert allocator.stats().peak_bytes_in_use > GiB
        assert allocator.stats().chunks_in_use == 0


def test_a_tensor_outlives_its_session():
    settings = devices.Settings(devices.simulate_gpus([GiB]), environment={})
    session = devices.DeviceManager.create(settings)
    tensor = Tensor.of(session.gpu(0).allocator(), [1.0, 2.0])
    array = tensor.numpy()
    session.close()
    with pytest.raises(AllocatorError, match="closed"):
        tensor.numpy()
    del tensor, session, settings
    gc.collect()
    assert array.tolist() == [0, 0]  # the pages are dropped, the addresses stay mapped: no crash
