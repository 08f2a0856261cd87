"""The program that `bfcviz record` starts: its exit status, signals and open files are unchanged."""

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from bfcviz.cli import main, record

LIMIT_S = 150

LISTEN = """
import signal, sys
def count(number, frame):
    print("got", signal.Signals(number).name, flush=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1): signal.signal(number, count)
print("ready", flush=True)
while signal.sigtimedwait([], 0.2) is None: pass
"""


def run(*words, **environment):
    with record.signals_blocked() as mask:
        return record.run_program(words, {**os.environ, **environment}, mask)


def test_a_python_file_is_not_a_program(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trained')")
    assert main(["record", "-o", str(tmp_path / "run"), "--", "train.py"]) == 1
    assert "python train.py" in capsys.readouterr().err


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_exit_status_is_the_programs(status):
    assert run("sh", "-c", f"exit {status}") == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_program_that_a_signal_ended_is_counted_as_a_shell_does(number):
    assert run("sh", "-c", f"kill -{int(number)} $$") == 128 + number


@pytest.mark.parametrize("program", ["no-such-program", "/", "/etc/hostname"])
def test_a_program_that_cannot_be_started_is_an_error(program, tmp_path, capsys):
    assert main(["record", "-o", str(tmp_path / "run.bfc"), "--", program]) == 1
    assert capsys.readouterr().err.startswith(f"bfcviz: error: cannot start {program}: ")
    assert not (tmp_path / "run.bfc").exists()


def test_numpys_threads_take_no_signal():
    """They would take those that stay pending in the main thread: SIGTERM while the recording is packed."""
    code = """
import re
from pathlib import Path
import bfcviz.cli.record
for thread in Path("/proc/self/task").iterdir():
    print(re.search(r"SigBlk:\\s*(\\w+)", (thread / "status").read_text())[1])
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    masks = sorted(int(mask, 16) for mask in done.stdout.split())
    assert masks[0] == 0
    assert len(masks) > 1
    assert all(mask >> (signal.SIGTERM - 1) & mask >> (signal.SIGINT - 1) & 1 for mask in masks[1:])


def test_signal_handlers_and_mask_are_the_defaults(capfd):
    """SIGPIPE, which Python ignores, is not ignored; no signal is blocked."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    code = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    assert run("sh", "-c", "kill -PIPE $$") == 128 + signal.SIGPIPE
    assert run(sys.executable, "-c", code) == 0
    assert capfd.readouterr().out == f"{mask}\n"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def test_open_files_are_passed_on():
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    assert run(sys.executable, "-c", f"import os; os.write({writing}, b'through')") == 0
    os.close(writing)
    with os.fdopen(reading) as file:
        assert file.read() == "through"


def recorded(tmp_path, **options):
    words = ["record", "-o", str(tmp_path / "run.bfc"), "--", sys.executable, "-c", LISTEN]
    return subprocess.Popen([sys.executable, "-m", "bfcviz", *words], text=True, **options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_forwarded_to_the_program(number, tmp_path):
    pipe = subprocess.PIPE
    with recorded(tmp_path, stdout=pipe, stderr=pipe) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"got {number.name}\n"
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (128 + signal.SIGHUP, "")
    assert "nothing was recorded" in err
    assert err.count("\n") == 1


def test_ctrl_c_comes_once(tmp_path):
    """The terminal sends Ctrl-C to both processes, so it must not be forwarded too."""
    ours, theirs = pty.openpty()
    process = recorded(
        tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(theirs)
    try:
        said = read_until(ours, "ready")
        os.write(ours, b"\x03")
        said += read_until(ours, "got SIGINT")
        process.send_signal(signal.SIGUSR1)  # arrives after a second SIGINT, if there is one
        said += read_until(ours, "got SIGUSR1")
        assert said.count("got SIGINT") == 1
    finally:
        process.send_signal(signal.SIGHUP)
        process.wait(LIMIT_S)
        os.close(ours)


def _take_terminal():
    import fcntl  # noqa: PLC0415
    import termios  # noqa: PLC0415

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def read_until(terminal, text):
    """The output up to `text`."""
    said, until = "", time.monotonic() + LIMIT_S
    while text not in said:
        assert time.monotonic() < until, said
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 4096).decode()
    return said
