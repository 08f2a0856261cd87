"""The script for the first minutes on a GPU runs all its parts, whatever fails; without a GPU."""

import os
import subprocess

import pytest
from gpu import first
from heaps import MIB, new_heap
from shared import ROOT

import bfcviz

SCRIPT = ROOT / "tests" / "gpu" / "first_minutes.sh"


def run(half, folder, python):
    environment = {**os.environ, "OUT": str(folder), "PYTHON": python}
    command = ["bash", str(SCRIPT), half]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("half", "names"),
    [
        ("1", {"machine", "first", "pytest"}),
        ("2", {"first2", "cupy_overhead", "torch_overhead", "sanitizer"}),
    ],
)
@pytest.mark.parametrize(("python", "status"), [("echo", 0), ("false", 1)])
def test_each_part_leaves_its_output_and_its_status(tmp_path, half, names, python, status):
    done = run(half, tmp_path / "out", python)
    assert done.returncode == 0
    found = {path.stem: path.read_text().splitlines() for path in (tmp_path / "out").glob("*.txt")}
    assert set(found) == names
    for name in names - {"machine", "sanitizer"}:  # those two need more than Python
        assert found[name][-1] == f"-- status {status}"


def test_there_are_two_halves(tmp_path):
    assert run("3", tmp_path, "echo").returncode == 2


def test_a_recording_is_saved_small(tmp_path, monkeypatch):
    monkeypatch.setattr(first, "OUT", tmp_path)

    def work(recording):
        with new_heap(8 * MIB, log=recording.log, labels=recording.labels) as heap:
            heap.allocate(MIB)

    assert "cupy_gpu.parquet" in first.recorded("cupy", work)
    path = tmp_path / "cupy_gpu.parquet"
    assert len(bfcviz.open(path)) >= 2
    assert path.stat().st_size < 100_000


def test_a_part_that_fails_is_told_and_does_not_stop_the_others():
    assert first.told(lambda: 1 // 0) == "ZeroDivisionError: integer division or modulo by zero"
    assert set(first.PARTS) == {"driver", "ipc", "capture", "values", "torch", "jax", "recordings"}
