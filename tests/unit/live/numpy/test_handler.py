"""The memory handler that NumPy calls: new, zeroed, resized and freed arrays, and those of NumPy's own memory."""

import numpy as np
import pytest
from heaps import MIB
from processes import needs_compiled
from unit.live.numpy.arrays import is_ours, served

from bfcviz.events.schema import Kind

pytestmark = needs_compiled


@pytest.mark.parametrize("num_bytes", [0, 1, 100, 5 * MIB, 40 * MIB + 12_345])
def test_zeros_are_zero_in_memory_used_before(num_bytes):
    with served("128MiB"):
        for _ in range(3):
            array = np.zeros(num_bytes, np.uint8)
            assert not array.any()
            array += 7
            del array


def test_sorting_a_column_which_frees_null_too_does_no_harm():
    rows = np.zeros(50, [("a", "<u8"), ("b", "<u4")])
    with served() as service:
        for _ in range(3):
            np.argsort(rows["a"])
            np.empty(10)
    assert service.allocator.stats().chunks_in_use == 0
    assert service.allocator.rejected_frees == 0


def test_resizing_keeps_contents():
    with served() as service:
        array = np.arange(1000)
        array.resize(100_000, refcheck=False)
        assert array[:1000].tolist() == list(range(1000))
        assert not array[1000:].any()
        array.resize(10, refcheck=False)
        assert array.tolist() == list(range(10))
        assert is_ours(array, service.allocator)
        assert service.allocator.stats().requested_bytes_in_use == 80


def test_arrays_made_before_stay_numpys():
    before = np.arange(100)
    with served() as service:
        before.resize(1000, refcheck=False)
        assert before[:100].tolist() == list(range(100))
        del before
        view = np.frombuffer(bytearray(100), np.uint8)
        assert not is_ours(view, service.allocator)
        assert service.allocator.stats().num_allocs == 0
    assert service.allocator.rejected_frees == 0


def test_small_requests_can_be_left_to_numpy():
    with served(small=1000) as service:
        small, large = np.empty(100), np.empty(200)
        small[:], large[:] = np.arange(100), 1
        assert (is_ours(small, service.allocator), is_ours(large, service.allocator)) == (False, True)
        assert service.left_to_numpy >= 1
        assert service.allocator.stats().num_allocs == 1
        small.resize(5000, refcheck=False)
        large.resize(5, refcheck=False)
        assert (small[:100].tolist(), large.tolist()) == (list(range(100)), [1] * 5)
    del small, large
    service.settle()
    assert service.allocator.stats().chunks_in_use == 0


@pytest.mark.parametrize("make", [np.empty, np.zeros])
def test_in_a_full_heap_numpy_serves_scalars_and_the_array_without_room_fails(make):
    with served("1MiB") as service:
        held = make(MIB, np.uint8)
        scalars = [make((), np.int64) for _ in range(3)]
        assert (service.left_to_numpy, service.out_of_memory) == (3, None)
        with pytest.raises(MemoryError):
            make(257, np.uint8)
        assert service.out_of_memory.requested == 257
        largest = make(256, np.uint8)
        assert not any(is_ours(array, service.allocator) for array in (*scalars, largest))
        assert service.allocator.stats().num_allocs == 1
        assert "4 arrays" in service.description
        events = service.allocator.log.copy(0, service.allocator.log.head)
        assert events["requested"][events["kind"] == Kind.OOM].tolist() == [257]
        del held
        assert is_ours(make((), np.int64), service.allocator)
    for array in (*scalars, largest):
        array[...] = 7
    service.allocator.check_invariants()


def test_a_resize_that_fails_changes_nothing():
    with served("1MiB"):
        array = np.arange(1000)
        with pytest.raises(MemoryError):
            array.resize(MIB, refcheck=False)
        assert array.tolist() == list(range(1000))
