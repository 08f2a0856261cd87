"""RMM served from instrumented heaps; with a stand-in for RMM."""

import contextlib
import gc
import weakref

import pytest
from fake_rmm import CallbackMemoryResource
from heaps import KIB, assert_model_agrees
from processes import needs_compiled

from bfcviz.errors import AllocatorError, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.labels import label
from bfcviz.live.rmm.serve import serve_rmm


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


def test_what_cannot_be_is_refused(rmm):
    for arguments in ({"limit": -1}, {"limit": 0}, {"limit": 1 << 63}):
        with pytest.raises(InvalidRequest):
            serve_rmm(**arguments)
    with pytest.raises(LiveError, match=r"and device 0 has 1\.0 GiB"):
        serve_rmm("2GiB")
    serve_rmm("2GiB", memory="managed")
