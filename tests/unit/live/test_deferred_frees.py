"""Frees that wait for other streams: CuPy served over host memory, with streams made up."""

import sys

import numpy as np
import pytest
from heaps import MIB
from processes import needs_compiled
from unit.live.cupy_stand_in import Event, cupy, gpu, in_use, needs_cupy, served

pytestmark = [needs_cupy, needs_compiled]
__all__ = ["gpu"]


def test_memory_freed_under_another_stream_waits_until_that_is_done(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000, np.uint8)
            address = array.data.ptr
            cupy.empty(10)
        gpu.busy = {0}
        del array  # under the default stream, which may read it
        assert gpu.recorded == [0]
        assert in_use(source) == [0, 1]
        with gpu.on(stream=0x55):
            other = cupy.empty(1000, np.uint8)
            assert other.data.ptr != address
            gpu.busy = set()
            again = cupy.empty(1000, np.uint8)
            assert again.data.ptr == address
            del other, again


def test_of_many_that_wait_for_one_stream_only_the_first_is_asked(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            held = [cupy.empty(1000) for _ in range(300)]
        gpu.busy = {0}
        held.clear()
        assert in_use(source) == [0, 300]
        gpu.asked = 0
        cupy.empty(10)
        assert gpu.asked == 1
        gpu.busy = set()
        cupy.empty(10)
        assert in_use(source) == [0, 0]


def calls_of_deferred_frees(function):
    """The number of calls in deferred_frees: a cost that other processes do not change."""
    calls = []
    sys.setprofile(
        lambda frame, event, _: calls.append(frame.f_code.co_filename) if event == "call" else None
    )
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(path.endswith("deferred_frees.py") for path in calls)


def test_streams_that_are_gone_cost_a_request_nothing(gpu):
    with served() as source:
        for turn in range(500):
            array = cupy.empty(100)
            with gpu.on(stream=0x100 + turn):
                del array
        cupy.empty(10)
        assert in_use(source) == [0]
        array = cupy.empty(100)
        gpu.busy = {0x55}
        with gpu.on(stream=0x55):
            del array  # waits, so that each request looks after what waits
        assert 0 < calls_of_deferred_frees(lambda: cupy.empty(10)) < 20
        gpu.busy = set()


def test_a_finalizer_that_frees_while_frees_are_let_go_loses_none(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            arrays = [cupy.empty(1000) for _ in range(4)]
        gpu.busy = {0}
        arrays.pop()
        ask = Event.query

        def query(event):  # like a garbage collection during the query
            if arrays:
                arrays.pop()
                cupy.empty(10)
            return ask(event)

        gpu.busy = set()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Event, "query", query)
            cupy.empty(10)
        source.settle()
        assert len(arrays) < 3
        assert in_use(source) == [0, len(arrays)]
        arrays.clear()


def test_a_heap_that_runs_out_waits_for_what_is_held_back(gpu):
    with served("4MiB") as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(3 * MIB, np.uint8)
        gpu.busy = {0}
        del array
        with gpu.on(stream=0x55):
            again = cupy.empty(3 * MIB, np.uint8)
            assert gpu.waited == [0]
            del again
        assert source.out_of_memory is None


def test_what_is_held_back_is_waited_for_at_the_end(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000)
        gpu.busy = {0}
        del array
        assert in_use(source) == [0, 1]
    assert in_use(source) == [0, 0]
    assert gpu.waited == [0]


def test_after_the_end_a_free_under_another_stream_waits_at_once(gpu):
    with served() as source, gpu.on(stream=0x55):
        array = cupy.empty(1000)
    gpu.busy = {0}
    del array
    assert gpu.waited == [0]
    assert in_use(source) == [0, 0]


def test_after_the_end_a_free_under_a_stream_that_is_captured_waits_for_the_capture(gpu):
    with served() as source, gpu.on(stream=0x55):
        first = cupy.empty(1000)
        second = cupy.empty(1000)
    gpu.captured = {0}
    del first
    assert in_use(source) == [0, 2]
    gpu.captured = set()
    del second
    assert in_use(source) == [0, 0]
    assert gpu.waited.count(-1) == 0  # waiting for the device would break the capture


def test_where_no_event_can_be_recorded_the_device_is_waited_for(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000)
        gpu.broken = True
        del array
        assert gpu.waited == [-1]
        assert in_use(source) == [0, 0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_memory_whose_reader_cannot_be_waited_for_stays_in_use(gpu, monkeypatch):
    with served() as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000)
        gpu.broken = True
        monkeypatch.setattr(gpu, "synchronize", lambda device: 1 // 0)
        del array
        assert in_use(source) == [0, 1]
