import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from threading import Event, Timer

from unit.whatif.sweep_streams import KillsItsProcess, numbers, random_stream, record

import bfcviz
from bfcviz.whatif import sweep_points as executors

LIMITS = ["100%", "110%", "150%", "16MiB", None]


def test_processes_give_the_same_numbers_also_when_one_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "START_S", -1.0)  # the points are few
    traces = [random_stream(1), random_stream(2), record(tmp_path / "run"), tmp_path / "missing"]
    policies = ["bfc", "first_fit", "first_fit:granule=512"]
    killed = []

    def progress(state):
        if state.done == 20:
            victim = multiprocessing.active_children()[0]
            os.kill(victim.pid, signal.SIGKILL)
            killed.append(victim.pid)

    expected = bfcviz.sweep(traces, policies, LIMITS)
    found = bfcviz.sweep(traces, policies, LIMITS, processes=2, progress=progress)
    assert len(killed) == 1
    assert found.complete
    assert numbers(found) == numbers(expected)
    assert not found.note
    assert multiprocessing.active_children() == []


def test_a_point_that_kills_its_process_has_a_message(tmp_path):
    always, once = KillsItsProcess(), KillsItsProcess(once=str(tmp_path / "once"), name="first_time")
    results = bfcviz.sweep(random_stream(1), [always, once, "bfc"], "16MiB", processes=1)
    assert "processes ended" in results.points[0].error
    assert [point.outcome for point in results.points] == ["error", "fits", "fits"]


def test_stop_ends_processes_also_in_the_middle_of_a_point():
    stop = Event()

    def progress(state):
        if state.done == 1:
            Timer(0.1, stop.set).start()

    long = random_stream(1, requests=200_000)
    limits = [f"{percent}%" for percent in range(100, 200)]
    results = bfcviz.sweep(long, "first_fit:granule=1", limits, processes=1, progress=progress, stop=stop)
    assert 1 <= len(results) < 100
    assert not results.complete
    assert multiprocessing.active_children() == []


def test_a_script_without_a_main_guard_gets_a_message(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import bfcviz
        results = bfcviz.sweep("missing", "bfc", ["8MiB", "9MiB"], processes=1)
        print(len(results.errors), results.points[0].error)
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=150, check=True)
    assert done.stdout.startswith("2 ")
    assert "__main__" in done.stdout
