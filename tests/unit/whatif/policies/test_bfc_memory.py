import numpy as np
import pytest

from bfcviz.whatif.policies.bfc import GAP, ExactBFCMemory, RecordedBFCMemory
from bfcviz.whatif.requests import REGION_ROW

MiB = 1 << 20


def regions_of(*rows):
    """Rows of (request, address, size)."""
    regions = np.zeros(len(rows), REGION_ROW)
    for at, row in enumerate(rows):
        regions[at]["request"], regions[at]["address"], regions[at]["size"] = row
    return regions


def test_recorded_addresses_are_granted_by_size_in_order():
    memory = RecordedBFCMemory(
        regions_of((0, 0x7000_0000, MiB), (1, 0x1000_0040, 2 * MiB), (2, 0x5000_0000, MiB))
    )
    assert memory.allocate(256, 2 * MiB) == (0x1000_0040, 2 * MiB)
    assert memory.allocate(256, MiB) == (0x7000_0000, MiB)
    other, size = memory.allocate(256, 3 * MiB)
    assert (other >= 0x7000_0000 + GAP, size) == (True, 3 * MiB)
    assert memory.allocate(256, MiB) == (0x5000_0000, MiB)
    assert memory.allocate(256, MiB)[0] >= other + size + GAP
    assert memory.driver_calls == (5, 0, 0)


def test_an_address_that_is_taken_waits_until_it_is_free():
    memory = RecordedBFCMemory(regions_of((0, 0x1000_0000, MiB), (9, 0x1000_0000, 2 * MiB)))
    assert memory.allocate(256, MiB)[0] == 0x1000_0000
    assert memory.allocate(256, 2 * MiB)[0] > 0x1000_0000
    memory.free(0x1000_0000, MiB)
    assert memory.allocate(256, 2 * MiB)[0] == 0x1000_0000


def test_the_capacity_counts_what_is_granted_now():
    memory = RecordedBFCMemory(regions_of(), 3 * MiB)
    first, _ = memory.allocate(256, 2 * MiB)
    assert memory.allocate(256, 2 * MiB) is None
    assert memory.allocate(256, MiB) is not None
    memory.free(first, 2 * MiB)
    assert memory.allocate(256, 2 * MiB) is not None
    assert memory.driver_calls == (3, 1, 1)


@pytest.mark.parametrize("once", [False, True])
def test_smaller_sizes_after_a_second_refusal_are_refused_where_the_heap_did_not_try_them(once):
    memory = RecordedBFCMemory(regions_of(), 6 * MiB, backs_off_once=once)
    for operation, sizes, granted in ((3, (8, 7, 5), [False, False, True]), (4, (2, 1), [False, not once])):
        memory.operation = operation
        assert [memory.allocate(256, size * MiB) is not None for size in sizes] == granted


def test_exact_memory_repeats_the_calls_of_each_request():
    memory = ExactBFCMemory(regions_of((2, 0x1000, MiB), (5, 0x1000, 0), (5, 0x9000, 3 * MiB)))
    memory.operation = 1
    assert memory.allocate(256, 256) is None
    memory.operation = 2
    assert memory.allocate(256, 2 * MiB) is None
    assert memory.allocate(256, MiB) == (0x1000, MiB)
    assert memory.allocate(256, 256) is None
    memory.operation = 5
    assert memory.allocate(256, MiB) is None  # the release comes first
    memory.free(0x1000, MiB)
    assert memory.allocate(256, 2 * MiB) == (0x9000, 3 * MiB)
