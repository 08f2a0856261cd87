"""Streams: order of work, errors, CUDA's stream protocol, forks."""

import os

import pytest
from unit.devices.machines import fake, simulated

from bfcviz.devices import (
    DeviceManager,
)
from bfcviz.errors import DevicesError


def test_a_stream_runs_host_functions_behind_its_work():
    settings, _, library = fake()
    with DeviceManager.create(settings) as manager:
        stream = manager.gpu().compute_stream
        assert stream.submit(lambda: library.synchronized[-1]).result() == stream.handle
        before = len(library.synchronized)
        manager.gpu().synchronize()
        assert len(library.synchronized) == before + 4
        assert "simulated" not in repr(stream)


def test_a_stream_is_shared_by_cudas_protocol_unless_it_is_simulated():
    settings, _, library = fake()
    with DeviceManager.create(settings) as manager:
        version, handle = manager.gpu().compute_stream.__cuda_stream__()
        assert (version, handle in library.streams) == (0, True)
    settings, _ = simulated()
    with DeviceManager.create(settings) as manager, pytest.raises(DevicesError, match="simulated GPU"):
        manager.gpu().compute_stream.__cuda_stream__()


def test_a_stream_that_is_forgotten_is_destroyed():
    settings, _, library = fake()
    manager = DeviceManager.create(settings)
    del manager.gpu().streams["compute"]
    assert len(library.streams) == 3
    manager.close()


def test_a_forked_child_leaves_the_parents_streams_alone(monkeypatch):
    settings, _, library = fake()
    manager = DeviceManager.create(settings)
    monkeypatch.setattr(os, "getpid", lambda: library.pid + 1)  # as in a fork of that process
    del manager.gpu().streams["compute"]
    assert len(library.streams) == 4


def test_a_gpu_has_a_stream_to_compute_and_three_to_copy(manager):
    gpu = manager.gpu(0)
    assert list(gpu.streams) == ["compute", "host_to_device", "device_to_host", "device_to_device"]
    assert gpu.compute_stream.number == 1
    done = []
    for number in range(20):
        gpu.compute_stream.submit(done.append, number)
    gpu.synchronize()
    assert done == list(range(20))
    assert manager["CPU:0"].streams == {}


def test_what_a_stream_runs_tells_its_result_or_error(manager):
    stream = manager.gpu(0).streams["host_to_device"]
    assert stream.submit(pow, 2, 10).result() == 1024
    with pytest.raises(ZeroDivisionError):
        stream.submit(lambda: 1 // 0).result()
