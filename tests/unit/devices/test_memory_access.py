"""Access: bytes of the host, of a device by copies, and of simulated memory."""

import ctypes
import gc
import sys

import numpy as np
import pytest
from contracts.allocators import HEAPS, wrapped
from fake_cuda import FakeCuda
from heaps import MIB, Scripted, new_heap
from hypothesis import given
from hypothesis import strategies as st

from bfcviz import devices
from bfcviz.allocator.cuda import cuda_sub_allocator
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.allocator.interface import AllocatorAttributes
from bfcviz.allocator.sub_allocators import HostSubAllocator, PythonSubAllocator
from bfcviz.devices.allocator_wrappers import FRESH, GuardAllocator, NaNFillAllocator, TrackingAllocator
from bfcviz.devices.memory_access import (
    HOST,
    PAGE,
    Access,
    DeviceAccess,
    HostAccess,
    SimulatedAccess,
    access_to,
    place_of,
)
from bfcviz.devices.networks import MLP, ConvNet
from bfcviz.devices.physical_devices import SimulatedGpuSubAllocator, SimulatedMemory
from bfcviz.devices.tensors import MemoryLog, Tensor
from bfcviz.devices.training import Training
from bfcviz.errors import AllocatorError, DeviceError, GuardOverrun, InvalidRequest
from bfcviz.units import GiB


class CopyingCuda(FakeCuda):
    """The stand-in for the driver, with bytes behind its addresses."""

    def __init__(self, **options):
        super().__init__(**options)
        self.bytes = SimulatedAccess()

    def _cuMemcpyDtoH_v2(self, data, where, size):  # noqa: N802  the driver's name
        assert self.contexts
        ctypes.memmove(data, self.bytes.read(where, size), size)

    def _cuMemcpyHtoD_v2(self, where, data, size):  # noqa: N802  the driver's name
        assert self.contexts
        assert len(data) == size
        self.bytes.write(where, data)


def on_device(library=None):
    source = cuda_sub_allocator("device", driver=Driver(library or CopyingCuda()))
    return new_heap(8 * MIB, source, allow_growth=True)


def test_memory_is_reached_as_fits_where_it_lies():
    assert isinstance(access_to(new_heap()), SimulatedAccess)
    with new_heap(MIB, HostSubAllocator()) as heap:
        assert isinstance(access_to(TrackingAllocator(heap)), HostAccess)
    with on_device() as heap:
        access = access_to(heap)
        assert isinstance(access, DeviceAccess)
        assert access.device == 0


def test_wrappers_around_each_other_see_the_same_bytes():
    nan = NaNFillAllocator(new_heap())
    guard = GuardAllocator(TrackingAllocator(nan))
    assert guard.access is nan.access


@pytest.mark.parametrize(("place", "kind"), [("host", HostAccess), ("nowhere", SimulatedAccess)])
def test_a_sub_allocator_may_say_where_its_memory_is(place, kind):
    source = Scripted(lambda alignment, num_bytes: None)
    heap = new_heap(MIB, source)
    with pytest.raises(InvalidRequest, match="HostAccess"):
        access_to(heap)
    source.place = place
    assert isinstance(access_to(heap), kind)


@pytest.mark.parametrize("readable", [True, False])
def test_memory_of_a_simulated_gpu_can_be_guarded(readable):
    memory = SimulatedMemory(8 * MIB, 16 * MIB, readable=readable)
    with NaNFillAllocator(GuardAllocator(new_heap(8 * MIB, SimulatedGpuSubAllocator(memory)))) as nan:
        guard = nan.wrapped
        address = nan.allocate(100, label="weights")
        if readable:
            assert ctypes.string_at(address, 100) == FRESH * 50
        guard.access.write(address + 100, b"\x5a")
        with pytest.raises(GuardOverrun, match="'weights'"):
            guard.check()
        guard.mend(address)
        nan.free(address)


def test_a_byte_outside_a_chunk_of_a_device_is_found_by_copies():
    library = CopyingCuda()
    guard = GuardAllocator(on_device(library))
    first, second = guard.allocate(100, label="weights"), guard.allocate(100, label="bias")
    for address, label, neighbour in ((first + 100, "weights", "bias"), (second - 1, "bias", "weights")):
        library.bytes.write(address, b"\x5a")
        with pytest.raises(GuardOverrun) as caught:
            guard.check()
        (damage,) = caught.value.damages
        assert (damage.chunk.label, damage.neighbour.label, damage.address) == (label, neighbour, address)
        guard.mend(damage.chunk.address)
    guard.free(first)
    guard.free(second)
    guard.close()
    assert library.used == 0


def test_memory_of_a_device_is_filled():
    nan = NaNFillAllocator(on_device())
    address = nan.allocate(3 * MIB + 1)
    assert nan.access.read(address, 3 * MIB + 2) == (FRESH * (3 * MIB))[: 3 * MIB + 1] + b"\0"
    nan.close()


def test_a_copy_that_fails_is_told_and_the_chunk_given_back():
    library = CopyingCuda()
    guard = GuardAllocator(on_device(library))
    library.fails = {"cuMemcpyHtoD_v2": 700}
    with pytest.raises(DeviceError, match="cuMemcpyHtoD_v2 failed"):
        guard.allocate(100)
    assert guard.stats().chunks_in_use == 0
    guard.close()


writes = st.lists(st.tuples(st.integers(0, 3 * PAGE), st.binary(max_size=300)), max_size=6)
fills = st.lists(st.tuples(st.integers(0, 3 * PAGE), st.integers(0, 3 * PAGE), st.binary(min_size=1, max_size=5)),
                 max_size=3)  # fmt: skip


@given(writes, fills, writes)
def test_pretended_memory_reads_as_real_memory_would(before, patterns, after):
    real = bytearray(7 * PAGE)
    memory = SimulatedAccess()
    base = 5 * PAGE

    def write(at, data):
        memory.write(base + at, data)
        real[at : at + len(data)] = data

    for at, data in before:
        write(at, data)
    for at, size, pattern in patterns:
        memory.fill(base + at, size, pattern)
        real[at : at + size] = (pattern * size)[:size]
    for at, data in after:
        write(at, data)
    assert memory.read(base, len(real)) == real


@given(st.integers(0, 300), st.binary(min_size=1, max_size=5))
def test_host_memory_is_filled_to_the_byte(size, pattern):
    buffer = ctypes.create_string_buffer(400)
    HostAccess().fill(ctypes.addressof(buffer), size, pattern)
    assert buffer.raw == (pattern * size)[:size] + bytes(400 - size)


@pytest.mark.parametrize("kind", [HostAccess, SimulatedAccess])
def test_each_is_an_access(kind):
    assert isinstance(kind(), Access)


# ------------------------------------------------------------------------------
# Tensors and training on every kind of allocator: bare heaps, wrapped ones, devices.


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
