"""RMM observed by callbacks, which pass each request to RMM's own resource; with a stand-in for RMM."""

import gc
import random
import signal
import threading
import weakref

import pytest
from fake_rmm import CallbackMemoryResource, HostMemory, Stream
from heaps import MIB, model_of
from interrupts import until_ctrl_c

from bfcviz.errors import FileError
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live.labels import label
from bfcviz.live.rmm import observe_rmm


def events_of(source, kind):
    (heap,) = source.heaps
    events = heap.log.copy(0, heap.log.head)
    return events[events["kind"] == kind]


def test_requests_are_passed_and_recorded_at_once(rmm):
    before, memory = rmm.resources[0], rmm.memory[0]
    with observe_rmm(log=EventLog(1 << 10)) as source:
        assert rmm.resources[0] is not before
        (heap,) = source.heaps
        assert (source.way, heap.name, heap.limit) == ("observe", "rmm:0", 1 << 30)
        with label("join"):
            first = rmm.buffer(1000, 7)
        second, third = rmm.buffer(300, 9), rmm.buffer(20)
        assert memory.in_use == {first[1]: 1000, second[1]: 300, third[1]: 20}
        assert heap.stats().requested_bytes_in_use == 1320
        rmm.drop(second, 9)
        assert (heap.stats().bytes_in_use, second[1] in memory.in_use) == (1024 + 256, False)
    assert rmm.resources[0] is before
    allocated = events_of(source, Kind.ALLOCATE)
    assert allocated["stream"].tolist() == [1, 2, 0]
    assert heap.labels.name(int(allocated["label"][0])) == "join"
    assert model_of(heap).stats().bytes_in_use == heap.stats().bytes_in_use
    for buffer in (first, third):  # they outlive the `with`, and still reach their memory
        rmm.drop(buffer)
    assert memory.in_use == {}


def test_out_of_memory_reaches_the_program_with_an_event_and_its_numbers(rmm):
    rmm.resources[0] = HostMemory(MIB).resource
    with observe_rmm() as source:
        held = rmm.buffer(MIB // 2)
        with pytest.raises(MemoryError, match=f"{MIB} bytes were requested"):
            rmm.buffer(MIB)
        rmm.drop(held)
        rmm.buffer(MIB)
    failure = source.out_of_memory
    assert (failure.requested, failure.pool_bytes, failure.free_bytes) == (MIB, MIB // 2, 0)
    assert events_of(source, Kind.OOM)["requested"].tolist() == [MIB]


def test_another_error_reaches_the_program_and_is_no_failure_of_memory(rmm):
    rmm.resources[0] = CallbackMemoryResource(lambda *_: 1 // 0, None)
    with observe_rmm() as source, pytest.raises(RuntimeError, match="division"):
        rmm.buffer(MIB)
    assert source.out_of_memory is None
    assert source.heaps[0].log.head == 0


def test_a_failed_request_keeps_nothing_of_the_program_alive(rmm):
    class Table:
        pass

    def step():
        table = Table()
        kept.append(weakref.ref(table))
        with pytest.raises(MemoryError):
            rmm.buffer(1 << 40)

    kept = []
    with observe_rmm() as source:
        step()
        gc.collect()
        assert (kept[0](), source.out_of_memory.requested) == (None, 1 << 40)


def test_memory_from_before_is_unknown_and_its_frees_are_counted(rmm):
    old = rmm.buffer(1000)
    with observe_rmm() as source:
        rmm.drop((rmm.resources[0], *old[1:]))  # as PyTorch does: it asks for the device's resource
    assert rmm.memory[0].in_use == {}
    found = source.heaps[0].inconsistencies
    assert (found.unknown_frees, found.left_out) == (1, 1)
    assert found.words() in source.description


def test_frees_after_the_with_are_recorded_when_it_is_entered_again(rmm):
    source = observe_rmm()
    with source:
        buffers = [rmm.buffer(1000) for _ in range(4)]
    rmm.drop(buffers[0])
    rmm.drop(rmm.buffer(1000))  # nothing observes it
    with source:
        assert source.heaps[0].stats().chunks_in_use == 3
        rmm.drop(buffers[1])
        rmm.buffer(1000)
        assert source.heaps[0].stats().chunks_in_use == 3
    assert source.heaps[0].inconsistencies.left_out == 0


def test_what_is_built_on_the_resource_inside_the_with_works_after_it(rmm):
    with observe_rmm() as source:
        below = rmm.resources[0]
        rmm.resources[0] = CallbackMemoryResource(below.allocate, below.deallocate)  # another adaptor
        rmm.drop(rmm.buffer(1000))
    kept = rmm.buffer(1000)
    with source:  # a request passes the resources of both, and is recorded once
        rmm.drop(rmm.buffer(1000))
    rmm.drop(kept)
    assert source.heaps[0].stats().num_allocs == 2
    assert source.heaps[0].inconsistencies.left_out == 0
    assert rmm.memory[0].in_use == {}


def test_a_pool_of_the_program_lives_as_long_as_its_memory_and_no_longer(rmm):
    rmm.resources[0] = pool = HostMemory().resource
    gone = weakref.ref(pool)
    with observe_rmm():
        buffer = rmm.buffer(1000)
    rmm.resources[0] = rmm.resources[1]
    del pool
    address = buffer[1]
    free = buffer[0].deallocate_func  # all that C++ may have
    del buffer
    gc.collect()
    assert gone() is not None
    free(address, 1000, None)
    del free
    gc.collect()
    assert gone() is None


def test_a_buffer_keeps_neither_the_heap_nor_its_log_alive(rmm):
    with observe_rmm() as source:
        buffer = rmm.buffer(1000)
    gone = weakref.ref(source.heaps[0])
    del source
    gc.collect()
    assert gone() is None
    rmm.drop(buffer)
    assert rmm.memory[0].in_use == {}


def test_an_rmm_whose_streams_have_no_handles_is_observed(rmm, monkeypatch):
    monkeypatch.delattr(Stream, "__cuda_stream__")  # RMM 25.10 and before
    with observe_rmm() as source:
        buffers = [rmm.buffer(1000, stream) for stream in (0, 7, 9)]
        assert events_of(source, Kind.ALLOCATE)["stream"].tolist() == [0, 1, 1]
        assert "25.12" in source.description
    for buffer in buffers:
        rmm.drop(buffer)


def test_requests_without_bytes_are_passed_and_not_recorded(rmm):
    rmm.resources[0] = CallbackMemoryResource(lambda *_: 0, lambda *_: None)
    with observe_rmm() as source:
        rmm.drop(rmm.buffer(0))
        assert source.heaps[0].log.head == 0
    assert source.heaps[0].inconsistencies.left_out == 0


def test_threads_allocate_and_free_at_the_same_time(rmm):
    errors = []

    def work(seed):
        draw, held = random.Random(seed), []
        try:
            for _ in range(150):
                if held and draw.random() < 0.5:
                    rmm.drop(held.pop(draw.randrange(len(held))), seed)
                else:
                    held.append(rmm.buffer(draw.randrange(1, 5000), seed))
            for buffer in held:
                rmm.drop(buffer, seed)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with observe_rmm() as source:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (heap,) = source.heaps
        assert (errors, heap.stats().chunks_in_use, heap.inconsistencies.left_out) == ([], 0, 0)
        assert model_of(heap).stats().bytes_in_use == heap.stats().bytes_in_use
    assert rmm.memory[0].in_use == {}
    assert set(events_of(source, Kind.ALLOCATE)["stream"].tolist()) == {1, 2, 3, 4}


def test_what_cannot_be_recorded_is_said_and_the_program_goes_on(rmm, tmp_path, monkeypatch):
    with Recording(tmp_path / "run") as recording, observe_rmm(log=recording) as source:
        held = rmm.buffer(1000)

        def fail(*_arguments, **_options):
            raise FileError(tmp_path, "", "the disk is full")

        monkeypatch.setattr(source.heaps[0], "allocate", fail)
        monkeypatch.setattr(source.heaps[0], "free", fail)
        rmm.drop(rmm.buffer(1000))  # its free is not reported: the allocation was not recorded
        rmm.drop(held)
    assert rmm.memory[0].in_use == {}
    assert source.mechanism.devices[0].lost == 2
    assert "the disk is full" in source.description


def test_a_resource_that_fails_to_free_raises_nothing_into_cpp(rmm):
    rmm.resources[0] = CallbackMemoryResource(lambda *_: 1 << 40, lambda *_: 1 // 0)
    with observe_rmm() as source:
        rmm.drop(rmm.buffer(1000))
    assert source.mechanism.devices[0].lost == 1
    assert source.heaps[0].stats().chunks_in_use == 0


def test_ctrl_c_in_a_request_neither_loses_memory_nor_becomes_another_error(rmm):
    def allocate(num_bytes, stream):
        signal.raise_signal(signal.SIGINT)
        return rmm.memory[0].allocate(num_bytes, stream)

    rmm.resources[0] = CallbackMemoryResource(allocate, rmm.memory[0].free)
    with observe_rmm() as source:
        until_ctrl_c(lambda: rmm.buffer(1000))
        assert source.heaps[0].stats().requested_bytes_in_use == 1000
        (address,) = rmm.memory[0].in_use
        rmm.drop((rmm.resources[0], address, 1000))
    assert (rmm.memory[0].in_use, source.heaps[0].stats().chunks_in_use) == ({}, 0)
