"""Tensors, views and arrays created and dropped in any order: memory is in use while one of them exists."""

import gc

import numpy as np
from heaps import MIB, assert_model_agrees, new_heap
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.tensors import Tensor


class Holder:
    """An object that keeps a buffer's memory, and the number that fills the buffer."""

    def __init__(self, thing, number):
        self.thing = thing
        self.number = number


class Sharing(RuleBasedStateMachine):
    tensors = Bundle("tensors")
    arrays = Bundle("arrays")

    @initialize()
    def begin(self):
        self.heap = new_heap(MIB, HostSubAllocator(), allow_growth=True, garbage_collection=True)
        self.made = 0
        self.holders = {}  # number of holders, by number of the buffer

    def hold(self, thing, number):
        self.holders[number] = self.holders.get(number, 0) + 1
        return Holder(thing, number)

    @rule(target=tensors, rows=st.integers(1, 40), columns=st.integers(1, 40))
    def make(self, rows, columns):
        self.made += 1
        tensor = Tensor(self.heap, "int64", (rows, columns), kernel=f"tensor {self.made}")
        tensor.write(self.made)
        return self.hold(tensor, self.made)

    @rule(target=tensors, holder=tensors, chance=st.randoms())
    def slice(self, holder, chance):
        tensor = holder.thing
        first = chance.randrange(tensor.shape[0])
        return self.hold(tensor[first : first + chance.randint(1, 5)], holder.number)

    @rule(target=tensors, holder=tensors)
    def reshape(self, holder):
        return self.hold(holder.thing.reshape(-1, 1), holder.number)

    @rule(target=arrays, holder=tensors)
    def take_array(self, holder):
        return self.hold(holder.thing.numpy(), holder.number)

    @rule(target=arrays, holder=tensors)
    def share(self, holder):
        return self.hold(np.from_dlpack(holder.thing), holder.number)

    @rule(target=arrays, holder=arrays)
    def view_array(self, holder):
        return self.hold(holder.thing[: len(holder.thing)].T, holder.number)

    @rule(holder=consumes(tensors))
    def drop_tensor(self, holder):
        self.drop(holder)

    @rule(holder=consumes(arrays))
    def drop_array(self, holder):
        self.drop(holder)

    def drop(self, holder):
        assert (np.asarray(holder.thing) == holder.number).all()  # no other write reached it
        holder.thing = None
        self.holders[holder.number] -= 1
        if self.holders[holder.number] == 0:
            del self.holders[holder.number]

    @invariant()
    def memory_is_in_use_while_a_holder_exists(self):
        if hasattr(self, "heap"):
            chunks = self.heap.memory_map()
            names = [self.heap.labels.name(int(label)) for label in chunks["label"][chunks["in_use"]]]
            assert sorted(names) == sorted(f"tensor {number}" for number in self.holders)

    def teardown(self):
        self.heap.check_invariants()
        assert_model_agrees(self.heap)


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


def test_the_collector_is_not_needed():
    heap = new_heap(MIB, HostSubAllocator())
    gc.disable()
    try:
        for _ in range(10):
            tensor = Tensor.of(heap, np.arange(100))
            np.asarray(tensor.reshape(10, -1)[2:])[:] = 0
            del tensor
            assert heap.stats().chunks_in_use == 0
    finally:
        gc.enable()
