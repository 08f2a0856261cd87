"""JAX's totals in marks, with a stand-in for JAX."""

import sys
import types

import pytest
from threads import wait_for_end

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live.jax.observe import observe_jax


class Device:
    def __init__(self, number, platform="gpu", totals=None):
        self.id, self.platform, self.totals = number, platform, totals

    def memory_stats(self):
        if isinstance(self.totals, Exception):
            raise self.totals
        return self.totals


@pytest.fixture
def devices(monkeypatch):
    found = [Device(0, totals={"bytes_in_use": 100, "peak_bytes_in_use": 100, "bytes_limit": 1 << 30})]
    jax = types.ModuleType("jax")
    jax.local_devices = lambda: found
    monkeypatch.setitem(sys.modules, "jax", jax)
    return found


def marks(heap):
    events = heap.log.copy(0, heap.log.head)
    assert set(events["kind"].tolist()) <= {Kind.MARK}
    return [(heap.labels.name(event["label"]), int(event["size"])) for event in events]


def test_totals_become_marks_when_they_change(devices):
    with observe_jax(log=EventLog(1 << 8), every_s=1000) as source:
        (heap,) = source.heaps
        assert (source.way, heap.name, heap.limit) == ("observe", "jax gpu:0", 1 << 30)
        first = marks(heap)
        assert first == [("bytes_in_use", 100), ("peak_bytes_in_use", 100), ("bytes_limit", 1 << 30)]
        source.settle()
        assert marks(heap) == first
        devices[0].totals = {**devices[0].totals, "bytes_in_use": 70}
    assert marks(heap) == [*first, ("bytes_in_use", 70)]
    assert source.latest["gpu:0"]["bytes_in_use"] == 70
    assert heap.stats().chunks_in_use == heap.stats().pool_bytes == 0
    assert "memory_stats" in source.description
    assert source.out_of_memory is None


def test_a_heap_for_each_device_that_tells(devices, tmp_path):
    devices += [Device(0, "cpu"), Device(1, totals={"bytes_in_use": 5})]
    with Recording(tmp_path / "run") as recording, observe_jax(log=recording, every_s=1000) as source:
        assert [(heap.name, heap.limit) for heap in source.heaps] == [
            ("jax gpu:0", 1 << 30),
            ("jax gpu:1", None),
        ]
        assert len(recording.trace()) == 3


def test_it_can_be_entered_again_but_not_twice(devices):
    source = observe_jax(log=EventLog(1 << 8), every_s=1000)
    for total in (5, 6):
        devices[0].totals = {"bytes_in_use": total}
        with source:
            with pytest.raises(LiveError, match="JAX is observed already"):
                source.__enter__()
            assert source.latest["gpu:0"]["bytes_in_use"] == total


def test_a_reading_that_fails_is_said(devices):
    with pytest.raises(RuntimeError, match="gone"), observe_jax(every_s=0.001) as source:  # noqa: PT012
        devices[0].totals = RuntimeError("gone")
        wait_for_end("bfcviz-jax")
        assert "It ended early: gone" in source.description


def test_an_error_inside_is_not_covered(devices):
    with pytest.raises(ZeroDivisionError), observe_jax(every_s=1000) as source:  # noqa: PT012
        devices[0].totals = RuntimeError("gone")
        print(1 // 0)
    assert "It ended early: gone" in source.description


def test_what_tells_nothing_is_refused(devices, monkeypatch):
    cpu = Device(0, "cpu")
    with pytest.raises(LiveError, match="cpu:0"):
        observe_jax([devices[0], cpu])
    devices[:] = [cpu]
    with pytest.raises(LiveError, match=r"cpu:0.* serve_numpy"):
        observe_jax()
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(LiveError, match="pip install 'jax"):
        observe_jax()
    for every_s in (0, float("nan")):
        with pytest.raises(InvalidRequest):
            observe_jax(every_s=every_s)
