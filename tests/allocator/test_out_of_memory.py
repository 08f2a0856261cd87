"""What a request that fails says, and leaves behind."""

import numpy as np
import pytest
from heaps import GIB, KIB, MIB, new_heap

from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
from bfcviz.errors import OutOfMemory
from bfcviz.events.reader import Reader
from bfcviz.events.schema import Kind


def test_out_of_memory_carries_its_numbers():
    heap = new_heap(8 * KIB)
    addresses = [heap.allocate(KIB) for _ in range(8)]
    for address in addresses[::2]:
        heap.free(address)
    with pytest.raises(OutOfMemory, match="fragmented") as caught:
        heap.allocate(np.uint16(3000), label="too much")
    error = caught.value
    assert isinstance(error, MemoryError)
    assert (error.requested, error.rounded, error.free_bytes) == (3000, 3072, 4096)
    assert (error.largest_free_chunk, error.pool_bytes, error.bytes_limit) == (1024, 8192, 8192)
    text = str(error)
    assert "2.9 KiB asked for (rounded to 3072 bytes)" in text
    assert "4.0 KiB free, in pieces of at most 1.0 KiB" in text
    assert heap.try_allocate(3000) is None
    last = Reader(heap.log).read()[-2:]
    assert last["kind"].tolist() == [Kind.OOM] * 2
    assert [heap.labels.name(n) for n in last["label"].tolist()] == ["too much", ""]
    assert (last["requested"][0], last["address"][0], last["size"][0]) == (3000, 4096, 1024)
    assert heap.allocate(1024) == addresses[0]


@pytest.mark.parametrize(
    ("limit", "capacity", "size", "advice"),
    [(MIB, None, 2 * MIB, "raise the limit"), (GIB, KIB, 2 * KIB, "the sub-allocator gave none")],
)
def test_out_of_memory_says_what_to_do(limit, capacity, size, advice):
    heap = new_heap(limit, SimulatedSubAllocator(capacity=capacity))
    with pytest.raises(OutOfMemory, match=advice):
        heap.allocate(size)
