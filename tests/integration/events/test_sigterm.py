"""The note that SIGTERM ended a process that writes a log."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from c_code import built, needs_compiler
from processes import needs_compiled

_PROGRAM = """
import ctypes, os, signal, sys
from bfcviz.events.log import EventLog
log = EventLog(4096)
assert log.note_term(sys.argv[1].encode())
exec(sys.argv[2])
os.kill(os.getpid(), signal.SIGTERM)
exec(sys.argv[3])
"""

pytestmark = needs_compiled


def _ended(note, before="", after=""):
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, note, before, after], capture_output=True, text=True, check=False
    )


def test_sigterm_ends_the_process_as_ever_and_is_noted(tmp_path):
    note = tmp_path / "ended"
    assert _ended(note).returncode == -signal.SIGTERM
    assert note.read_text() == f"{signal.SIGTERM.value} 0\n"


@pytest.mark.parametrize("end", ["log.forget_term()", "del log"])
def test_a_log_that_has_ended_is_not_noted(end, tmp_path):
    note = tmp_path / "ended"
    assert _ended(note, end).returncode == -signal.SIGTERM
    assert not note.exists()


@pytest.mark.parametrize("end", ["log.forget_term()", "del log"])
def test_the_last_of_two_logs_is_noted_also_after_the_first_has_ended(end, tmp_path):
    first, last = tmp_path / "first", tmp_path / "last"
    more = f"last = EventLog(64); assert last.note_term({str(last)!r}.encode()); {end}"
    assert _ended(first, more).returncode == -signal.SIGTERM
    assert (last.exists(), first.exists()) == (True, False)


@needs_compiler
def test_the_default_action_may_have_any_flags(tmp_path):
    note = tmp_path / "ended"
    library = built(Path(__file__).with_name("chained_handler.c"), tmp_path)
    more = f"ctypes.CDLL({str(library)!r}).set_default(); assert log.note_term(sys.argv[1].encode())"
    assert _ended(note, more).returncode == -signal.SIGTERM
    assert note.exists()


@needs_compiler
def test_a_handler_that_calls_the_one_before_it_is_called_once_and_the_program_goes_on(tmp_path):
    note = tmp_path / "ended"
    library = built(Path(__file__).with_name("chained_handler.c"), tmp_path)
    found = _ended(
        note, f"library = ctypes.CDLL({str(library)!r}); library.install()", "print(library.called())"
    )
    assert (found.returncode, found.stdout.split()) == (0, ["1"])
    assert not note.exists()
