"""The memory log: step, kernel, shape, dtype and allocation id of every tensor, here and in the heap's trace."""

import threading

from heaps import MIB

import bfcviz
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocationAttributes
from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.tensors import UNKNOWN_STEP, MemoryLog, Tensor, step
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind


def heap_of(name="bfc"):
    return BFCAllocator(HostSubAllocator(), 4 * MIB, name=name)


def test_every_tensor_is_taken_down():
    heap = heap_of("GPU_0_bfc")
    with MemoryLog() as log, step(3, heap):
        tensor = Tensor(heap, "float32", (64, 10), kernel="dense/MatMul")
        number = tensor.allocation_id
        view = tensor[2:]  # without its own memory
        del tensor, view
    begins, made, gone = log.records
    assert (begins.kind, begins.step_id) == ("step", 3)
    assert (made.kind, made.step_id, made.kernel) == ("allocate", 3, "dense/MatMul")
    assert (made.dtype, made.shape, made.allocator) == ("float32", (64, 10), "GPU_0_bfc")
    assert (made.requested, made.allocated, made.allocation_id) == (2560, 2560, number)
    assert gone == made._replace(kind="free")
    assert "dense/MatMul allocates float32 [64, 10]" in str(made)
    assert "is freed" in str(gone)


def test_the_trace_says_the_same():
    heap = heap_of()
    with step(7, heap):
        tensor = Tensor(heap, "int64", (3, 5), kernel="Gather")
    events = Reader(heap.log, 0).read(100)
    mark, made = (events[events["kind"] == kind][0] for kind in (Kind.MARK, Kind.ALLOCATE))
    assert mark["seq"] < made["seq"]
    assert (heap.labels.name(int(mark["label"])), mark["size"]) == ("step", 7)
    label = heap.labels[int(made["label"])]
    assert (label.name, dict(label.details)) == ("Gather", {"data_type": "int64", "shape": "[3,5]"})
    assert made["other"] == tensor.allocation_id


def test_the_kernel_is_what_the_thread_is_busy_with():
    heap = heap_of()
    with MemoryLog() as log:
        with bfcviz.label("encoder"):
            first = Tensor(heap, "f4", (1,))
        second = Tensor(heap, "f4", (1,))
    assert [record.kernel for record in log.records] == ["encoder", "Unknown"]
    assert [record.step_id for record in log.records] == [UNKNOWN_STEP] * 2
    assert "outside any step" in str(log.records[0])
    assert [record.kernel for record in log.alive] == ["encoder", "Unknown"]
    assert first.address != second.address


def test_what_leaks_stays_alive_in_it():
    one, two = heap_of("one"), heap_of("two")
    with MemoryLog() as log:
        kept = [Tensor(heap, "f4", (size,), kernel="k") for size in (10, 20) for heap in (one, two)]
        del kept[1:3]
        assert [(record.allocator, record.shape) for record in log.alive] == [("one", (10,)), ("two", (20,))]
        kept.clear()
        assert log.alive == []


def test_it_keeps_the_newest_lines():
    heap = heap_of()
    with MemoryLog(keep=5) as log:
        for size in range(1, 20):
            Tensor(heap, "f4", (size,))
    assert len(log.records) == 5
    assert log.records[-1].shape == (19,)
    assert [record.kind for record in log.records] == ["free", "allocate", "free", "allocate", "free"]


def test_nothing_is_taken_down_outside():
    heap = heap_of()
    log = MemoryLog()
    before = Tensor(heap, "f4", (1,))
    with log:
        del before
        silent = Tensor(heap, "f4", (2,), attributes=AllocationAttributes(allocation_will_be_logged=True))
    del silent
    assert [record.kind for record in log.records] == ["free"]
    assert log.alive == []


def test_threads_have_steps_of_their_own():
    heap = heap_of()
    with MemoryLog() as log, step(1, heap):

        def work():
            with step(2, heap):
                Tensor(heap, "f4", (1,), kernel="theirs")

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        Tensor(heap, "f4", (1,), kernel="ours")
    steps = {record.kernel: record.step_id for record in log.records if record.kind == "allocate"}
    assert steps == {"theirs": 2, "ours": 1}
