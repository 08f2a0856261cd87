"""JAX's live arrays as events and its totals as marks, with a stand-in for JAX."""

import re
import sys

import pytest
from threads import wait_for_end
from unit.live.jax_stand_in import Array, Device, put_jax, stack

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.live.jax import GAPS, NOT_IN_ARRAYS, observe_jax
from bfcviz.model import Model
from bfcviz.model.navigation import peak
from bfcviz.model.trace_from_source import trace_of
from bfcviz.watching.reports import report


@pytest.fixture
def devices():
    return [Device(0, totals={"bytes_in_use": 100, "peak_bytes_in_use": 100, "bytes_limit": 1 << 30})]


@pytest.fixture
def arrays(devices, monkeypatch):
    found = []
    put_jax(monkeypatch, devices, found)
    return found


def marks(heap):
    events = heap.log.copy(0, heap.log.head)
    found = events[events["kind"] == Kind.MARK]
    return [(heap.labels.name(event["label"]), int(event["size"])) for event in found]


def test_totals_become_marks_when_they_change(devices, arrays):
    with observe_jax(log=EventLog(1 << 8), every_s=1000) as source:
        (heap,) = source.heaps
        assert (source.way, heap.name, heap.limit) == ("observe", "jax gpu:0", 1 << 30)
        first = marks(heap)
        totals = [("bytes_in_use", 100), ("peak_bytes_in_use", 100), ("bytes_limit", 1 << 30)]
        assert first == [*totals, (NOT_IN_ARRAYS, 100)]
        source.settle()
        assert marks(heap) == first
        devices[0].totals = {**devices[0].totals, "bytes_in_use": 70}
    assert marks(heap) == [*first, ("bytes_in_use", 70), (NOT_IN_ARRAYS, 70)]
    assert source.latest["gpu:0"]["bytes_in_use"] == 70
    assert heap.stats().chunks_in_use == heap.stats().pool_bytes == 0
    assert source.out_of_memory is None


def test_what_no_array_holds_is_a_mark(devices, arrays):
    arrays.append(Array(80, stack(3), devices[0]))
    arrays.append(Array(7, stack(3), devices[0], memory="pinned_host"))
    with observe_jax(every_s=1000) as source:
        assert source.latest["gpu:0"][NOT_IN_ARRAYS] == 20
        assert source.latest["gpu:0"]["bytes_in_pinned_host"] == 7
        arrays.append(Array(80, stack(4), devices[0]))  # it came after JAX had counted
        source.settle()
        assert source.latest["gpu:0"][NOT_IN_ARRAYS] == 0


def test_arrays_are_held_by_lines_of_code(devices, arrays, tmp_path):
    arrays += [Array(300, stack(41), devices[0]), Array(80, stack(7, "<module>"), devices[0])]
    with Recording(tmp_path / "run") as recording, observe_jax(log=recording, every_s=1000):
        trace = recording.trace()
        assert (trace.origin.status, trace.origin.reasons) == (Status.RECORDING, GAPS.reasons)
        arrays.pop()
    trace = recording.trace()
    model = Model(trace)
    model.seek(peak(trace))
    found = {trace.labels.name(each["label"]): int(each["size"]) for each in model.in_use()}
    assert found == {"train.py:41 forward": 300, "train.py:7": 80}
    model.seek(len(trace))
    assert model.stats().bytes_in_use == 300
    assert (trace.origin.status, trace.origin.reasons) == (Status.DEGRADED, GAPS.reasons)
    assert trace.origin.has_ended_whole
    assert trace.origin.details["facts"][0]["external_fragmentation"] is None


def test_a_ring_says_what_is_missing_too(devices, arrays):
    with observe_jax(every_s=1000) as source:
        trace = trace_of(source.heaps[0])
        assert (trace.origin.status, trace.origin.reasons) == (Status.DEGRADED, GAPS.reasons)
        assert trace.origin.details["facts"][0]["free_bytes"] is None


def test_a_report_gives_no_made_up_numbers(devices, arrays):
    arrays += [Array(size << 20, stack(size), devices[0]) for size in (5, 2)]
    with observe_jax(every_s=1000) as source:
        arrays[0] = Array(7 << 20, stack(7), devices[0])
        source.settle()
        found = report(trace_of(source.heaps[0]))
    held = [(each.name, each.num_bytes >> 20) for each in found.holders]
    assert held == [("train.py:7 forward", 7), ("train.py:2 forward", 2)]
    assert (found.stats.pool_bytes >> 20, found.stats.free_bytes >> 20) == (14, 5)  # of the made-up places
    card = " ".join(re.sub("<[^>]*>", " ", found._repr_html_().partition("</style>")[2]).split())
    for text in (str(found), card):
        assert "9.0 MiB in use" in text
        assert "14.0 MiB" not in text
    assert "5.0 MiB" not in str(found)
    assert card.count("unknown") == 2  # the largest free chunk, and free


def test_a_cpu_is_observed_by_its_arrays(devices, arrays):
    devices[:] = [Device(0, "cpu")]
    arrays += [Array(300, stack(41), devices[0])]
    with observe_jax(every_s=1000) as source:
        (heap,) = source.heaps
        assert (heap.name, heap.limit, heap.stats().bytes_in_use) == ("jax cpu:0", None, 300)
    assert marks(heap) == []


def test_each_device_lists_the_arrays_of_its_platform(devices, arrays, tmp_path):
    devices += [Device(0, "cpu"), Device(1, totals={"bytes_in_use": 5})]
    arrays += [Array(1 << at, stack(1), device) for at, device in enumerate(devices)]
    with Recording(tmp_path / "run") as recording, observe_jax(log=recording, every_s=1000) as source:
        assert [(heap.name, heap.limit) for heap in source.heaps] == [
            ("jax gpu:0", 1 << 30),
            ("jax cpu:0", None),
            ("jax gpu:1", None),
        ]
        assert [heap.stats().bytes_in_use for heap in source.heaps] == [1, 2, 4]
    with observe_jax([1], every_s=1000) as source:
        assert [(heap.name, heap.stats().bytes_in_use) for heap in source.heaps] == [("jax gpu:1", 4)]


def test_arrays_of_which_jax_says_nothing_are_counted(devices, arrays):
    arrays += [Array(300, stack(41), devices[0]) for _ in range(2)]
    arrays[0].error = "not supported"
    with observe_jax(every_s=1000) as source:
        assert "1 of its arrays" in source.description


def test_a_jax_that_lists_no_arrays_is_observed_by_its_totals(devices, monkeypatch, tmp_path):
    devices.append(Device(0, "cpu"))
    put_jax(monkeypatch, devices)
    with Recording(tmp_path / "run") as recording, observe_jax(log=recording, every_s=1000) as source:
        assert [heap.name for heap in source.heaps] == ["jax gpu:0"]
        assert "bytes_in_use" in source.latest["gpu:0"]
        assert NOT_IN_ARRAYS not in source.latest["gpu:0"]
        assert "does not list" in source.description
    assert recording.trace().origin.status is Status.DEGRADED


def test_it_can_be_entered_again_but_not_twice(devices, arrays):
    source = observe_jax(log=EventLog(1 << 8), every_s=1000)
    for total in (5, 6):
        devices[0].totals = {"bytes_in_use": total}
        arrays[:] = [Array(total, stack(total), devices[0])]
        with source:
            with pytest.raises(LiveError, match="JAX is observed already"):
                source.__enter__()
            assert source.latest["gpu:0"]["bytes_in_use"] == total
            assert source.heaps[0].stats().bytes_in_use == total


def failing(*_):
    raise RuntimeError("gone")


def test_a_reading_that_fails_is_said_also_in_the_recording(devices, arrays, monkeypatch, tmp_path):
    arrays.append(Array(300, stack(41), devices[0]))
    with Recording(tmp_path / "run") as recording, observe_jax(log=recording, every_s=0.001) as source:
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["jax"], "live_arrays", failing)
            wait_for_end("bfcviz-jax")
        assert "It ended early: gone" in source.description
    origin = Trace.open(tmp_path / "run").origin
    assert not origin.has_ended_whole
    assert "gone" in origin.reasons[-1]


def test_totals_that_cannot_be_told_do_not_end_the_readings(devices, arrays):
    arrays.append(Array(300, stack(41), devices[0]))
    devices[0].totals = RuntimeError("UNIMPLEMENTED")
    with observe_jax(every_s=1000) as source:
        source.settle()
        assert source.heaps[0].stats().bytes_in_use == 300
    assert "early" not in source.description


def test_an_error_inside_is_not_covered(devices, arrays, monkeypatch):
    with pytest.raises(ZeroDivisionError), observe_jax(every_s=1000) as source:  # noqa: PT012
        monkeypatch.setattr(sys.modules["jax"], "live_arrays", failing)
        print(1 // 0)
    assert "It ended early: gone" in source.description


def test_what_tells_nothing_is_refused(devices, monkeypatch):
    cpu = Device(0, "cpu")
    put_jax(monkeypatch, [])
    with pytest.raises(LiveError, match="no device"):
        observe_jax()
    put_jax(monkeypatch, [cpu])
    for asked in (None, [0], [devices[0], cpu]):
        with pytest.raises(LiveError, match="live_arrays") as refused:
            observe_jax(asked)
        assert "cpu:0" in str(refused.value)
    with pytest.raises(InvalidRequest, match="device 3"):
        observe_jax([3])
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(LiveError, match="pip install jax"):
        observe_jax()
    for every_s in (0, float("nan")):
        with pytest.raises(InvalidRequest):
            observe_jax(every_s=every_s)
