"""A guarded heap of host memory."""

import pytest
from heaps import MIB, new_heap

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.wrappers import GuardAllocator


@pytest.fixture
def guard():
    with GuardAllocator(new_heap(MIB, HostSubAllocator())) as made:
        yield made
