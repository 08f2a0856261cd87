"""Tensors: memory from creation to the last reference, shared by views and arrays, written in place."""

import copy
import ctypes
import gc
import pickle
import sys
import threading
from math import prod

import numpy as np
import pytest
from fake_cuda import FakeCuda
from heaps import MIB, assert_model_agrees, new_heap, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from bfcviz.allocator.cuda import KINDS, cuda_sub_allocator
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.allocator.interface import AllocationAttributes
from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.networks import MLP
from bfcviz.devices.tensors import Tensor, checked_shape, resolve_shape
from bfcviz.devices.training import Training
from bfcviz.errors import AllocatorError, InvalidRequest, MissingExtra, OutOfMemory


@pytest.fixture
def heap():
    made = new_heap(4 * MIB, HostSubAllocator())
    yield made
    made.close()


def in_use(heap):
    return heap.stats().chunks_in_use


def test_it_takes_its_memory_when_it_is_made_and_gives_it_back_with_the_last_reference(heap):
    tensor = Tensor(heap, "float32", (64, 256))
    assert in_use(heap) == 1
    assert heap.requested_size(tensor.address) == tensor.nbytes == 64 * 256 * 4
    assert (tensor.shape, tensor.size, tensor.ndim, len(tensor)) == ((64, 256), 64 * 256, 2, 64)
    assert tensor.allocation_id == heap.allocation_id(tensor.address) == 1
    again = tensor
    del tensor
    assert in_use(heap) == 1
    del again
    assert in_use(heap) == 0


@pytest.mark.parametrize(
    "keep",
    [
        lambda tensor: tensor[1:],
        lambda tensor: tensor[0][1],
        lambda tensor: tensor.reshape(-1),
        lambda tensor: tensor.view("u1"),
        lambda tensor: tensor.numpy(),
        lambda tensor: np.asarray(tensor)[1:, ::2].T,
        np.from_dlpack,
        lambda tensor: memoryview(tensor.numpy()),
        lambda tensor: tensor.buffer,
    ],
    ids=[
        "slice",
        "element",
        "reshape",
        "bitcast",
        "numpy",
        "view of an array",
        "dlpack",
        "memoryview",
        "buffer",
    ],
)
def test_whatever_shares_its_memory_keeps_it(heap, keep):
    tensor = Tensor(heap, "float64", (3, 4))
    tensor.write(np.arange(12.0).reshape(3, 4))
    kept, address = keep(tensor), tensor.address
    del tensor
    gc.collect()
    assert heap.requested_size(address) == 96  # a view outlives the tensor
    other = Tensor(heap, "float64", (3, 4))
    assert other.address != address
    del kept
    assert in_use(heap) == 1


def test_an_array_can_be_read_after_the_tensor_is_gone(heap):
    array = Tensor.of(heap, np.arange(1000)).numpy()
    assert array.sum() == 499_500
    del array
    assert in_use(heap) == 0


def test_references_are_counted(heap):
    tensor = Tensor(heap, "int32", (4, 4))
    assert tensor.has_single_reference
    row, array = tensor[1], tensor.numpy()
    assert tensor.buffer.references == 3
    assert not tensor.has_single_reference
    del row, array
    assert tensor.has_single_reference


def test_parts_and_shapes_are_views(heap):
    tensor = Tensor.of(heap, np.arange(24).reshape(4, 6))
    assert tensor[1:3].shape == (2, 6)
    assert tensor[-1].tolist() == [18, 19, 20, 21, 22, 23]
    assert tensor[5:2].shape == (0, 6)
    assert tensor[1:][0][2].tolist() == [8]
    assert tensor.reshape(2, -1).shape == (2, 12)
    assert tensor.reshape((3, 8))[2].tolist() == list(range(16, 24))
    assert tensor.view("u1").shape == (4, 48)
    assert in_use(heap) == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda t: t[4], IndexError),
        (lambda t: t[-5], IndexError),
        (lambda t: t[::2], InvalidRequest),
        (lambda t: t[1.5], TypeError),
        (lambda t: t[0][0][0], IndexError),
        (lambda t: len(t[0][0]), TypeError),
        (lambda t: t.reshape(5, 5), InvalidRequest),
        (lambda t: t.reshape(-1, -1), InvalidRequest),
        (lambda t: t.reshape(-1, 5), InvalidRequest),
        (lambda t: t.view("c16"), None),
        (lambda t: t[0][0].view("c16"), InvalidRequest),
        (lambda t: t.view("string"), InvalidRequest),
        (lambda t: t.get(24), IndexError),
        (copy.deepcopy, TypeError),
        (pickle.dumps, TypeError),
        (lambda t: t.buffer.operations, InvalidRequest),
    ],
)
def test_wrong_uses_are_told(heap, wrong, error):
    tensor = Tensor(heap, "int64", (4, 6))
    before = snapshot(heap)
    if error is None:
        assert wrong(tensor).shape == (4, 3)
    else:
        with pytest.raises(error):
            wrong(tensor)
    assert snapshot(heap) == before


def test_empty_tensors_have_no_memory(heap):
    before = snapshot(heap)
    tensor = Tensor(heap, "float32", (0, 5))
    assert (tensor.address, tensor.nbytes, tensor.allocation_id) == (0, 0, 0)
    assert np.asarray(tensor).shape == (0, 5)
    assert tensor[0:0].shape == (0, 5)
    assert tensor.reshape(5, -1).shape == (5, 0)
    assert "without memory" in repr(tensor)
    del tensor
    assert snapshot(heap) == before


class Opaque:
    """An allocator that returns an address for empty requests, as some of TensorFlow's do."""

    def __init__(self, heap):
        self.heap = heap

    def __getattr__(self, name):
        return getattr(self.heap, name)

    def should_allocate_empty(self):
        return True

    def allocate(self, num_bytes, *others, **more):
        return self.heap.allocate(num_bytes or 1, *others, **more)


def test_empty_tensors_have_memory_where_the_allocator_says_so(heap):
    tensor = Tensor(Opaque(heap), "float32", (0,))
    assert heap.requested_size(tensor.address) == 1
    assert np.asarray(tensor).shape == (0,)
    del tensor
    assert in_use(heap) == 0


def test_a_tensor_that_does_not_fit_changes_nothing(heap):
    keep = Tensor(heap, "u1", (3 * MIB,))
    chunks = heap.memory_map().tolist()
    with pytest.raises(OutOfMemory):
        Tensor(heap, "u1", (2 * MIB,))
    assert heap.memory_map().tolist() == chunks
    assert keep.has_single_reference


def test_a_closed_heap_is_told_of_not_read(heap):
    tensor, names = Tensor(heap, "float32", (8,)), Tensor.of(heap, ["a", "b" * 40])
    heap.close()
    for ask in (Tensor.numpy, Tensor.tolist, lambda gone: gone.allocation_id):
        with pytest.raises(AllocatorError, match="closed"):
            ask(tensor)
    with pytest.raises(AllocatorError, match="closed"):
        names.get(1)
    del tensor, names  # no destructor runs in freed memory


def test_the_request_goes_as_its_attributes_say():
    heap = new_heap(4 * MIB, timestamps=True)
    first = Tensor(heap, "u1", (MIB,))
    address = first.address
    del first
    later = Tensor(heap, "u1", (MIB,), attributes=AllocationAttributes(freed_by=lambda: 1))
    assert later.address == address


def test_a_cycle_is_collected_with_its_memory(heap):
    ring = [Tensor(heap, "f4", (100,))]
    ring.append(ring)
    del ring
    gc.collect()
    assert in_use(heap) == 0


def test_threads_share_tensors(heap):
    tensor = Tensor.of(heap, np.arange(1000))
    failed = []

    def work():
        try:
            for _ in range(200):
                part = tensor[100:200].reshape(10, 10)
                own = Tensor.of(heap, part.numpy() * 2)
                assert own.get(0) == 200
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert tensor.has_single_reference
    assert in_use(heap) == 1
    heap.check_invariants()


# ------------------------------------------------------------------------------
# The values of tensors: reads, writes, and NumPy arrays over the same memory.


def test_an_array_of_it_writes_into_the_heap(heap):
    tensor = Tensor(heap, np.float32, (4,))
    tensor.numpy()[:] = [1, 2, 3, 4]
    assert list((ctypes.c_float * 4).from_address(tensor.address)) == [1, 2, 3, 4]
    np.asarray(tensor)[0] = 7
    assert np.from_dlpack(tensor).ctypes.data == tensor.address  # some versions of NumPy make it read-only
    tensor[2:].numpy()[:] = 9
    assert tensor.tolist() == [7, 2, 9, 9]


def test_values_come_and_go(heap):
    tensor = Tensor.of(heap, [[1, 2], [3, 4]], "float32")
    tensor.put(3, 9)
    assert tensor.get(3) == tensor.get(-1) == 9
    tensor.write(5)
    assert tensor.tolist() == [5.0] * 4
    assert np.add(tensor, 1).tolist() == [[6, 6], [6, 6]]
    scalar = Tensor(heap, "f8", ())
    scalar.write(2.5)
    assert scalar.tolist() == [2.5]
    assert float(np.asarray(scalar)) == 2.5


def test_numpy_copies_only_where_it_must(heap):
    tensor = Tensor.of(heap, np.arange(4, dtype=np.int32))
    assert np.shares_memory(np.asarray(tensor), tensor.numpy())
    assert not np.shares_memory(np.array(tensor), tensor.numpy())
    assert np.asarray(tensor, "f8").dtype == np.float64
    with pytest.raises(ValueError):
        tensor.__array__("f8", copy=False)
    assert tensor.__dlpack_device__() == (1, 0)
    assert not hasattr(tensor, "__cuda_array_interface__")


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", ">f4", "f2", "c16", "S7", "U3", "M8[ns]", "i4,f8"])
def test_numpys_dtypes_all_lie_in_the_heap(heap, dtype):
    values = np.zeros(5, dtype)
    tensor = Tensor.of(heap, values, np.dtype(dtype))
    assert np.asarray(tensor).dtype == np.dtype(dtype)
    assert np.array_equal(np.asarray(tensor), values)
    assert heap.requested_size(tensor.address) == 5 * np.dtype(dtype).itemsize


def test_pretended_memory_has_addresses_but_no_arrays():
    heap = new_heap(MIB)
    tensor = Tensor(heap, "float32", (8,))
    assert heap.requested_size(tensor[2:].buffer.address) == 32
    for ask in (Tensor.numpy, Tensor.tolist, np.asarray):
        with pytest.raises(InvalidRequest, match="without memory"):
            ask(tensor)
    with pytest.raises(AllocatorError):
        tensor.__dlpack_device__()
    del tensor
    assert in_use(heap) == 0


# ------------------------------------------------------------------------------
# Impossible dtypes and shapes raise clear errors and leave the heap unchanged; valid ones have the right bytes.


SIZES = st.lists(st.integers(0, 6), max_size=5)


@pytest.mark.parametrize(
    "shape",
    [
        (-1,),
        (3, -2),
        (0, -1),
        float("nan"),
        (2, float("nan")),
        (2.0,),
        (2, "3"),
        "23",
        None,
        (None,),
        {"a": 1},
        {2, 3},
        (1 << 60,),
        (1 << 62, 1 << 62),
        (1 << 40, 1 << 40, 0),
        (1,) * 33,
        [[2, 3]],
        np.array([1.5]),
        np.array(2.5),
    ],
    ids=repr,
)
def test_shapes_that_cannot_be(shape):
    heap = new_heap(MIB)
    before = snapshot(heap)
    with pytest.raises(InvalidRequest) as caught:
        Tensor(heap, "float64", shape)
    assert len(str(caught.value)) > 20
    assert snapshot(heap) == before


@pytest.mark.parametrize(
    "dtype",
    [
        None,
        "no type",
        "float31",
        object,
        "O",
        "V0",
        "U",
        str,
        "(2,2)f4",
        float("nan"),
        3,
        {},
        {"names": 1},
        [1],
    ],
    ids=repr,
)
def test_dtypes_that_cannot_be(dtype):
    heap = new_heap(MIB)
    before = snapshot(heap)
    with pytest.raises(InvalidRequest) as caught:
        Tensor(heap, dtype, (2, 2))
    assert "dtype" in str(caught.value)
    assert snapshot(heap) == before


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        (5, (5,)),
        ((), ()),
        ([2, 3], (2, 3)),
        (np.array([2, 3]), (2, 3)),
        (np.int64(4), (4,)),
        (np.array(4), (4,)),
    ],
)
def test_shapes_come_in_many_forms(shape, sizes):
    assert checked_shape(shape) == sizes
    assert checked_shape(iter(sizes)) == sizes


@given(SIZES, st.sampled_from(["u1", "f4", "c16"]))
def test_every_shape_has_the_bytes_it_says(sizes, dtype):
    heap = new_heap(MIB, HostSubAllocator())
    tensor = Tensor(heap, dtype, sizes)
    assert tensor.nbytes == prod(sizes) * np.dtype(dtype).itemsize == heap.stats().requested_bytes_in_use
    array = tensor.numpy()
    assert array.shape == tuple(sizes)
    assert array.nbytes == tensor.nbytes
    del tensor, array
    assert heap.stats().chunks_in_use == 0


@given(SIZES, st.randoms())
def test_reshaping_is_numpys(sizes, chance):
    count = prod(sizes)
    array = np.zeros(count)
    wish = [size for size in sizes if count or size] or [count]
    if chance.random() < 0.5 and 0 not in wish:
        wish[chance.randrange(len(wish))] = -1
    try:
        expected = array.reshape(wish).shape
    except ValueError:
        with pytest.raises(InvalidRequest):
            resolve_shape(wish, count)
    else:
        assert resolve_shape(wish, count) == expected


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_parts_are_numpys(sizes, data):
    heap = new_heap(MIB, HostSubAllocator())
    values = np.arange(prod(sizes)).reshape(sizes)
    tensor = Tensor.of(heap, values)
    while tensor.ndim:
        index = (
            data.draw(st.integers(-tensor.shape[0], tensor.shape[0] - 1) | st.slices(tensor.shape[0]))
            if (tensor.shape[0])
            else slice(None)
        )
        if isinstance(index, slice) and index.step not in (None, 1):
            index = slice(index.start, index.stop)
        tensor, values = tensor[index], values[index]
        assert np.array_equal(tensor.numpy(), values)
        if isinstance(index, slice):
            break


# ------------------------------------------------------------------------------
# Tensors in GPU memory over a fake driver: addresses, array interfaces, lifetimes.


def gpu_heap(memory="device"):
    return new_heap(16 * MIB, cuda_sub_allocator(memory, driver=Driver(FakeCuda())))


@pytest.mark.parametrize("memory", KINDS)
def test_it_says_where_it_is(memory):
    heap = gpu_heap(memory)
    tensor = Tensor(heap, "float32", (4, 8))
    assert (tensor.place.kind, tensor.place.device, str(tensor.place)) == ("cuda", 0, "memory of GPU 0")
    interface = tensor[1].__cuda_array_interface__
    assert interface["data"] == (tensor.address + 32, False)
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((8,), "<f4", 3)
    with pytest.raises(InvalidRequest, match="NumPy"):
        tensor.numpy()
    with pytest.raises(InvalidRequest, match="host memory"):
        Tensor(heap, "string", (2,))
    heap.close()
    with pytest.raises(AllocatorError, match="closed"):
        _ = tensor.__cuda_array_interface__


def test_without_cupy_the_command_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    heap = gpu_heap()
    with pytest.raises(MissingExtra, match="pip install"):
        Tensor(heap, "float32", (4,)).array()
    with pytest.raises(MissingExtra):
        Training(MLP(), heap)
    Training(MLP(), heap, compute=False).run(1)
    assert heap.stats().chunks_in_use == 0


def test_cupys_arrays_lie_in_it_and_keep_it():
    cupy = pytest.importorskip("cupy")
    heap = gpu_heap()
    tensor = Tensor(heap, "float32", (4, 8))
    array = tensor.array()
    assert isinstance(array, cupy.ndarray)
    assert array.data.ptr == tensor.address
    assert (array.shape, array.dtype, array.flags.c_contiguous) == ((4, 8), np.float32, True)
    part = array[2:, 3:]
    del tensor, array
    assert heap.stats().chunks_in_use == 1
    del part
    assert heap.stats().chunks_in_use == 0


# ------------------------------------------------------------------------------
# Tensors, views and arrays created and dropped in any order: memory is in use while one of them exists.


class Holder:
    """An object that keeps a buffer's memory, and the number that fills the buffer."""

    def __init__(self, thing, number):
        self.thing = thing
        self.number = number


class Sharing(RuleBasedStateMachine):
    tensors = Bundle("tensors")
    arrays = Bundle("arrays")

    @initialize()
    def begin(self):
        self.heap = new_heap(MIB, HostSubAllocator(), allow_growth=True, garbage_collection=True)
        self.made = 0
        self.holders = {}  # number of holders, by number of the buffer

    def hold(self, thing, number):
        self.holders[number] = self.holders.get(number, 0) + 1
        return Holder(thing, number)

    @rule(target=tensors, rows=st.integers(1, 40), columns=st.integers(1, 40))
    def make(self, rows, columns):
        self.made += 1
        tensor = Tensor(self.heap, "int64", (rows, columns), kernel=f"tensor {self.made}")
        tensor.write(self.made)
        return self.hold(tensor, self.made)

    @rule(target=tensors, holder=tensors, chance=st.randoms())
    def slice(self, holder, chance):
        tensor = holder.thing
        first = chance.randrange(tensor.shape[0])
        return self.hold(tensor[first : first + chance.randint(1, 5)], holder.number)

    @rule(target=tensors, holder=tensors)
    def reshape(self, holder):
        return self.hold(holder.thing.reshape(-1, 1), holder.number)

    @rule(target=arrays, holder=tensors)
    def take_array(self, holder):
        return self.hold(holder.thing.numpy(), holder.number)

    @rule(target=arrays, holder=tensors)
    def share(self, holder):
        return self.hold(np.from_dlpack(holder.thing), holder.number)

    @rule(target=arrays, holder=arrays)
    def view_array(self, holder):
        return self.hold(holder.thing[: len(holder.thing)].T, holder.number)

    @rule(holder=consumes(tensors))
    def drop_tensor(self, holder):
        self.drop(holder)

    @rule(holder=consumes(arrays))
    def drop_array(self, holder):
        self.drop(holder)

    def drop(self, holder):
        assert (np.asarray(holder.thing) == holder.number).all()  # no other write reached it
        holder.thing = None
        self.holders[holder.number] -= 1
        if self.holders[holder.number] == 0:
            del self.holders[holder.number]

    @invariant()
    def memory_is_in_use_while_a_holder_exists(self):
        if hasattr(self, "heap"):
            chunks = self.heap.memory_map()
            names = [self.heap.labels.name(int(label)) for label in chunks["label"][chunks["in_use"]]]
            assert sorted(names) == sorted(f"tensor {number}" for number in self.holders)

    def teardown(self):
        self.heap.check_invariants()
        assert_model_agrees(self.heap)


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


def test_the_collector_is_not_needed():
    heap = new_heap(MIB, HostSubAllocator())
    gc.disable()
    try:
        for _ in range(10):
            tensor = Tensor.of(heap, np.arange(100))
            np.asarray(tensor.reshape(10, -1)[2:])[:] = 0
            del tensor
            assert heap.stats().chunks_in_use == 0
    finally:
        gc.enable()
