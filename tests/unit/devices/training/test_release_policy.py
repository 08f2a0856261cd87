"""Deferred release: memory is freed when the device has finished, or when it runs out."""

import pytest
from heaps import MIB, new_heap

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.training import MLP, Attention, ConvNet, Deferred, Training
from bfcviz.errors import OutOfMemory

SMALL = {
    "MLP": MLP(batch=8, classes=3, sizes=(6, 12)),
    "convnet": ConvNet(batch=4, classes=3, image=8, channels=(2, 4, 4)),
    "attention": Attention(batch=4, classes=3, tokens=5, width=8, heads=2, layers=2),
}


def host_heap(limit=16 * MIB, **options):
    return new_heap(limit, HostSubAllocator(), **options)


def test_deferred_memory_makes_room_before_it_fails():
    model = SMALL["convnet"]
    heap = host_heap()
    Training(model, heap).run(2)
    peak = heap.stats().peak_bytes_in_use
    tight = 2 * peak
    with pytest.raises(OutOfMemory):
        Training(model, host_heap(tight), release="end of step").run(2)
    fits = Training(model, host_heap(tight), release=Deferred(10_000))
    assert fits.run(2) == Training(model, host_heap()).run(2)


class Fence:
    """A fence of a device that finishes on demand."""

    made = 0
    reached = 0

    def __init__(self):
        Fence.made += 1
        self.number = Fence.made

    @property
    def done(self):
        return self.number <= Fence.reached

    def synchronize(self):
        Fence.reached = max(Fence.reached, self.number)


def test_a_fence_says_when_memory_goes_back():
    heap = host_heap()
    training = Training(SMALL["MLP"], heap, release=Deferred(fence=Fence))
    training.run(2)
    held = heap.stats().chunks_in_use
    assert held > 20  # the device has not started
    Fence.reached = Fence.made
    training.step()
    assert heap.stats().chunks_in_use <= held
    training.finish()
    assert heap.stats().chunks_in_use == 2 * len(training.weights)
