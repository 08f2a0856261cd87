"""The flight recorder: what it writes when a request fails, a threshold is passed or a signal asks; else nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from processes import needs_compiled
from shared import ROOT

import bfcviz
from bfcviz.errors import FileError, LiveError
from bfcviz.watching import flight_recorder

pytestmark = needs_compiled
MIB = 1 << 20


def files(folder):
    return sorted(folder.rglob("*-*.bfc"))


def test_nothing_is_written_while_all_goes_well(tmp_path):
    with bfcviz.flight_recorder("numpy", folder=tmp_path / "flight") as recorder:
        np.ones(1000)
    assert not (tmp_path / "flight").exists()
    assert recorder.written == []


def test_a_failed_request_is_written_and_the_error_names_the_file(tmp_path):
    with (
        pytest.raises(MemoryError) as caught,
        bfcviz.flight_recorder("numpy", limit="16MiB", folder=tmp_path) as recorder,
    ):
        kept = [np.ones(MIB >> 3) for _ in range(100)]
    (path,) = recorder.written
    assert path.name == "01-request-failed.bfc"
    assert any(str(path) in note and "bfcviz why" in note for note in caught.value.__notes__)
    found = bfcviz.why(path)
    assert found.event is not None
    assert found.requested >= MIB
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "kept" not in locals() or len(kept) < 100


def test_any_other_error_writes_nothing(tmp_path):
    with pytest.raises(KeyError), bfcviz.flight_recorder("numpy", folder=tmp_path):
        raise KeyError("mine")
    assert files(tmp_path) == []


def test_only_the_newest_events_are_kept(tmp_path):
    with bfcviz.flight_recorder("numpy", keep=64 * 20_000, folder=tmp_path) as recorder:
        held = np.ones(MIB >> 3)
        for _ in range(60_000):
            np.ones(100)
        path = recorder.write("asked")
    trace = bfcviz.open(path)
    assert 10_000 < len(trace) < 60_000
    model = bfcviz.Model(trace)
    model.seek(len(trace))
    assert int(model.in_use()["size"].max()) >= MIB  # the state before the events that are kept is there
    assert held.sum() == MIB >> 3


def test_a_signal_asks(tmp_path):
    with bfcviz.flight_recorder("numpy", folder=tmp_path) as recorder:
        held = np.ones(MIB >> 3)
        os.kill(os.getpid(), signal.SIGUSR2)
        recorder.settle()
        assert [path.name for path in recorder.written] == ["01-signal.bfc"]
        assert held.sum() == MIB >> 3
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_a_signal_that_the_program_handles_stays_its_own(tmp_path):
    got = []
    before = signal.signal(signal.SIGUSR2, lambda *_: got.append(1))
    try:
        with bfcviz.flight_recorder("numpy", folder=tmp_path) as recorder:
            os.kill(os.getpid(), signal.SIGUSR2)
        assert (got, recorder.written) == ([1], [])
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_handler_that_the_program_sets_later_stays(tmp_path):
    def own(*_):
        pass

    before = signal.getsignal(signal.SIGUSR2)
    try:
        with bfcviz.flight_recorder("numpy", folder=tmp_path) as recorder:
            held = np.ones(MIB >> 3)
            asked = signal.signal(signal.SIGUSR2, own)
        assert signal.getsignal(signal.SIGUSR2) is own
        signal.signal(signal.SIGUSR2, asked)  # as who calls the handler before its own does
        os.kill(os.getpid(), signal.SIGUSR2)
        recorder.settle()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert files(tmp_path) == []
    assert held.sum() == MIB >> 3


def test_a_failure_that_the_program_survives_is_written_too_and_earlier_files_stay(tmp_path, capsys):
    for _ in range(2):  # two runs of a rank
        with bfcviz.flight_recorder("numpy", limit="16MiB", folder=tmp_path) as recorder:
            with pytest.raises(MemoryError):
                np.ones(100 * MIB)
            np.ones(1000)
        (path,) = recorder.written
        assert f"bfcviz why {path}" in capsys.readouterr().err
        assert bfcviz.why(path).requested == 800 * MIB
    assert len(files(tmp_path)) == 2


def test_two_processes_of_one_name_have_a_folder_each(tmp_path, monkeypatch):
    monkeypatch.setattr(flight_recorder, "name_of_process", lambda _: "rank-0")
    with bfcviz.flight_recorder("numpy", folder=tmp_path) as recorder:
        held = np.ones(MIB >> 3)
        recorder.folder.mkdir()  # by the other process, which looked at the same time
        other = recorder.folder / "01-asked.bfc"
        other.write_bytes(b"of the other")
        own = [recorder.write(), recorder.write()]
        assert held.sum() == MIB >> 3
    assert other.read_bytes() == b"of the other"
    assert [path.name for path in own] == ["01-asked.bfc", "02-asked.bfc"]
    assert {path.parent for path in own} == {recorder.folder} != {other.parent}


@pytest.mark.parametrize("name", ["loader/../../../../escape", "..", "a\0b"])
def test_the_name_of_a_process_leads_to_no_other_folder(name, tmp_path, monkeypatch):
    monkeypatch.setattr(flight_recorder, "name_of_process", lambda _: name)
    with bfcviz.flight_recorder("numpy", folder=tmp_path / "flight") as recorder:
        held = np.ones(MIB >> 3)
        path = recorder.write()
        assert held.sum() == MIB >> 3
    assert path.resolve().parent.parent == tmp_path / "flight"


def test_a_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "flight").touch()
    with bfcviz.flight_recorder("numpy", folder=tmp_path / "flight") as recorder:
        held = np.ones(MIB >> 3)
        with pytest.raises(FileError, match="flight"):
            recorder.write()
        assert held.sum() == MIB >> 3


def test_a_file_is_never_open_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # which would come after the events
    with bfcviz.flight_recorder("numpy", folder=tmp_path) as recorder:
        held = np.ones(MIB >> 3)
        assert recorder.write().stat().st_mode & 0o777 == 0o600
        assert held.sum() == MIB >> 3


@pytest.mark.parametrize("error", [RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), MemoryError("a part")])
def test_an_error_that_came_from_a_failed_request_names_the_file(error, tmp_path):
    def train():
        np.ones(1000)
        try:
            raise error
        except type(error) as cause:
            raise KeyError("batch 3") from cause

    with (
        pytest.raises(KeyError) as caught,
        bfcviz.flight_recorder("numpy", folder=tmp_path) as recorder,
    ):
        train()  # this framework does not tell bfcviz of the request
    (path,) = recorder.written
    assert any(str(path) in note for note in caught.value.__notes__)


SCRIPT = """
import numpy as np, bfcviz
bfcviz.flight_recorder("numpy", limit="16MiB", folder={folder!r})
kept = []
while True:
    kept.append(np.ones(1 << 17))
"""


def test_one_line_in_a_script_is_enough(tmp_path):
    code = SCRIPT.format(folder=str(tmp_path / "flight"))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RANK": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 1
    (path,) = files(tmp_path / "flight")
    assert path.parent.name.endswith("-rank-3")
    assert f"bfcviz why {path}" in done.stderr
    assert bfcviz.why(path).event is not None


def test_another_thread_is_refused(tmp_path):
    errors = []

    def start():
        try:
            bfcviz.flight_recorder("numpy", folder=tmp_path)
        except LiveError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert len(errors) == 1
    assert bfcviz.Watch.current is None


def test_a_threshold_that_is_passed(tmp_path):
    with bfcviz.flight_recorder("numpy", fragmentation=0.3, folder=tmp_path) as recorder:
        held = [np.ones(MIB >> 3) for _ in range(40)]
        del held[::2]
        until = time.monotonic() + 20
        while not recorder.written and time.monotonic() < until:
            time.sleep(0.01)
        assert recorder.written[0].name == "01-external-fragmentation.bfc"
        assert len(held) == 20


# ------------------------------------------------------------------------------
# `bfcviz record --on-oom`: the same around a program that stays as it is.


def flown(place, code, *words, **variables):
    command = [
        *[sys.executable, "-m", "bfcviz", "record", "--on-oom", "--limit", "16MiB", *words],
        *["--", sys.executable, "-c", code],
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        command, env=env, cwd=place, capture_output=True, text=True, check=False, timeout=150
    )


def test_a_program_that_fails_leaves_a_file_and_the_last_line_says_how_to_ask_why(tmp_path):
    code = "import numpy as np\nkept = []\nwhile True: kept.append(np.ones(1 << 17))"
    done = flown(tmp_path, code, RANK="3")
    assert done.returncode == 1
    (path,) = files(tmp_path / "bfcviz-flight")
    assert path.parent.name.endswith("-rank-3")
    *_, verdict, note, last = done.stderr.splitlines()
    assert "needed 1.0 MiB" in verdict
    assert note.endswith(f"bfcviz why {path}")
    assert last.endswith(f"bfcviz why {path.relative_to(tmp_path)}")
    assert bfcviz.why(path).requested == MIB


def test_a_program_without_a_failure_leaves_nothing_and_forked_processes_write_nothing(tmp_path):
    code = """
import os, numpy as np
if os.fork() == 0: raise MemoryError("of the child")
os.wait()
print("done")
"""
    done = flown(tmp_path, code, "--keep", "1MiB", "-o", "flights")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "1 other process not recorded" in done.stderr.splitlines()[-1]
    assert [*tmp_path.iterdir()] == []


WORKERS = """
import multiprocessing as mp, numpy as np
def work(_):
    try: np.ones(1 << 24)
    except MemoryError: pass
if __name__ == "__main__":
    with mp.get_context("fork").Pool(2) as pool:
        pool.map(work, range(8), chunksize=1)
        pool.close()
        pool.join()
"""


def test_each_worker_of_multiprocessing_has_a_folder(tmp_path):
    done = flown(tmp_path, WORKERS)
    assert done.returncode == 0, done.stderr
    found = files(tmp_path / "bfcviz-flight")
    assert found
    assert all("ForkPoolWorker" in path.parent.name for path in found)
    assert "3 processes watched" in done.stderr


@pytest.mark.parametrize("words", [["--tensorflow"], ["--growth", "much"], ["--force"], ["--no-command"]])
def test_what_the_flight_recorder_cannot_do_is_refused(words, tmp_path):
    done = flown(tmp_path, "print('ran')", *words)
    assert (done.returncode, done.stdout) == (2, "")


def test_its_options_need_it(tmp_path):
    command = [sys.executable, "-m", "bfcviz", "record", "--growth", "1MiB", "--", "touch", tmp_path / "ran"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    assert [*tmp_path.iterdir()] == []
