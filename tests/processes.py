"""Other Python processes: with the compiled heap or the plain one, and under a time limit."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
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


def _environment(plain=False, **environment):
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", **environment}
    env["PYTHONFAULTHANDLER"] = "1"
    if plain or not COMPILED:
        env["BFCVIZ_UNCOMPILED"] = "1"
    return env


def run_python(*arguments, plain=False, timeout=280, **environment):
    """Run `python ARGUMENTS`; `plain` lets it use the uncompiled heap, else it uses what this process does."""
    env = _environment(plain, **environment)
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)


def run_code(code, **options):
    """Run `code`; fails with its output where it ends badly, returns what it printed."""
    result = run_python("-c", code, **options)
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert not result.stderr, result.stderr
    return result.stdout


class WarmPython:
    """Runs code in processes forked from one Python that has run `begin`: each alone would take a while to import it.

    A process runs the code in its main module and ends as any Python does.
    """

    SERVER = """
import json as _json, os as _os, sys as _sys
while _line := _sys.stdin.readline():
    _child = _os.fork()
    if _child == 0:
        break
    print(_os.waitstatus_to_exitcode(_os.waitpid(_child, 0)[1]), flush=True)
if _line:
    _request = _json.loads(_line)
    for _fd, _path in enumerate((_os.devnull, *_request["output"])):
        _os.dup2(_os.open(_path, _os.O_RDWR), _fd)
    _os.environ.update(_request["environment"])
    exec(_request["code"])
"""

    def __init__(self, begin, **environment):
        self.python = subprocess.Popen(
            [sys.executable, "-c", begin + self.SERVER],
            env=_environment(**environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that a process that hangs can be killed with it
        )

    def run(self, code, timeout=280, **environment):
        """Run `code`; fails with its output where it ends badly, returns what it printed."""
        status, printed, said = self.result_of(code, timeout, **environment)
        assert status == 0, f"exit status {status}\n{printed}\n{said}"
        assert not said, said
        return printed

    def result_of(self, code, timeout=280, **environment):
        """Run `code`; returns its exit status (None: killed after `timeout` seconds), what it printed and said."""
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            request = {"code": code, "output": (out.name, err.name), "environment": environment}
            print(json.dumps(request), file=self.python.stdin, flush=True)
            if not select.select([self.python.stdout], [], [], timeout)[0]:
                os.killpg(self.python.pid, signal.SIGKILL)
            status = self.python.stdout.readline()
            return int(status) if status else None, out.read(), err.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.python.communicate()


def children_of(pid):
    """Numbers of the processes that this one started and that run still; Linux tells."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended just now
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found
