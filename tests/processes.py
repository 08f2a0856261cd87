"""Other Python processes: with the compiled heap or the plain one, and under a time limit."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from shared import ROOT

import bfcviz.allocator  # noqa: F401  loads the compiled heap where there is one

COMPILED = "bfcviz._heap" in sys.modules
"""Whether the heap runs as machine code in this process."""

needs_compiled = pytest.mark.skipif(not COMPILED, reason="serving frameworks needs the compiled build")


def sized(compiled, plain):
    """How many: the plain modules take some 30 times as long, so a test asks less of them."""
    return compiled if COMPILED else plain


def run_python(*arguments, plain=False, timeout=280, **environment):
    """Run `python ARGUMENTS`; `plain` lets it use the uncompiled heap, else it uses what this process does."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", **environment}
    env["PYTHONFAULTHANDLER"] = "1"
    if plain or not COMPILED:
        env["BFCVIZ_UNCOMPILED"] = "1"
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)


def run_code(code, **options):
    """Run `code`; fails with its output where it ends badly, returns what it printed."""
    result = run_python("-c", code, **options)
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert not result.stderr, result.stderr
    return result.stdout


def children_of(pid):
    """Numbers of the processes that this one started and that run still; Linux tells."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended just now
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found
