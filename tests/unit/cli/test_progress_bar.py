"""The progress bar of a command: on a terminal, while a file is read."""

import io

import pytest
from unit.figures.synthetic import busy_trace

import bfcviz
from bfcviz.cli import progress_bar
from bfcviz.cli.progress_bar import ProgressBar, open_with_progress


@pytest.fixture
def file(tmp_path):
    return busy_trace(300).save(tmp_path / "busy.parquet")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_how_much_was_read(file, monkeypatch):
    monkeypatch.setattr(progress_bar, "_QUIET_S", 0.0)
    monkeypatch.setattr(progress_bar, "_PAUSE_S", 0.001)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with open_with_progress(str(file)) as trace:
        for _ in trace.blocks():
            pass
        while "100 %" not in terminal.getvalue():
            pass
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "Reading busy.parquet [" in terminal.getvalue()


def test_a_pipe_shows_nothing(file, capsys):
    with open_with_progress(str(file)) as trace:
        assert type(trace) is bfcviz.Trace
    assert capsys.readouterr().err == ""


def test_a_quick_file_shows_nothing():
    terminal = Terminal()
    bar = ProgressBar("Reading", terminal)
    bar.draw()
    bar.erase()
    assert terminal.getvalue() == ""
    assert bar.draw() is None
