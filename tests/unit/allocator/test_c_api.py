"""The C entry points, called as by a framework."""

import ctypes

import pytest
from heaps import BASE, KIB, MIB, assert_model_agrees, new_heap

from bfcviz.allocator.sub_allocators import HostSubAllocator

ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def c_face(heap):
    context, allocate, free = heap.c_functions()
    allocate, free = ALLOCATE(allocate), FREE(free)
    return (lambda alignment, size: allocate(context, alignment, size)), (
        lambda pointer: free(context, pointer)
    )


def test_they_serve_as_python_does():
    heap = new_heap()
    allocate, free = c_face(heap)
    first = allocate(256, 1000)
    assert first == BASE
    assert heap.requested_size(first) == 1000
    assert heap.allocate(1) == BASE + KIB
    free(first)
    heap.free(BASE + KIB)
    assert heap.stats().bytes_in_use == 0
    assert heap.rejected_frees == 0
    assert_model_agrees(heap)


@pytest.mark.parametrize(
    ("alignment", "size"),
    [(256, 0), (256, 2 * MIB), (3, 100), (256, (1 << 62) + 1), (256, (1 << 64) - 1), (1 << 63, 1)],
)
def test_failures_are_null(alignment, size):
    heap = new_heap()
    allocate, _ = c_face(heap)
    assert allocate(alignment, size) is None
    heap.check_invariants()


@pytest.mark.parametrize("alignment", [0, 1, 8, 64])
def test_small_alignments_are_kept_anyway(alignment):
    heap = new_heap()  # the functions are valid only while it lives
    allocate, _ = c_face(heap)
    assert allocate(alignment, 1) == BASE


def test_wrong_frees_are_counted():
    heap = new_heap()
    allocate, free = c_face(heap)
    pointer = allocate(256, 100)
    free(None)
    assert heap.rejected_frees == 0
    for number, wrong in enumerate((pointer + 8, 1, (1 << 64) - 1, pointer), start=0):
        free(wrong)
        assert heap.rejected_frees == min(number + 1, 3)
    free(pointer)
    assert heap.rejected_frees == 4
    heap.check_invariants()


def test_the_memory_is_real():
    heap = new_heap(MIB, HostSubAllocator())
    allocate, free = c_face(heap)
    pointers = [allocate(4096, 10_000) for _ in range(20)]
    for number, pointer in enumerate(pointers):
        ctypes.memset(pointer, number, 10_000)
    for number, pointer in enumerate(pointers):
        assert ctypes.string_at(pointer, 10_000) == bytes([number]) * 10_000
        free(pointer)


def test_they_are_the_same_each_time():
    heap = new_heap()
    assert heap.c_functions() == heap.c_functions()
    other = new_heap()
    assert heap.c_functions().context != other.c_functions().context
