"""How much memory there is for a heap: of the machine, and within control groups."""

from pathlib import Path

import pytest
from heaps import GIB, MIB

from bfcviz.live import memory_limits


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
