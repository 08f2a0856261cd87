"""Impossible dtypes and shapes raise clear errors and leave the heap unchanged; valid ones have the right bytes."""

from math import prod

import numpy as np
import pytest
from heaps import MIB, new_heap, snapshot
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.tensors import Tensor, checked_shape, resolve_shape
from bfcviz.errors import InvalidRequest

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
