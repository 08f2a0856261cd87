"""A path that could control the terminal is harmless in what `bfcviz record` and `bfcviz view` print."""

import os
import subprocess
import sys

from bfcviz.cli import main


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
