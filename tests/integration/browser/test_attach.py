"""`bfcviz attach` in a real page: a recorded program's heap, while it works, and when it is killed."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from integration.browser.lab import PAGE_LIMIT_MS, _environment
from shared import ROOT, land_window

import bfcviz

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

LIMIT_S = 150
PROGRAM = """
import os, sys
import numpy as np
kept = []
print(os.getpid(), flush=True)
for line in sys.stdin:
    kept += [np.empty(1000, np.uint8) for _ in range(int(line))]
    print("made", flush=True)
"""


@contextmanager
def running(*words, folder, **options):
    """`bfcviz WORDS`, ended with the block."""
    environment = _environment(folder) | {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "bfcviz", *words], env=environment, text=True, cwd=folder, **options
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def address_in(log):
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if found := re.search(r"Showing (http://\S+)\n", log.read_text()):
            return found[1]
        time.sleep(0.05)  # between two looks, not in place of one
    return pytest.fail(f"no address was printed:\n{log.read_text()}")


def test_a_recorded_program_is_seen_at_work_and_killed(tmp_path, browser):
    log, pipe = tmp_path / "log", subprocess.PIPE
    record = ["record", "-o", "run.bfc", "--", sys.executable, "-c", PROGRAM]
    with (
        log.open("wb") as sink,
        running("attach", "run.bfc", "--no-browser", folder=tmp_path, stdout=sink, stderr=sink),
        running(*record, folder=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as program,
    ):
        number = int(program.stdout.readline())
        page = browser.new_page()
        page.set_default_timeout(PAGE_LIMIT_MS)
        page.goto(address_in(log))
        view = page.locator(".bfcviz-dashboard")
        for count, steps in ((10, r"step \d\d of"), (1000, r"step \d,\d{3} of")):
            program.stdin.write(f"{count}\n")
            program.stdin.flush()
            assert program.stdout.readline() == "made\n"
            view.locator(".bfcviz-step-line", has_text=re.compile(steps)).wait_for()
        page.locator(".bfcviz-live", has_text=re.compile(r"live: \d,\d{3} events")).wait_for()
        os.kill(number, signal.SIGKILL)
        page.locator(".bfcviz-live", has_text=f"process {number} was killed").wait_for()
        assert program.wait(LIMIT_S) == 128 + signal.SIGKILL
        page.close()


def test_tensorflows_windows_come_into_the_page(tmp_path, browser):
    log, folder = tmp_path / "log", tmp_path / "run.bfc"
    with (
        log.open("wb") as sink,
        running("attach", "run.bfc", "--no-browser", folder=tmp_path, stdout=sink, stderr=sink),
    ):
        land_window(folder, 1, "lstm")
        page = browser.new_page()
        page.set_default_timeout(PAGE_LIMIT_MS)
        page.goto(address_in(log))
        words = page.locator(".bfcviz-dashboard .bfcviz-step-line")
        words.filter(has_text="of 32,001").wait_for()
        land_window(folder, 2, "conv")
        words.filter(has_text=f"of {len(bfcviz.open(bfcviz.sample('conv'))):,}").wait_for()
        page.close()
