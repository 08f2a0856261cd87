"""The number of a process in place of a file: the folder that it records into, or what is known of it."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from bfcviz.cli.command import main
from bfcviz.cli.process_folder import recorded_folder
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


def test_a_process_that_only_reads_a_recording_does_not_record(tmp_path):
    events = tmp_path / EVENTS_FILE
    events.touch()
    with running(f"f = open({str(events)!r}); {WAIT}") as word, pytest.raises(FileError, match="without a"):
        recorded_folder(word)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, ("without a recording", "bfcviz record")),
        ({"BFCVIZ_RECORD": "1"}, ("without a recording",)),
        ({"BFCVIZ_RECORD": "run.bfc"}, ("without a recording",)),
        ({"BFCVIZ_RECORD": '{"folder": "/a/run.bfc"}'}, ("/a/run.bfc", "imported")),
        ({"BFCVIZ_RECORD": '{"folder": "/a/flight", "flight": {}}'}, ("/a/flight", "imported")),
    ],
)
def test_a_process_that_writes_no_recording(variables, words, capsys):
    with running(**variables) as word:
        assert main(["why", word]) == 1
        told = capsys.readouterr().err
        assert all(each in told for each in (*words, word))
        assert main(["attach", word]) == 1  # it does not wait


HANDLES = f"import signal; signal.signal(signal.SIGUSR2, lambda *_: None); {WAIT}"
FLIGHT = '{"folder": "/a/flight", "flight": {}}'


def test_only_a_process_that_handles_the_signal_is_to_get_it():
    with running(HANDLES, BFCVIZ_RECORD=FLIGHT) as word, pytest.raises(FileError, match=f"-USR2 {word} "):
        recorded_folder(word)
    with running(BFCVIZ_RECORD=FLIGHT) as word, pytest.raises(FileError, match=r"^((?!USR2).)*$"):
        recorded_folder(word)
    recorder = f"""
import os, subprocess, sys
started = subprocess.Popen([sys.executable, "-S", "-c", {HANDLES!r}], env=os.environ | {{"BFCVIZ_RECORD": {FLIGHT!r}}})
started.wait()
"""
    with running(recorder) as word, pytest.raises(FileError, match=r"-USR2 \d+ ") as error:
        recorded_folder(word)
    assert f"-USR2 {word} " not in str(error.value)


def test_a_file_that_is_closed_meanwhile_hides_no_recording(tmp_path, monkeypatch):
    original = Path.readlink

    def readlink(link):
        if link.name == "0":
            raise FileNotFoundError
        return original(link)

    with running(f"f = open({str(tmp_path / EVENTS_FILE)!r}, 'w'); {WAIT}") as word:
        monkeypatch.setattr(Path, "readlink", readlink)
        assert recorded_folder(word) == str(tmp_path)


def test_the_name_of_a_process_may_be_any_bytes():
    code = f"open('/proc/self/comm', 'wb').write(b'caf\\xc3'); {WAIT}"
    with running(code) as word, pytest.raises(FileError, match="without a recording"):
        recorded_folder(word)


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
