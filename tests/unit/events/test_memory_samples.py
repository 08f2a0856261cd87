"""The memory of a recorded process and its devices: sampled, read with the recording, drawn beside the heap."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bfcviz
from bfcviz.events.memory_samples import (
    DEVICE_FILE,
    MOST_SAMPLES,
    PROCESS_FILE,
    add_device_sample,
    device_memory,
    process_memory,
    sample_process,
)
from bfcviz.events.origin import Pool
from bfcviz.events.storage.drain import FolderDrain
from bfcviz.events.storage.folder import files_of, remove_files
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace

MiB = 1 << 20
ROW = [("time_ns", "<i8"), ("resident_bytes", "<u8")]


@pytest.fixture
def folder(tmp_path):
    """A recording that began at 1,000 ns, of 100 allocations."""
    return recorded(tmp_path, "numpy")


@pytest.fixture
def device_folder(tmp_path):
    """The same of a heap on device 1."""
    return recorded(tmp_path, "cupy:1")


def recorded(tmp_path, name):
    with (
        Recording(
            tmp_path / "run", [Pool(name)], details={"started_ns": 1000, "process": os.getpid()}
        ) as made,
        bfcviz.BFCAllocator(
            bfcviz.SimulatedSubAllocator(), 64 * MiB, log=made.log, labels=made.labels
        ) as heap,
    ):
        for _ in range(100):
            heap.allocate(65536)
    return made.folder


def write(folder, rows):
    np.array(rows, ROW).tofile(folder / PROCESS_FILE)


def write_devices(folder, rows):
    row = [("time_ns", "<i8"), ("used_bytes", "<u8"), ("device", "<u8")]
    np.array(rows, row).tofile(folder / DEVICE_FILE)


def test_this_process_is_sampled(folder):
    sample_process(os.getpid(), folder)
    sample_process(os.getpid(), folder)
    found = process_memory(Trace.open(folder).origin.details)
    assert len(found.times) == 2
    assert (np.diff(found.times) >= 0).all()
    assert (found.num_bytes > 10 * MiB).all()


def test_a_process_that_is_gone_writes_nothing(folder):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(OSError):
        sample_process(child, folder)
    assert not (folder / PROCESS_FILE).exists()


def test_what_packs_a_recording_samples_its_process(folder):
    drain = FolderDrain(folder, lambda _: lambda events: (b"", b""))
    drain.end()
    assert process_memory(Trace.open(folder).origin.details) is not None
    assert folder / PROCESS_FILE in files_of(folder)  # so that --force removes it


def test_a_recording_that_is_discarded_while_it_is_sampled_leaves_nothing(folder, monkeypatch):
    def sample(process, place):
        remove_files(place)  # then the folder could not be removed
        sample_process(process, place)

    monkeypatch.setattr("bfcviz.events.storage.drain.sample_process", sample)
    FolderDrain(folder, lambda _: lambda events: (b"", b"")).end()
    assert not folder.exists()


def test_times_are_those_of_events_and_a_saved_trace_keeps_them(folder, tmp_path):
    write(folder, [(1000, 5 * MiB), (3000, 7 * MiB)])
    for path in (
        folder,
        Trace.open(folder).save(tmp_path / "x.bfc"),
        Trace.open(folder).save(tmp_path / "x.parquet"),
    ):
        found = process_memory(Trace.open(path).origin.details)
        assert (found.times.tolist(), found.num_bytes.tolist()) == ([0, 2000], [5 * MiB, 7 * MiB])


def test_of_many_samples_the_largest_of_each_part_are_kept(folder):
    sizes = np.random.default_rng(1).integers(1, 1 << 40, 12_345)
    write(folder, [(1000 + number, size) for number, size in enumerate(sizes.tolist())])
    found = process_memory(Trace.open(folder).origin.details)
    assert len(found.times) == MOST_SAMPLES
    assert found.num_bytes.max() == sizes.max()
    assert (found.num_bytes == sizes[found.times]).all()


@given(st.binary(max_size=100), st.integers(-(1 << 70), 1 << 70) | st.booleans())
def test_any_bytes_and_any_start_are_samples_or_none(tmp_path_factory, data, started_ns):
    place = tmp_path_factory.mktemp("any")
    with Recording(place / "run", [Pool("numpy")], details={"started_ns": started_ns}) as made:
        pass
    for name in (PROCESS_FILE, DEVICE_FILE):
        (made.folder / name).write_bytes(data)
    details = Trace.open(made.folder).origin.details
    devices = details.get("device_memory", {})
    for found in (process_memory(details), *(device_memory(details, int(device)) for device in devices)):
        assert found is None or (len(found.times) > 0 and (np.diff(found.times) >= 0).all())


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {},
        {"time_ns": [], "resident_bytes": []},
        {"time_ns": [1, 2], "resident_bytes": [1]},
        {"time_ns": [2, 1], "resident_bytes": [1, 1]},
        {"time_ns": ["x"], "resident_bytes": [1]},
        {"time_ns": [1], "resident_bytes": [-1]},
        {"time_ns": [1 << 70], "resident_bytes": [1]},
        {"time_ns": [[1]], "resident_bytes": [[1]]},
        {"time_ns": [1] * (MOST_SAMPLES + 1), "resident_bytes": [1] * (MOST_SAMPLES + 1)},
    ],
)
def test_samples_that_cannot_be_right_are_none(wrong):
    assert process_memory({"process_memory": wrong}) is None
    assert device_memory({"device_memory": wrong}, 0) is None


def test_samples_of_devices_are_those_of_their_number_and_a_saved_trace_keeps_them(device_folder, tmp_path):
    add_device_sample(device_folder, 1, 3 * MiB)
    assert len(device_memory(Trace.open(device_folder).origin.details, 1).times) == 1
    write_devices(device_folder, [(1000, 5 * MiB, 1), (1500, MiB, 0), (3000, 7 * MiB, 1)])
    for path in (
        device_folder,
        Trace.open(device_folder).save(tmp_path / "x.bfc"),
        Trace.open(device_folder).save(tmp_path / "x.parquet"),
    ):
        details = Trace.open(path).origin.details
        found = device_memory(details, 1)
        assert (found.times.tolist(), found.num_bytes.tolist()) == ([0, 2000], [5 * MiB, 7 * MiB])
        assert device_memory(details, 0).num_bytes.tolist() == [MiB]
        assert device_memory(details, 2) is device_memory(details, None) is None
    assert device_folder / DEVICE_FILE in files_of(device_folder)


def test_the_timeline_draws_what_all_processes_use_of_the_heaps_own_device(device_folder):
    trace = Trace.open(device_folder)
    first, last = (1000 + trace.read(0, len(trace))["time"][[0, -1]]).tolist()
    in_use = 100 * 65536
    write_devices(device_folder, [(first, 2 * in_use, 1), (first, 5 * in_use, 0), (last, 4 * in_use, 1)])
    write(device_folder, [(first, in_use), (last, in_use)])
    figure = bfcviz.draw("stats_timeline", device_folder, 10, axis="time")
    unit = max(each.y.max() for each in figure.data if each.name == "in use") / in_use
    (device,) = [each for each in figure.data if (each.name or "").startswith("device used by all processes")]
    (process,) = [each for each in figure.data if (each.name or "").startswith("process")]
    assert (device.y / unit).tolist() == pytest.approx([2 * in_use, 4 * in_use])
    assert (process.y / unit).tolist() == pytest.approx([in_use, in_use])
    assert figure.layout.yaxis.range[1] >= max(device.y)
    explained = {line.partition(":")[0] for line in figure.notes[0].definition.split("<br>")}
    assert {"process", "device used by all processes"} < explained


def test_a_heap_on_the_host_has_no_line_of_a_device(folder):
    write_devices(folder, [(1001, MiB, 0)])
    figure = bfcviz.draw("stats_timeline", folder, 10)
    assert not [each for each in figure.data if (each.name or "").startswith("device")]


def test_the_timeline_draws_the_process_beside_the_heap(folder):
    trace = Trace.open(folder)
    last = int(trace.read(len(trace) - 1, len(trace))["time"][0])
    in_use = 100 * 65536
    write(folder, [(1000, 2 * in_use), (1000 + last // 2, 3 * in_use), (1000 + last, 3 * in_use)])
    figure = bfcviz.draw("stats_timeline", folder, 10, axis="time")
    (line,) = [each for each in figure.data if (each.name or "").startswith("process")]
    unit = max(each.y.max() for each in figure.data if each.name == "in use") / in_use
    assert max(line.y) / unit == pytest.approx(3 * in_use, rel=1e-6)
    assert figure.layout.yaxis.range[1] >= max(line.y)


def test_a_process_far_larger_than_the_heap_does_not_flatten_it(folder):
    write(folder, [(1001, 1 << 40), (1002, 1 << 40)])
    figure = bfcviz.draw("stats_timeline", folder, 10)
    (line,) = [each for each in figure.data if (each.name or "").startswith("process")]
    assert "1.0 TiB" in line.name
    assert len(line.y) == 0
