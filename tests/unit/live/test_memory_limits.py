"""How much memory there is for a heap: of the machine, and within control groups."""

import resource
from pathlib import Path

import pytest
from heaps import GIB, MIB
from processes import needs_compiled
from unit.live.cupy_stand_in import cupy, gpu, heap_of, needs_cupy, served

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.live import memory_limits
from bfcviz.live.memory_limits import Room, Share


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of 24 GiB with 20 available, without control groups; returns the folder for some."""
    monkeypatch.setattr(memory_limits, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(memory_limits, "_installed_memory", lambda: 24 * GIB)
    monkeypatch.setattr(memory_limits.heap_memory, "available_memory", lambda: 20 * GIB)
    monkeypatch.setattr(memory_limits, "_group_paths", lambda: [("", "/pod/kernel")])
    return tmp_path


def group(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        Path(folder, f"memory.{name}").write_text(f"{text}\n")


def test_without_groups_the_machine_is_what_counts(machine):
    assert memory_limits.total_memory() == 24 * GIB
    assert memory_limits.available_memory() == 20 * GIB
    assert memory_limits.default_limit() == 17 * GIB
    assert memory_limits.reserve() == 768 * MIB


def test_what_limits_the_process_is_named(machine):
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    known = {} if addresses == resource.RLIM_INFINITY else {"address_space": addresses}
    assert memory_limits.process_limits() == {**known, "machine": 24 * GIB}
    group(machine / "pod", max=8 * GIB, current=3 * GIB)
    assert memory_limits.process_limits() == {**known, "container": 8 * GIB, "machine": 24 * GIB}


def test_the_smallest_limit_of_the_groups_above_counts(machine):
    group(machine / "pod" / "kernel", max="max", current=GIB)
    group(machine / "pod", max=8 * GIB, current=3 * GIB, stat=f"inactive_file {GIB}\nactive_file 0")
    assert memory_limits.total_memory() == 8 * GIB
    assert memory_limits.available_memory() == 6 * GIB
    assert memory_limits.default_limit() == 5 * GIB


def test_version_1_of_control_groups_is_read_too(machine, monkeypatch):
    monkeypatch.setattr(memory_limits, "_group_paths", lambda: [("memory", "/job")])
    group(machine / "memory", limit_in_bytes=9223372036854771712, usage_in_bytes=GIB)
    group(machine / "memory" / "job", limit_in_bytes=4 * GIB, usage_in_bytes=3 * GIB)
    assert memory_limits.total_memory() == 4 * GIB
    assert memory_limits.available_memory() == GIB
    assert memory_limits.default_limit() == GIB // 2


def test_a_full_group_leaves_the_least_limit(machine):
    group(machine, max=4 * GIB, current=5 * GIB)
    assert memory_limits.available_memory() == 0
    assert memory_limits.default_limit() == 64 * MIB


def test_this_machine_leaves_itself_room():
    total = memory_limits.total_memory()
    assert 0 < memory_limits.available_memory() <= total
    assert 64 * MIB <= memory_limits.default_limit() <= total * 7 // 8
    assert memory_limits.default_limit() % (64 * MIB) == 0


# ------------------------------------------------------------------------------
# How much of a GPU a framework's heaps take: a limit, a fraction, or what is free but a headroom.


__all__ = ["gpu"]


@pytest.mark.parametrize(
    ("room", "kept"),
    [
        (Room(16 * GIB, 15 * GIB, 9), 1800 * MIB),
        (Room(16 * GIB, 15 * GIB, 7), 1050 * MIB),
        (Room(16 * GIB, 2 * GIB - 1, 9), 225 * MIB),
        (Room(16 * GIB, 100 * MIB, 9), 0),  # there is no headroom to be kept
    ],
)
def test_by_default_what_is_free_is_taken_but_a_headroom(room, kept):
    assert Share().of(0, room, "device") == room.available - kept


def test_a_limit_a_fraction_and_a_headroom():
    room = Room(16 * GIB, 15 * GIB, 9)
    assert Share.parse("3GiB", None, None).of(0, room, "device") == 3 * GIB
    assert Share.parse(None, 0.5, None).of(0, room, "device") == 8 * GIB
    assert Share.parse(None, None, "1GiB").of(0, room, "device") == 14 * GIB
    assert Share.parse(None, 1.5, None).of(0, room, "managed") == 24 * GIB


@pytest.mark.parametrize(
    "given",
    [(1, 0.5, None), (None, 0.5, "1GiB"), (None, 0, None), (None, float("nan"), None), (None, None, -1)],
)
def test_what_cannot_be_is_refused(given):
    with pytest.raises(InvalidRequest):
        Share.parse(*given)


def test_more_than_the_device_has_is_refused_with_numbers():
    room = Room(16 * GIB, 15 * GIB, 9)
    with pytest.raises(LiveError, match=r"24\.0 GiB .* device 3 has 16\.0 GiB"):
        Share(fraction=1.5).of(3, room, "device")
    with pytest.raises(LiveError, match=r"headroom of 15\.0 GiB .* device 3, which has 15\.0 GiB free"):
        Share(headroom=15 * GIB).of(3, room, "device")


@needs_cupy
@needs_compiled
def test_cupy_leaves_a_headroom_by_default_on_each_device(gpu):
    gpu.memory, gpu.taken = 16 * GIB, 3 * GIB
    with served() as source:
        limit = 13 * GIB - 1800 * MIB
        assert heap_of(source).limit == limit
        gpu.taken = 5 * GIB
        with gpu.on(device=1):
            cupy.empty(10)
        assert heap_of(source, 1).limit == limit - 2 * GIB
    gpu.taken = 0
    assert heap_of(served(fraction=0.25)).limit == 4 * GIB
    assert heap_of(served(headroom="2GiB")).limit == 14 * GIB
