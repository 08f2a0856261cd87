"""Several threads on one heap: no two own the same bytes, the tables stay consistent, no thread waits for ever."""

import ctypes
import threading

import pytest
from heaps import BASE, MIB, assert_model_agrees, new_heap
from unit.allocator.thread_work import THREADS, hammer, run_in_threads

from bfcviz.allocator.sub_allocators import HostSubAllocator, PythonSubAllocator
from bfcviz.events.log import EventLog


class SlowSubAllocator(PythonSubAllocator):
    """Needs the GIL, and releases it while it works."""

    def __init__(self):
        super().__init__()
        self.top = BASE
        self.calls = 0

    def allocate(self, alignment, num_bytes):
        self.calls += 1
        threading.Event().wait(0.001)
        self.top += -self.top % alignment + num_bytes
        return self.top - num_bytes, num_bytes

    def free(self, address, num_bytes):
        threading.Event().wait(0.001)


OPTIONS = [
    {},
    {"allow_growth": True, "garbage_collection": True},
    {"timestamps": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_threads_never_share_bytes(options):
    heap = new_heap(4 * MIB, HostSubAllocator(), log=EventLog(1 << 16), **options)
    run_in_threads(hammer(heap.try_allocate, heap.free, ctypes.memset))
    assert heap.stats().bytes_in_use == 0
    heap.check_invariants()
    assert_model_agrees(heap)
    heap.close()


def test_threads_through_c_pointers():
    heap = new_heap(4 * MIB, HostSubAllocator(), log=EventLog(1 << 16), allow_growth=True)
    context, allocate, free = heap.c_functions()
    allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(allocate)
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(free)
    run_in_threads(
        hammer(
            lambda size: allocate(context, 256, size), lambda address: free(context, address), ctypes.memset
        )
    )
    assert heap.rejected_frees == 0
    assert heap.stats().bytes_in_use == 0
    heap.check_invariants()
    assert_model_agrees(heap)
    heap.close()


@pytest.mark.parametrize("keeps_gil", [False, True])
def test_a_sub_allocator_that_needs_the_gil(keeps_gil):
    """Python, C without the GIL and C with it, all at once, while regions come and go through Python."""
    source = SlowSubAllocator()
    heap = new_heap(2 * MIB, source, log=EventLog(1 << 16), allow_growth=True, garbage_collection=True)
    context, allocate, free = heap.c_functions()
    kind = ctypes.PYFUNCTYPE if keeps_gil else ctypes.CFUNCTYPE
    allocate = kind(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(allocate)
    free = kind(None, ctypes.c_void_p, ctypes.c_void_p)(free)
    through_c = hammer(lambda size: allocate(context, 256, size), lambda address: free(context, address))
    through_python = hammer(heap.try_allocate, heap.free)
    run_in_threads(lambda number: (through_c, through_python)[number % 2](number))
    assert source.calls > 0
    assert heap.stats().bytes_in_use == 0
    heap.check_invariants()
    assert_model_agrees(heap)


def test_each_event_names_its_thread():
    heap = new_heap(log=EventLog(1 << 16))
    run_in_threads(hammer(heap.try_allocate, heap.free))
    events = heap.log.copy(0, heap.log.head)
    assert len({int(by) for by in events["by"]}) == THREADS
    assert (events["time"][1:] >= events["time"][:-1]).all()
