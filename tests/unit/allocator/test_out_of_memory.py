"""OutOfMemory: its numbers, its advice, and the event in the log."""

import threading

import numpy as np
import pytest
from heaps import GIB, KIB, MIB, new_heap

from bfcviz.allocator.sub_allocators import PythonSubAllocator, SimulatedSubAllocator
from bfcviz.errors import OutOfMemory, OutOfMemoryTotals
from bfcviz.events.log import Reader
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
    assert "2.9 KiB requested (rounded to 3072 bytes)" in text
    assert "4.0 KiB free, largest free chunk 1.0 KiB" in text
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


class RefusesWhileAnotherThreadWorks(PythonSubAllocator):
    """Grants one region, and lets another thread record a mark during each later request."""

    heap = None

    def allocate(self, alignment, num_bytes):
        if self.heap is None:
            return 1 << 20, num_bytes
        thread = threading.Thread(target=self.heap.mark, args=("another thread",))
        thread.start()
        thread.join()
        return None


def test_a_failure_has_the_thread_that_asked_and_comes_after_what_others_did_meanwhile():
    source = RefusesWhileAnotherThreadWorks()
    heap = new_heap(8 * MIB, source, allow_growth=True)
    heap.allocate(MIB)
    source.heap = heap
    assert heap.try_allocate(4 * MIB) is None
    source.heap = None
    events = Reader(heap.log, 0).read()
    asked = events["by"][events["kind"] == Kind.ALLOCATE][0]
    *marks, failed = events[events["kind"] >= Kind.OOM]
    assert marks
    assert failed["kind"] == Kind.OOM
    assert {int(mark["by"]) for mark in marks}.isdisjoint([int(asked)])
    assert failed["by"] == failed["thread"] == asked
    assert failed["time"] >= marks[-1]["time"]


def test_it_is_made_from_totals():
    error = OutOfMemory.of(1000, OutOfMemoryTotals(8 * KIB, 5 * KIB, KIB, 16 * KIB))
    assert error.numbers() == {
        "requested": 1000, "rounded": 1024, "free_bytes": 3 * KIB, "largest_free_chunk": KIB,
        "pool_bytes": 8 * KIB, "bytes_limit": 16 * KIB, "others": (),
    }  # fmt: skip
    assert OutOfMemory.of(0, OutOfMemoryTotals(0, 0, 0, 0)).rounded == 0
    assert OutOfMemory.of(1000, new_heap().stats(), rounded=4096).rounded == 4096


def test_others_are_those_that_hold_some_of_the_limit():
    totals = OutOfMemoryTotals(KIB, KIB, 0, 4 * KIB)
    others = [
        ("a", OutOfMemoryTotals(2 * KIB, KIB, KIB, 4 * KIB)),
        ("b", OutOfMemoryTotals(0, 0, 0, 4 * KIB)),
    ]
    error = OutOfMemory.of(2 * KIB, totals, others=others)
    assert error.others == (("a", 2 * KIB, KIB),)
    alone = OutOfMemory.of(2 * KIB, totals)
    assert alone.beside(others).numbers() == error.numbers()
    assert error.for_request(100).numbers() == {**error.numbers(), "requested": 100}
