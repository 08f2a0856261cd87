"""The heaps of a session: events in rings, or in a recording's folder."""

import pytest
from heaps import assert_model_agrees
from unit.devices.machines import new_settings

import bfcviz
from bfcviz.devices import DeviceManager
from bfcviz.errors import DevicesError
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.units import MiB


def test_a_heap_of_a_session_can_be_modelled_from_its_events(manager):
    heap = manager.gpu(1).heap
    held = [heap.allocate(size * MiB) for size in (1, 30, 5)]
    heap.free(held[1])
    assert_model_agrees(heap, Reader(heap.log, 0).read(1 << 20))


def test_a_session_can_be_recorded_to_a_folder(tmp_path):
    with DeviceManager.create(new_settings(), record=tmp_path / "run") as manager:
        manager.gpu(0).allocator().allocate(5 * MiB, label="weights")
        manager["CPU:0"].allocator().allocate(100)
        assert "weights" in manager.gpu(0).trace().labels.names
    folders = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert folders == ["GPU_0_bfc_simulated", "GPU_1_bfc_simulated", "cpu_bfc"]
    assert "weights" in bfcviz.open(tmp_path / "run" / "GPU_0_bfc_simulated").labels.names


def test_a_ring_that_was_too_small_says_so():
    with DeviceManager.create(new_settings(), capacity=64) as manager:
        heap = manager.gpu().heap
        for _ in range(100):
            heap.free(heap.allocate(100))
        with pytest.raises(DevicesError, match="record="):
            manager.gpu().trace()


# ------------------------------------------------------------------------------
# The steps of a session: their order, their trace, and the marks in each heap.


def test_the_journey_leads_from_the_session_to_the_manager(manager):
    stages = [step.stage for step in manager.journey.steps]
    expected = ["session", *["settings"] * 3, "factory", "device", "factory", "device", "device", "manager"]
    assert stages == expected
    factories = [step.words for step in manager.journey.steps if step.stage == "factory"]
    assert factories[0].startswith("GPUCompatibleCPUDeviceFactory")
    assert "/device:GPU:1" in manager.journey._repr_html_()
    manager.journey.note("<b>", "<i>")
    assert "&lt;b&gt;</td><td style='text-align:left'>&lt;i&gt;" in manager.journey._repr_html_()


def test_the_journey_is_a_trace_of_marks_and_begins_each_heaps_own(manager, tmp_path):
    trace = manager.journey.trace()
    assert set(trace.read(0, len(trace))["kind"]) == {Kind.MARK}
    trace.save(tmp_path / "journey.parquet")
    again = Trace.open(tmp_path / "journey.parquet")
    names = [again.labels.name(number) for number in again.read(0, len(again))["label"]]
    assert names == [step.label for step in manager.journey.steps]
    gpu = manager.gpu(0)
    gpu.allocator().allocate(100, label="first tensor")
    own = gpu.trace()
    told = [own.labels.name(number) for number in own.read(0, len(own))["label"]]
    assert told[0] == "session: begins"
    assert "created /job:localhost/replica:0/task:0/device:GPU:0 (simulated)" in told[7]
    assert told[-1] == "first tensor"
    assert own.origin.details["simulated"] is True
