"""The command line in processes of its own: a closed pipe, and what `--help` loads."""

import os
import subprocess
import sys

import bfcviz
from bfcviz.cli import main

SAMPLE = str(bfcviz.sample("oom_log"))


def test_a_closed_pipe_is_not_an_error():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "bfcviz", "info", SAMPLE]
    with subprocess.Popen(command, text=True, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        _, err = process.communicate(timeout=150)
    assert (process.returncode, err) == (0, "")


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from bfcviz.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print('loaded:', {'numpy', 'plotly', 'pyarrow', 'ipywidgets'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("loaded: set()\n"), done.stdout + done.stderr


# ------------------------------------------------------------------------------
# A path that could control the terminal is harmless in what `bfcviz record` and `bfcviz view` print.


def assert_quiet(text):
    assert text.replace("\n", "").isprintable(), ascii(text)


def test_the_summary_of_a_recording_is_harmless(tmp_path):
    folder = os.fsencode(tmp_path) + b"/run\x1b[31m\xff"
    code = "import numpy as np; x = np.ones(100_000)"
    command = [sys.executable, "-m", "bfcviz", "record", "-o", folder, "--", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    assert_quiet(done.stderr.decode())
    assert b"run\\x1b[31m\\udcff: " in done.stderr


def test_the_error_of_view_is_harmless(tmp_path, capsys):
    assert main(["view", str(tmp_path / "gone\x1b[31m\udcff\n")]) == 1
    err = capsys.readouterr().err
    assert_quiet(err)
    assert "\\x1b[31m\\udcff" in err
