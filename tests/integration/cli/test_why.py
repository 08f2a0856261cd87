"""`bfcviz why` as a process: its memory with a long text; and its score on texts that people pasted."""

import contextlib
import io
import runpy
import subprocess
from types import SimpleNamespace

import pytest
from processes import run_code
from shared import SHARED, needs_shared
from unit.cli.test_why import MESSAGE

from bfcviz.cli import main


def test_a_message_needs_no_plotly_and_little_memory(tmp_path):
    """A text of one line is read in pieces: one of 12 MB needs no more than one of 2 MB."""
    for size in (1, 6):
        long = b"x " * (size << 20) + MESSAGE.encode() + b" y" * 1000
        (tmp_path / f"{size}.txt").write_bytes(long)
    said = run_code(f"""
import sys
from bfcviz.cli import main
def most_kib(name):
    assert main(["why", {str(tmp_path)!r} + name]) == 0
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
short, long = most_kib("/1.txt"), most_kib("/6.txt")
assert not {{"plotly", "ipywidgets", "pandas"}} & set(sys.modules)
print(short, long)
""")
    short, long = map(int, said.splitlines()[-1].split())
    assert long < short + 5_000  # KiB; its bytes alone are 12,000
    assert long < 200_000


@needs_shared
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of the script
def test_the_texts_that_people_pasted(monkeypatch, capsys):
    """The score of the given script, which runs a command for each: all facts, nearly all verdicts, no bad advice."""

    def answer(command, **_):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main(command[1:])
        return SimpleNamespace(stdout=out.getvalue())

    script = str(SHARED / "real/messages/check.py")
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", answer)
        patch.setattr("sys.argv", [script])
        runpy.run_path(script)
    score = capsys.readouterr().out.splitlines()[-1]
    assert (
        "is_failure right 26, facts 105 of 105, advice given 54 of 54, forbidden advice 0, verdict score 26/26"
        in score
    )
