"""follow: the recording of another process, from its start until after its end."""

import os
import signal
import subprocess
import sys
import time

import pytest
from shared import ROOT
from unit.figures.synthetic import KiB, PlainHeap

import bfcviz
from bfcviz.dashboard.trace_menus import LiveSeries
from bfcviz.errors import BfcvizError

LIMIT_S = 150
CODE = """
import os, sys, numpy as np
kept = [np.empty(1000 + n, np.uint8) for n in range(50)]
print("made", os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def recorded(tmp_path):
    """A program under `bfcviz record` that made 50 arrays; its process number is `pid_of_program`."""
    command = [
        *(sys.executable, "-m", "bfcviz", "record", "-o", tmp_path / "run.bfc"),
        "--",
        sys.executable,
        "-c",
        CODE,
    ]
    env, pipe = {**os.environ, "PYTHONPATH": str(ROOT)}, subprocess.PIPE
    with subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        said, number = process.stdout.readline().split()
        assert said == "made"
        process.pid_of_program = int(number)
        yield process
        process.stdin.close()


def until(dashboard, true):
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end
        dashboard.refresh()


@pytest.mark.parametrize("killed", [False, True])
def test_it_shows_how_the_process_ended(killed, recorded, tmp_path):
    dashboard = bfcviz.follow(tmp_path / "run.bfc", wait_s=0, start=False)
    until(dashboard, lambda: dashboard.inspector.step > 50)
    assert "live: " in dashboard.status.value
    if killed:
        os.kill(recorded.pid_of_program, signal.SIGKILL)
    else:
        recorded.stdin.close()
    recorded.wait(LIMIT_S)
    until(dashboard, lambda: not dashboard.trace.following)
    dashboard.show_end()
    assert (
        f"process {recorded.pid_of_program} {'was killed' if killed else 'ended'}" in dashboard.status.value
    )
    dashboard.close()


def test_a_recording_that_does_not_start_is_an_error(tmp_path):
    with pytest.raises(BfcvizError, match=r"run\.bfc"):
        bfcviz.follow(tmp_path / "run.bfc", wait_s=0)


def trace(chunks):
    heap = PlainHeap(64 * KiB)
    for _ in range(chunks):
        heap.allocate(KiB)
    return heap.trace()


def test_the_newest_is_shown_until_the_user_chooses_another():
    series = LiveSeries("window", theme="dark")
    assert "waiting for the first window" in series.status.value
    assert series.inspector is None
    first, second, third = trace(1), trace(2), trace(3)
    series.add("1", first)
    assert series.trace is first
    assert series.inspector.theme == "dark"
    series.add("2", second)
    assert series.trace is second
    assert series.children[1] is series.inspector
    series.menu.value = 0
    assert series.trace is first
    series.add("3", third)
    assert series.trace is first
    assert [name for name, _ in series.menu.options] == ["1", "2", "3"]
    series.menu.value = 2
    series.add("4", first)
    assert series.trace is first
    series.say("<b>")
    assert series.status.value == "&lt;b&gt;"
    series.close()
