"""The script for the first minutes on a GPU runs all its parts, whatever fails; without a GPU."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu import first
from heaps import MIB, new_heap
from processes import run_python
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
        ("1", {"nvidia_smi", "machine", "driver", "ipc", "capture", "values", "pytest"}),
        ("2", {"torch", "jax", "recordings", "cupy_overhead", "torch_overhead", "sanitizer"}),
    ],
)
@pytest.mark.parametrize(("python", "status"), [("echo", 0), ("false", 1)])
def test_each_part_leaves_its_output_and_its_status(tmp_path, half, names, python, status):
    done = run(half, tmp_path / "out", python)
    assert done.returncode == 0
    found = {path.stem: path.read_text().splitlines() for path in (tmp_path / "out").glob("*.txt")}
    assert set(found) == names
    for name in names - {"nvidia_smi", "sanitizer"}:  # those two need more than Python
        assert found[name][-1] == f"-- status {status}"


def test_what_a_part_wrote_is_there_when_the_script_is_killed(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho begun\nexec sleep 600\n")
    python.chmod(0o755)
    environment = {**os.environ, "OUT": str(tmp_path / "out"), "PYTHON": str(python)}
    with subprocess.Popen(
        ["bash", str(SCRIPT), "2"], cwd=ROOT, env=environment, start_new_session=True
    ) as script:
        result = tmp_path / "out" / "torch.txt"
        deadline = time.monotonic() + 30
        while not (result.exists() and result.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        started = children(script.pid)
        script.kill()
        for pid in started:
            os.kill(pid, signal.SIGKILL)
    assert result.read_text() == "begun\n"


def test_wheels_that_cannot_be_installed_do_not_stop_the_parts(tmp_path):
    shutil.copytree(ROOT / "tests" / "gpu", tmp_path / "tests" / "gpu")
    (tmp_path / ".whl").mkdir()
    (tmp_path / ".whl" / "damaged-1.0-py3-none-any.whl").touch()
    environment = {**os.environ, "OUT": str(tmp_path / "out"), "PYTHON": "false"}
    done = subprocess.run(
        ["bash", str(SCRIPT), "1"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0
    parts = {path.stem for path in (tmp_path / "out").iterdir()}
    assert parts == {"wheels", "nvidia_smi", "machine", "driver", "ipc", "capture", "values", "pytest"}


def test_every_compiled_module_that_is_missing_is_named(monkeypatch, capsys):
    names = first.compiled_modules()
    monkeypatch.setattr(
        first,
        "find_spec",
        lambda name: None if name == "bfcviz._whatif" else SimpleNamespace(origin="x.abi3.so"),
    )
    first.machine()
    said = capsys.readouterr().out
    assert f"compiled modules: {len(names) - 1} of {len(names)}; missing: ['bfcviz._whatif']" in said


def test_the_tests_run_without_the_plugins_of_the_set_up():
    """On a machine with a GPU there may be pytest and Hypothesis only."""
    code = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {"xdist", "pytest_timeout", "pytest_rerunfailures", "plotly", "ipywidgets"}:
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Without if each is PathFinder else each for each in sys.meta_path]
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/gpu", "-k", "small or halves"]))
"""
    done = run_python("-c", code, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def children(parent):
    """The processes that a process has started, and theirs."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            _, _, rest = each.read_text().rpartition(")")
            if int(rest.split()[1]) == parent:
                found += [int(each.parent.name), *children(int(each.parent.name))]
    return found


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


def test_a_part_that_fails_shows_in_the_status_and_does_not_stop_the_others():
    done = run_python(ROOT / "tests" / "gpu" / "first.py", "jax", "machine", JAX_PLATFORMS="none")
    assert done.returncode == 1
    assert "Traceback" in done.stdout
    assert "compiled modules:" in done.stdout


def test_a_failure_is_told():
    assert first.told(lambda: 1 // 0) == "ZeroDivisionError: integer division or modulo by zero"
    assert set(first.PARTS) == {"machine", "driver", "ipc", "capture", "values", "torch", "jax", "recordings"}
