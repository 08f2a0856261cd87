"""Options of a heap that are refused."""

import pytest

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import InvalidRequest


@pytest.mark.parametrize(
    "options",
    [
        {"fragmentation_fraction": -0.1},
        {"fragmentation_fraction": 1.1},
        {"fragmentation_fraction": float("nan")},
        {"retry_s": -1},
        {"retry_s": float("inf")},
        {"retry_s": float("nan")},
        {"first_region": 0},
        {"first_region": 1 << 63},
    ],
)
def test_options_that_cannot_be(options):
    with pytest.raises(InvalidRequest):
        AllocatorOptions(**options)


def test_the_first_region_has_the_size_that_was_asked_for_and_growth_doubles_from_there():
    for first, sizes in ((1 << 20, [1 << 20, 2 << 20, 4 << 20]), (1000, [1 << 20, 2 << 20, 1 << 22])):
        source = SimulatedSubAllocator("gapped", journal=True)
        heap = BFCAllocator(source, "64MiB", AllocatorOptions(allow_growth=True, first_region=first))
        for size in sizes:
            heap.allocate(size)
        assert [call.received for call in source.calls] == sizes


def test_with_exact_growth_the_last_size_that_is_requested_is_the_requests_own():
    requested = {}
    for is_exact in (False, True):
        source = SimulatedSubAllocator(capacity=254 << 20, journal=True)
        heap = BFCAllocator(source, "256MiB", AllocatorOptions(allow_growth=True, exact_growth=is_exact))
        heap.try_allocate("240MiB")
        requested[is_exact] = [call.requested for call in source.calls]
        assert heap.stats().pool_bytes == (240 << 20 if is_exact else 0)
        assert heap.try_allocate("255MiB") is None
        heap.check_invariants()
    assert requested == {False: [256 << 20], True: [256 << 20, 240 << 20]}
