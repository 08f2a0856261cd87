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
if len(sys.argv) > 2:
    library = ctypes.CDLL(sys.argv[2])
    library.install()
os.kill(os.getpid(), signal.SIGTERM)
print(library.called())
"""

pytestmark = needs_compiled


def _ended(*words):
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words], capture_output=True, text=True, check=False
    )


def test_sigterm_ends_the_process_as_ever_and_is_noted(tmp_path):
    note = tmp_path / "ended"
    assert _ended(str(note)).returncode == -signal.SIGTERM
    assert note.read_text() == f"{signal.SIGTERM.value} 0\n"


@needs_compiler
def test_a_handler_that_calls_the_one_before_it_is_called_once_and_the_program_goes_on(tmp_path):
    note = tmp_path / "ended"
    library = built(Path(__file__).with_name("chained_handler.c"), tmp_path)
    found = _ended(str(note), str(library))
    assert (found.returncode, found.stdout.split()) == (0, ["1"])
    assert not note.exists()


_TWO_LOGS = """
import os, signal, sys
from bfcviz.events.log import EventLog
one, other = EventLog(4096), EventLog(4096)
assert one.note_term(sys.argv[1].encode())
for word in sys.argv[2:]:
    {"forget one": one.forget_term, "forget other": other.forget_term}[word]()
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("words", "is_noted"),
    [(["forget other"], True), (["forget one"], False), (["forget other", "forget one"], False)],
    ids=["of another log", "of the log", "of both"],
)
def test_only_the_log_that_is_noted_forgets_its_note(words, is_noted, tmp_path):
    note = tmp_path / "ended"
    code = [sys.executable, "-c", _TWO_LOGS, str(note), *words]
    assert subprocess.run(code, check=False).returncode == -signal.SIGTERM
    assert note.exists() is is_noted
