"""NaNFillAllocator: uninitialised and freed memory is NaN."""

import ctypes

import numpy as np
import pytest
from heaps import MIB, new_heap
from unit.devices.wrappers.plain_allocator import PlainAllocator

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.memory_access import SimulatedAccess
from bfcviz.devices.wrappers import FREED, FRESH, NaNFillAllocator, TrackingAllocator
from bfcviz.errors import DoubleFree, InteriorPointer, InvalidRequest

FLOATS = ["f2", "f4", "f8"]


@pytest.fixture
def nan():
    with NaNFillAllocator(new_heap(8 * MIB, HostSubAllocator())) as made:
        yield made


def array(address, count, dtype):
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fresh_memory_is_nan(nan, dtype):
    address = nan.allocate_elements(dtype, 1000)
    assert np.isnan(array(address, 1000, dtype)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_freed_memory_is_nan(nan, dtype):
    address = nan.allocate_elements(dtype, 1000)
    values = array(address, 1000, dtype)
    values[:] = 1
    nan.free(address)
    assert np.isnan(values).all()
    assert values.tobytes()[:2] == FREED
    assert np.frombuffer(FRESH, "i2")[0] == -1


def test_used_again_it_is_fresh_again(nan):
    address = nan.allocate(100)
    nan.free(address)
    assert nan.allocate(64) == address
    assert ctypes.string_at(address, 66) == FRESH * 32 + FREED  # followed by bytes of the old chunk


@pytest.mark.parametrize("size", [1, 3, 255, (1 << 20) + 1, (3 << 20) - 1])
def test_every_byte_that_was_asked_for_is_filled_and_no_other(nan, size):
    address = nan.allocate(size)
    data = ctypes.string_at(address, size + 1)
    assert data == (FRESH * (size // 2 + 1))[:size] + b"\0"


def test_a_wrong_free_fills_nothing(nan):
    address = nan.allocate(100)
    for wrong, error in ((address + 8, InteriorPointer), (address + 256, DoubleFree)):
        with pytest.raises(error):
            nan.free(wrong)
    assert ctypes.string_at(address, 100) == FRESH * 50


def test_after_the_end_nothing_is_filled(nan):
    address = nan.allocate(100)
    nan.wrapped.close()
    nan.free(address)


def test_memory_that_cannot_be_filled_is_given_back():
    class Broken(SimulatedAccess):
        def fill(self, address, num_bytes, pattern):
            raise RuntimeError("no such memory")

    nan = NaNFillAllocator(new_heap(), access=Broken())
    with pytest.raises(RuntimeError):
        nan.allocate(100)
    assert nan.stats().chunks_in_use == 0


def test_sizes_must_be_known():
    with pytest.raises(InvalidRequest, match="TrackingAllocator"):
        NaNFillAllocator(PlainAllocator(), access=SimulatedAccess())
    nan = NaNFillAllocator(TrackingAllocator(PlainAllocator()), access=SimulatedAccess())
    address = nan.allocate(5)
    nan.free(address)
    assert nan.access.read(address, 5) == (FREED * 3)[:5]
