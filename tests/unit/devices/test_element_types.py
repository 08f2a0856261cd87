"""Constructed elements: each is constructed once after allocation and destroyed once before the free."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
from heaps import MIB, new_heap, snapshot
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.tensors import SPECIAL, ElementType, Tensor, element_type
from bfcviz.errors import InvalidRequest, OutOfMemory


@pytest.fixture
def heap():
    made = new_heap(4 * MIB, HostSubAllocator())
    yield made
    made.close()


class Counting:
    """ElementOperations that record the calls; the constructor number `fail_at` raises."""

    def __init__(self, told, fail_at=None):
        self.told = told
        self.fail_at = fail_at

    def construct(self, address):
        if len(self.told) == self.fail_at:
            raise RuntimeError("no more")
        ctypes.c_uint64.from_address(address).value = 7
        self.told.append(("+", address))

    def destroy(self, address):
        assert ctypes.c_uint64.from_address(address).value == 7  # still its own memory
        self.told.append(("-", address))


def counted(told, fail_at=None):
    return ElementType("counted", 16, operations=lambda: Counting(told, fail_at))


def test_constructors_and_destructors_run_once_for_each_element(heap):
    told = []
    tensor = Tensor(heap, counted(told), (2, 3))
    places = [tensor.address + 16 * number for number in range(6)]
    assert told == [("+", place) for place in places]
    view = tensor[1]
    del tensor
    assert len(told) == 6
    del view
    assert told[6:] == [("-", place) for place in places]
    assert heap.stats().chunks_in_use == 0


def test_a_constructor_that_fails_leaves_nothing_behind(heap):
    told = []
    with pytest.raises(RuntimeError, match="no more"):
        Tensor(heap, counted(told, fail_at=3), (5,))
    assert [what for what, _ in told] == ["+", "+", "+", "-", "-", "-"]
    assert heap.stats().chunks_in_use == 0


def test_nothing_is_constructed_without_memory(heap):
    told = []
    with pytest.raises(OutOfMemory):
        Tensor(heap, counted(told), (MIB,))
    Tensor(heap, counted(told), (0,))
    assert told == []


@pytest.mark.parametrize("name", SPECIAL)
def test_constructed_elements_lie_in_host_memory_only(name):
    heap = new_heap(MIB)
    before = snapshot(heap)
    with pytest.raises(InvalidRequest, match="host memory"):
        Tensor(heap, name, (3,))
    assert snapshot(heap) == before


def test_short_texts_lie_in_the_heap_itself(heap):
    tensor = Tensor.of(heap, ["left", "x" * 22, "y" * 23, ""])
    assert (tensor.dtype.name, tensor.nbytes) == ("string", 4 * 24)
    memory = ctypes.string_at(tensor.address, tensor.nbytes)
    assert memory[:5] == bytes([4 << 2]) + b"left"  # as TensorFlow's tstring
    assert b"x" * 22 in memory
    assert b"y" * 5 not in memory
    assert tensor.tolist() == [b"left", b"x" * 22, b"y" * 23, b""]


def test_texts_begin_empty_though_the_memory_was_used_before(heap):
    Tensor(heap, "u1", (240,)).write(255)
    assert Tensor(heap, "string", (10,)).tolist() == [b""] * 10


def test_texts_as_an_array_are_a_copy(heap):
    tensor = Tensor.of(heap, [["a", "b"], ["c", "d"]])
    array = np.asarray(tensor)
    assert array.dtype == object
    assert array.tolist() == [[b"a", b"b"], [b"c", b"d"]]
    with pytest.raises(ValueError):
        tensor.__array__(copy=False)
    with pytest.raises(InvalidRequest, match="string"):
        tensor.numpy()
    with pytest.raises(InvalidRequest, match="text"):
        tensor.put(0, 5)
    tensor[1].put(0, b"new")
    assert tensor.get(2) == b"new"


class Thing:
    pass


@pytest.mark.parametrize("name", ["resource", "variant"])
def test_objects_live_as_long_as_their_element(heap, name):
    tensor, thing = Tensor(heap, name, (3,)), Thing()
    seen = weakref.ref(thing)
    tensor.put(1, thing)
    tensor.put(2, "other")
    assert tensor.tolist() == [None, thing, "other"]
    del thing
    gc.collect()
    assert seen() is not None
    tensor.put(1, None)
    assert seen() is None
    tensor.put(0, Thing())
    seen = weakref.ref(tensor.get(0))
    del tensor
    assert seen() is None


def test_a_type_is_known_by_many_names():
    assert element_type("float32") == element_type(np.float32) == element_type(np.dtype("f4"))
    assert str(element_type("string")) == "string"
    assert element_type(SPECIAL["variant"]) is SPECIAL["variant"]


@given(st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=60)), max_size=40))
def test_texts_are_what_was_put_there_last(puts):
    heap = new_heap(MIB, HostSubAllocator())
    tensor, expected = Tensor(heap, "string", (5,)), [b""] * 5
    for index, text in puts:
        tensor.put(index, text)
        expected[index] = text
        assert tensor.tolist() == expected
    del tensor
    assert heap.stats().chunks_in_use == 0


def test_any_objects_can_be_values(heap):
    values = [{"a": 1}, None, (2, 3)]
    array = np.empty(3, object)
    array[:] = values
    tensor = Tensor.of(heap, array, "variant")
    assert tensor.tolist() == values
    with pytest.raises(InvalidRequest, match="text"):
        Tensor.of(heap, array)
    gc.collect()
    assert heap.stats().chunks_in_use == 1
