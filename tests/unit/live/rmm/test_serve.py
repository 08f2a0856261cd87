"""RMM served from instrumented heaps; with a stand-in for RMM."""

import contextlib
import gc
import signal
import sys
import threading
import weakref

import pytest
from fake_cuda import GLOBAL, RELAXED
from fake_rmm import CallbackMemoryResource, Status
from heaps import KIB, assert_model_agrees, assert_survives_growth
from interrupts import until_ctrl_c
from processes import needs_compiled

from bfcviz.errors import AllocatorError, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.labels_and_marks import label
from bfcviz.live.rmm import observe_rmm, serve_rmm
from bfcviz.live.stack_capture import Capture


def test_buffers_are_chunks_of_our_heap(rmm):
    before = rmm.resources[0]
    with serve_rmm(log=EventLog(1 << 10)) as served:
        assert (served.way, "RMM is served" in served.description) == ("serve", True)
        with label("join"):
            first = rmm.buffer(1000)
        second = rmm.buffer(300)
        (heap,) = served.heaps
        assert (heap.name, heap.limit) == ("rmm:0", (512 - 225) << 20)  # of 512 MiB that are free
        assert heap.requested_size(first[1]) == 1000
        assert heap.labels.names[1] == "join"
        assert rmm.resources[0].allocate(0) == 0
    assert rmm.resources[0] is before
    with pytest.raises(AllocatorError, match="2 chunks"):
        heap.close()
    for buffer in (first, second):  # they outlive it, and know where they came from
        rmm.drop(buffer)
    assert heap.stats().chunks_in_use == 0
    assert_model_agrees(heap)


@needs_compiled
def test_ctrl_c_during_a_request_loses_no_memory(rmm, monkeypatch):
    number, buffers = Capture.number, []

    def interrupted(capture):
        signal.raise_signal(signal.SIGINT)
        return number(capture)

    with serve_rmm(log=EventLog(1 << 10)) as served:
        (heap,) = served.heaps
        with monkeypatch.context() as patch:
            patch.setattr(Capture, "number", interrupted)
            until_ctrl_c(lambda: buffers.append(rmm.buffer(1000)))
        assert heap.stats().chunks_in_use == len(buffers) == 1
        rmm.drop(buffers[0])
        assert heap.stats().chunks_in_use == 0


def test_stacks_are_recorded_if_wanted(rmm):
    with serve_rmm(log=EventLog(1 << 10), capture="stack") as served, label("join"):
        rmm.buffer(1000)
        heap = served.heaps[0]
        found = heap.labels[heap.log.copy(0, heap.log.head)[-1]["label"]]
    assert found.name == "join"
    assert "test_stacks_are_recorded_if_wanted (" in found.details["stack"]


def test_out_of_memory_is_a_memory_error_with_our_numbers(rmm):
    with serve_rmm("1MiB") as served:
        held = rmm.buffer(600 * KIB)
        with pytest.raises(MemoryError, match=r"500\.0 KiB requested"):
            rmm.buffer(500 * KIB)
        assert isinstance(served.out_of_memory, OutOfMemory)
        rmm.drop(held)
        rmm.buffer(500 * KIB)


def test_a_failure_that_was_handled_keeps_nothing_of_the_program_alive(rmm):
    class Big:
        pass

    kept = []

    def step():
        big = Big()
        kept.append(weakref.ref(big))
        rmm.buffer(1 << 30)

    gc.disable()
    try:
        with serve_rmm("1MiB") as served:
            with contextlib.suppress(MemoryError):
                step()
            assert kept[0]() is None
            assert served.out_of_memory.requested == 1 << 30
    finally:
        gc.enable()


def test_a_failure_names_what_the_heaps_of_other_streams_hold(rmm):
    with serve_rmm("1MiB") as served:
        rmm.buffer(300 * KIB, 7)
        with pytest.raises(MemoryError, match="rmm:0 stream 1"):
            rmm.buffer(500 * KIB, 9)
        assert [other[2] for other in served.out_of_memory.others] == [300 * KIB]


def test_all_devices_are_served_and_a_recording_gets_the_current_one(rmm, tmp_path):
    rmm.devices, rmm.device = 2, 1
    with Recording(tmp_path / "run") as recording:
        with serve_rmm(log=recording) as served:
            rmm.buffer(1000, device=1)
            rmm.buffer(1000, device=0)
            assert [heap.name for heap in served.heaps] == ["rmm:1", "rmm:0"]
        assert len(recording.trace()) == served.heaps[0].log.head > 0
    assert rmm.device == 1


def test_it_can_be_entered_again_but_not_twice(rmm):
    served = serve_rmm()
    for _ in range(2):
        with served, pytest.raises(LiveError, match="RMM is served already"):
            serve_rmm().__enter__()
    with served:
        rmm.resources[0] = theirs = CallbackMemoryResource(None, None)
    assert rmm.resources[0] is theirs  # changed by other code: left alone


def test_at_the_end_the_device_gets_its_memory_back_and_the_rest_with_the_buffers(rmm):
    with serve_rmm("64MiB") as served:
        kept = rmm.buffer(3 << 20)
        rmm.drop(rmm.buffer(9 << 20))
        (heap,) = served.heaps
        assert heap.stats().pool_bytes == 20 << 20
    assert heap.stats().pool_bytes == 4 << 20
    rmm.drop(kept)
    assert heap.stats().pool_bytes == 0


def test_the_end_waits_for_frees_under_other_streams_and_so_does_each_later_one(rmm):
    with serve_rmm("64MiB") as served:
        before, late = (rmm.buffer(3 << 20, 7) for _ in range(2))
        rmm.drop(before, 9)
        assert rmm.events == [[9, False]]
    assert [heap.stats().chunks_in_use for heap in served.heaps] == [0, 1]
    rmm.drop(late, 9)
    assert rmm.events == [[9, True], [9, True]]
    assert [heap.stats().pool_bytes for heap in served.heaps] == [0, 0]


def test_the_end_of_one_device_that_fails_keeps_no_memory_of_another(rmm):
    rmm.devices = 2
    with pytest.raises(LiveError, match="CUDA answered"), serve_rmm("64MiB") as served:  # noqa: PT012
        rmm.drop(rmm.buffer(3 << 20, 7, device=0), 9)
        rmm.drop(rmm.buffer(3 << 20, 7, device=1), 7)
        rmm.runtime.cudaEventSynchronize = lambda event: (Status.cudaErrorInvalidResourceHandle,)
    assert [heap.stats().pool_bytes for heap in served.devices[1].heaps.values()] == [0]


def test_what_cannot_be_is_refused(rmm):
    for arguments in ({"limit": -1}, {"limit": 0}, {"limit": 1 << 63}):
        with pytest.raises(InvalidRequest):
            serve_rmm(**arguments)
    with pytest.raises(LiveError, match=r"and device 0 has 1\.0 GiB"):
        serve_rmm("2GiB")
    serve_rmm("2GiB", memory="managed")


def test_a_stream_has_a_heap_of_its_own(rmm):
    with serve_rmm() as served:
        buffers = {stream: rmm.buffer(1000, stream) for stream in (0, 7, 9)}
        assert [heap.name for heap in served.heaps] == ["rmm:0", "rmm:0 stream 1", "rmm:0 stream 2"]
        rmm.drop(buffers[7], 7)
        assert rmm.buffer(1000, 9)[1] != buffers[7][1]
        assert rmm.buffer(1000, 7)[1] == buffers[7][1]
        assert not rmm.events


def test_freed_on_another_stream_memory_waits_for_that_one(rmm):
    with serve_rmm():
        buffer = rmm.buffer(1000, 7)
        rmm.drop(buffer, 9)
        assert rmm.events == [[9, False]]
        assert rmm.buffer(1000, 7)[1] != buffer[1]
        rmm.events[0][1] = True
        assert rmm.buffer(1000, 7)[1] == buffer[1]


def test_where_a_stream_is_gone_the_device_is_waited_for(rmm):
    rmm.gone.add(9)
    with serve_rmm():
        buffer = rmm.buffer(1000, 7)
        rmm.drop(buffer, 9)
        assert rmm.waited == [0]
        assert rmm.buffer(1000, 7)[1] == buffer[1]


def test_per_thread_streams_are_told_apart(rmm):
    with serve_rmm() as served:
        addresses = [rmm.buffer(1000, 2)[1]]
        thread = threading.Thread(target=lambda: addresses.append(rmm.buffer(1000, 2)))
        thread.start()
        thread.join()
        assert len(served.heaps) == 3  # and the default one's
        rmm.drop(addresses[1], 2)  # the other thread's memory, under this one's stream
        assert rmm.events == [[2, False]]


def test_the_heaps_of_threads_that_ended_are_used_again(rmm):
    def work():
        rmm.drop(rmm.buffer(1000, 2), 2)

    with serve_rmm() as served:
        for _ in range(20):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert len(served.heaps) == 2
        assert sum(heap.stats().pool_bytes for heap in served.heaps) <= 2 << 20
        assert rmm.waited == [0] * 19  # for what the thread's stream was told


def test_freed_on_a_stream_that_is_captured_memory_waits_for_the_capture(rmm, monkeypatch):
    captured = {9}
    monkeypatch.setattr(rmm.driver, "is_capturing", lambda stream: stream in captured)
    with serve_rmm():
        buffer = rmm.buffer(1000, 7)
        rmm.drop(buffer, 9)
        assert rmm.events == []  # it would be the graph's
        assert rmm.buffer(1000, 7)[1] != buffer[1]
        captured.clear()
        rmm.runtime.cudaEventQuery = lambda event: (Status.cudaSuccess,)
        assert rmm.buffer(1000, 7)[1] == buffer[1]
        assert [event[0] for event in rmm.events] == [9]
        assert rmm.waited == []


def test_an_event_is_asked_in_relaxed_mode(rmm):
    modes = []
    rmm.runtime.cudaEventQuery = lambda event: (modes.append(rmm.library.mode), (Status.cudaSuccess,))[1]
    with serve_rmm():
        rmm.drop(rmm.buffer(1000, 7), 9)
        rmm.buffer(1000, 7)
    assert modes == [RELAXED]
    assert rmm.library.mode == GLOBAL


def test_heaps_may_come_while_they_are_looked_at(rmm):
    with serve_rmm() as served:
        assert_survives_growth(
            served.devices[0].heaps, served.heaps[0], lambda: served.heaps, range(1, 20_000)
        )


def test_before_it_fails_it_waits_and_takes_what_others_leave(rmm):
    with serve_rmm("1MiB") as served:
        rmm.drop(rmm.buffer(600 * KIB, 7), 7)  # free, but a region of stream 7's heap
        held = rmm.buffer(900 * KIB, 9)
        rmm.drop(held, 7)
        rmm.buffer(900 * KIB, 9)  # waits for stream 7
        assert served.out_of_memory is None
        assert rmm.events[0][1]


def test_an_event_that_cannot_be_asked_has_not_passed(rmm):
    with serve_rmm():
        buffer = rmm.buffer(1000, 7)
        rmm.drop(buffer, 9)
        rmm.runtime.cudaEventQuery = lambda event: (Status.cudaErrorInvalidResourceHandle,)
        assert rmm.buffer(1000, 7)[1] != buffer[1]


def test_what_no_heap_knows_is_not_raised_but_counted(rmm):
    with serve_rmm() as served:
        rmm.resources[0].deallocate(12345, 10)
        rmm.resources[0].deallocate(0, 0)
        assert served.devices[0].lost_frees == 1


def test_memory_whose_reader_cannot_be_waited_for_stays_in_use(rmm):
    rmm.gone.add(9)
    rmm.runtime.cudaDeviceSynchronize = lambda: (Status.cudaErrorInvalidResourceHandle,)
    with serve_rmm() as served:
        rmm.drop(rmm.buffer(1000, 7), 9)
        assert [heap.stats().chunks_in_use for heap in served.heaps] == [0, 1]
        assert served.devices[0].lost_frees == 1


@pytest.mark.parametrize("watch", [serve_rmm, observe_rmm])
def test_without_rmm_or_a_gpu_it_says_what_to_do(rmm, monkeypatch, watch):
    rmm.devices = 0
    with pytest.raises(LiveError, match="cudaErrorInsufficientDriver"):
        watch()
    monkeypatch.setitem(sys.modules, "rmm", None)
    with pytest.raises(LiveError, match="pip install rmm-cu12"):
        watch()
