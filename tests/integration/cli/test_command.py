"""The command line in processes of its own: a closed pipe, and what `--help` loads."""

import os
import subprocess
import sys

import bfcviz

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
