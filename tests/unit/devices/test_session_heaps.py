"""The heaps of a session: events in rings, or in a recording's folder."""

import pytest
from heaps import assert_model_agrees
from unit.devices.machines import new_settings

import bfcviz
from bfcviz.devices import DeviceManager
from bfcviz.errors import DevicesError
from bfcviz.events.log_reader import Reader
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
