"""Periodic in forked processes and at the end of Python."""

import os

import pytest
from processes import run_code


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_in_a_forked_process_it_is_stopped_and_can_be_started():
    code = """
import threading, warnings
from forks import child_ends_well
from bfcviz.periodic import Periodic

warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
came = threading.Semaphore(0)
def call():
    came.release()
    return 0.0

def work():
    global came
    assert not periodic.running
    came = threading.Semaphore(0)
    periodic.start()
    assert came.acquire(timeout=150)
    periodic.stop()

periodic = Periodic(call, "forked")
periodic.start()
for _ in range(20):
    assert came.acquire(timeout=150)
    assert child_ends_well(work)
assert periodic.running
periodic.stop()
"""
    assert run_code(code) == ""


@pytest.mark.parametrize(("at_exit", "left"), [(True, ["MainThread"]), (False, ["MainThread", "left"])])
def test_pythons_end_stops_those_that_ask_for_it_and_hangs_with_none(at_exit, left):
    code = f"""
import atexit, threading
from bfcviz.periodic import Periodic

atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))
came = threading.Event()
def call():
    came.set()
    return 1000.0

periodic = Periodic(call, "left", at_exit={at_exit})
periodic.start()
assert came.wait(60)
"""
    assert run_code(code) == f"{left}\n"
