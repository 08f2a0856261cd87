"""Options of a heap that are refused."""

import pytest

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
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
