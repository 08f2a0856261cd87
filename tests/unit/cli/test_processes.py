"""The number of a process in place of a file: the folder that it records into, or what is known of it."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from bfcviz.cli.command import main
from bfcviz.cli.processes import recorded_folder
from bfcviz.errors import FileError
from bfcviz.events.storage.folder import EVENTS_FILE

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")

WAIT = "print(1, flush=True); input()"


@contextmanager
def running(code=WAIT, **variables):
    """A process that waits."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | variables,
    ) as process:
        process.stdout.readline()
        yield str(process.pid)
        process.communicate(b"\n")


def test_the_folder_of_a_recording_and_of_what_started_it(tmp_path):
    events = tmp_path / EVENTS_FILE
    with running(f"f = open({str(events)!r}, 'w'); {WAIT}") as word:
        assert recorded_folder(word) == str(tmp_path)
    inner = f"f = open({str(events)!r}, 'w'); print(1, flush=True); input()"
    with running(f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {inner!r}])") as word:
        assert recorded_folder(word) == str(tmp_path)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, ("without a recording", "bfcviz record")),
        ({"BFCVIZ_RECORD": '{"folder": "/a/run.bfc"}'}, ("/a/run.bfc", "imported")),
        ({"BFCVIZ_RECORD": '{"folder": "/a/flight", "flight": {}}'}, ("/a/flight", "kill -USR2")),
    ],
)
def test_a_process_that_writes_no_recording(variables, words, capsys):
    with running(**variables) as word:
        assert main(["why", word]) == 1
        told = capsys.readouterr().err
        assert all(each in told for each in (*words, word))
        assert main(["attach", word]) == 1  # it does not wait


def test_a_process_that_ended():
    with running() as word:
        pass
    with pytest.raises(FileError, match="no process"):
        recorded_folder(word)


def test_a_file_with_a_number_as_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("1").write_text("x")
    assert recorded_folder("1") == "1"
    assert recorded_folder("run.bfc") == "run.bfc"
